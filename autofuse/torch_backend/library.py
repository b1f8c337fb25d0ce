"""A session over a graph, by what the database knows: from the cache, or compiled now. Nothing is measured."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from pathlib import Path

from autofuse.backend.library.session import Session
from autofuse.compiler import CompileReport, Context, Policy, compile_in, compile_open
from autofuse.database.ask.stamp import stamp
from autofuse.environment.place import Place
from autofuse.errors import AutofuseError
from autofuse.fusion.plan import ScheduleLimits
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.torch_backend.cache import Cache, Entry, Note, default_cache
from autofuse.torch_backend.options import Options
from autofuse.values.scratch import scratch_folder

_LOG = logging.getLogger(__name__)
MODEL, LIBRARY = "graph.onnx", "graph.so"


def is_kept(key: str | None, options: Options) -> bool:
    """Whether the cache has a library under this key."""
    return options.cache and key is not None and default_cache(options.cache_bytes).find(key) is not None


def open_session(
    key: str | None,
    export: Callable[[Path], None],
    options: Options,
    threads: int,
    sizes_in: Callable[[Path], tuple[OpenSize, ...]] | None = None,
) -> Session:
    """The library of a graph, loaded. `key`: what it is kept under (None: it is not kept).

    `export` writes the graph as an ONNX file, where that is needed. `sizes_in`: the sizes of that file that stay open.
    AutofuseError when it cannot be compiled.
    """

    def compiled(context: Context, model: Path, library: Path | None) -> CompileReport:
        if sizes_in is None:
            return compile_in(context, model, library, [{}], None)
        return compile_open(context, model, library, {}, sizes_in(model), None)

    cache = default_cache(options.cache_bytes) if options.cache and key is not None else None
    place = Place(options.database, options.device, threads)
    policy = Policy(options.on_miss, limits=ScheduleLimits(exact=options.exact))
    with Context(place, policy=policy) as context:
        now = _stamp(context)
        entry = None if cache is None or key is None else cache.find(key)
        if entry is not None and entry.note.stamp == now:
            session = _loaded(cache, key, entry, threads)
            if session is not None:
                return session
            entry = None
        with scratch_folder() as folder:
            export(folder / MODEL)
            if entry is not None and cache is not None and key is not None:
                decided = _decision(compiled(context, folder / MODEL, None))
                if decided == entry.note.decision:
                    session = _loaded(cache, key, entry, threads)
                    if session is not None:
                        cache.agree(key, Note(stamp=now, decision=decided))
                        return session
            report = compiled(context, folder / MODEL, folder / LIBRARY)
            if cache is not None and key is not None:
                _keep(cache, key, folder / LIBRARY, Note(stamp=now, decision=_decision(report)))
            return Session(folder / LIBRARY, threads=threads)


def _keep(cache: Cache, key: str, library: Path, note: Note) -> None:
    try:
        cache.keep(key, library, note)
    except OSError as error:
        _LOG.warning("autofuse: a library of torch.compile is not kept in %s: %s", cache.folder, error)


def _loaded(cache: Cache | None, key: str | None, entry: Entry, threads: int) -> Session | None:
    """The session of an entry; a damaged one goes, and is None."""
    try:
        return Session(entry.library, threads=threads)
    except AutofuseError:
        if cache is not None and key is not None:
            cache.drop(key)
        return None


def _stamp(context: Context) -> str:
    """Changes with everything that is recorded in the database."""
    with context.database.reading() as sql:
        return hashlib.sha256(f"{context.database.location.text} {stamp(sql)}".encode()).hexdigest()


def _decision(report: CompileReport) -> str:
    """A digest of what was compiled: the plan, each kernel's schedule, what ONNX Runtime runs."""
    groups = [[list(group.operators), group.schedule] for group in report.groups]
    rest = [[row.op_type, row.count] for row in report.rest]
    return hashlib.sha256(json.dumps([report.plan_key, groups, rest]).encode()).hexdigest()
