"""What runs on a Dask worker: a build in a disposable child of the worker, so that no kernel can take it along.

Workers need autofuse installed, of the same version, and one thread each (`dask worker --nthreads 1`).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from autofuse.measure.children.messages import Refused, decode, encode, known
from autofuse.measure.children.process import Child, ask, available_cores
from autofuse.measure.children.requests import Export, StartBuilder
from autofuse.measure.measurement import Failure
from autofuse.values.processes import default_memory
from autofuse.values.scratch import scratch_folder

BUILDER_MODULE = "autofuse.measure.children.builder"
START_S = 90.0
_NAME = "autofuse_builders"


def build(start: bytes, export: bytes, arrays: Sequence[bytes], limit_s: float) -> tuple[bytes, bytes, list[bytes]]:
    """The answer to `export` with the kernel's library and its packed constants (.npy); `Refused` without any.

    `start`, `export`: the requests of those names, encoded. `arrays`: the original constants (.npy).
    """
    with scratch_folder() as folder:
        paths = []
        for number, content in enumerate(arrays):
            paths.append(folder / f"original-{number}.npy")
            paths[-1].write_bytes(content)
        child = _child(start)
        if isinstance(child, Failure):
            return _refused(child), b"", []
        request = decode(export, known((Export,)))
        assert isinstance(request, Export)
        reply = ask(child, replace(request, constants=tuple(paths), folder=folder), limit_s, "build_error")
        if isinstance(reply, Failure):
            return _refused(reply), b"", []
        return encode(reply), reply.kernel.read_bytes(), [path.read_bytes() for path in reply.constants]


def _refused(failure: Failure) -> bytes:
    return encode(Refused(failure.kind, failure.message))


def _child(start: bytes) -> Child | Failure:
    """This worker thread's building process for this target, kept for the next candidate: it dies with its thread."""
    from distributed import get_worker

    kept: dict[tuple[int, bytes], Child] = get_worker().__dict__.setdefault(_NAME, {})
    key = threading.get_ident(), start
    child = kept.get(key)
    if child is not None and child.running() and not child.busy:
        return child
    for old in [name for name in kept if name[0] == key[0]]:
        kept.pop(old).kill()
    request = decode(start, known((StartBuilder,)))
    assert isinstance(request, StartBuilder)
    child = Child(BUILDER_MODULE, default_memory(available_cores()), {"TVM_NUM_THREADS": "1"}, ())
    reply = ask(child, request, START_S)
    if isinstance(reply, Failure):
        return reply
    kept[key] = child
    return child
