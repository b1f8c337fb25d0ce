"""torch.compile by autofuse against torch.compile by Inductor, on torch modules of our own.

    out/torch-venv/bin/python -m experiments torch_compile --threads 1,2 --budget 3m

`make torch-venv` makes that environment. Each network is captured, tuned for each number of threads (without
`--budget`: compiled by what the database knows), compiled into the cache, and then raced with Inductor, which has its
weights frozen: interleaved, each in a process of its own. Both are checked against eager.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autofuse import api
from autofuse.backend.compile.host_cpu import local_device
from autofuse.errors import InputError
from autofuse.measure.networks.bench import Contender, ContenderResult, Host, bench_contenders
from experiments import tables
from experiments.options import new_parser, one_of
from experiments.records import Table, keep

NETWORKS = ("resnet50", "vit_s16", "bert_base")
OWN, RIVAL = "autofuse", "inductor"


@dataclass(frozen=True)
class Row:
    """One network: times in microseconds, `ratio` = Inductor's time / ours with its interval.

    `compile_s`: the first call with an empty cache after the tuning; `first_s`: the first call of a new process
    from the filled cache; `inductor_first_s`: Inductor's, whose cache is what earlier runs left. `tuned_s`: how long it
    was tuned.
    """

    network: str
    threads: int
    ours_us: float
    inductor_us: float
    ratio: float
    ci_lo: float
    ci_hi: float
    trusted: bool
    compile_s: float
    first_s: float
    inductor_first_s: float
    tuned_s: float


def row(name: str, threads: int, options: argparse.Namespace) -> Row:
    """Capture, tune, compile and race one network; InputError where there is no ratio."""
    from experiments.torch_compile.contender import compiled, first_call_file
    from experiments.torch_compile.networks import build, example

    database, folder = options.out / "torch.db", options.out / f"{name}-{threads}"
    if options.budget:
        if not list(folder.glob("*.onnx")):
            _call(compiled(name, OWN, database, threads, capture=folder, cache=False), example(name))
        (captured,) = folder.glob("*.onnx")
        api.tune(captured, database=str(database), budget=options.budget, threads=threads)
    compile_s, _ = _call(compiled(name, OWN, database, threads), example(name))
    _, wanted = _call(build(name), example(name))
    results = _raced(name, threads, options, database, example(name), wanted)
    rival = results[RIVAL]
    for engine, result in results.items():
        if result.error or result.wrong:
            raise InputError(f"{engine}: {result.error or result.wrong}")
    if rival.ratio is None or rival.ci_lo is None or rival.ci_hi is None or rival.median_us is None:
        raise InputError(f"no ratio: {rival.reason}; run it on a quieter machine")
    first = {
        engine: float(first_call_file(database, engine, name, threads).read_text(encoding="utf-8"))
        for engine in (OWN, RIVAL)
    }
    ours_us = results[OWN].median_us or float("nan")
    return Row(
        name, threads, ours_us, rival.median_us, rival.ratio, rival.ci_lo, rival.ci_hi, rival.trusted,
        compile_s, first[OWN], first[RIVAL], options.budget,
    )  # fmt: skip


def _raced(
    name: str, threads: int, options: argparse.Namespace, database: Path, given: Any, wanted: Any
) -> dict[str, ContenderResult]:
    cache = options.out / "inductor"
    host = Host(
        "experiments.torch_compile.contender",
        Path(sys.executable),
        {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": str(threads)},
    )
    contenders = [Contender(engine, f"{engine} {name}", database, host) for engine in (OWN, RIVAL)]
    expected = [one.numpy() for one in (wanted if isinstance(wanted, tuple) else (wanted,))]
    inputs = {"input": given.numpy()}
    return bench_contenders(
        contenders, inputs, threads, options.bench, target=local_device().target(), expected=expected
    )


def _call(module: Any, given: Any) -> tuple[float, Any]:
    """Seconds of a call, and its result."""
    import torch

    torch._dynamo.reset()
    start = time.perf_counter()
    with torch.no_grad():
        result = module(given)
    return time.perf_counter() - start, result


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """One row a network and number of threads, as soon as it is measured."""
    for name in options.models:
        for threads in options.threads:
            try:
                yield row(name, threads, options)
            except InputError as error:
                print(f"{name}, {threads} threads: {error}", file=sys.stderr)


def published(found: Sequence[Row]) -> str:
    """The rows as a table; "?" behind a ratio that the benchmark did not trust."""
    head = (
        "network", "threads", "ms", "Inductor, ms", "Inductor's time / ours", "tuned, s", "first call, s: compiled now",
        "from the cache", "Inductor",
    )  # fmt: skip
    lines = tables.head(head)
    for one in found:
        ratio = tables.ratio(one.ratio, one.ci_lo, one.ci_hi, one.trusted)
        seconds = (f"{value:.1f}" for value in (one.compile_s, one.first_s, one.inductor_first_s))
        times = f"{one.ours_us / 1e3:.2f}", f"{one.inductor_us / 1e3:.2f}"
        lines.append(tables.line([one.network, one.threads, *times, ratio, f"{one.tuned_s:.0f}", *seconds]))
    return "\n".join(lines) + "\n"


def _place(one: Row) -> tuple[int, int]:
    return NETWORKS.index(one.network), one.threads


TABLES = (Table("torch_compile", Row, ("network", "threads"), published, _place),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table; 0 when a network was measured."""
    parser = new_parser(__doc__, out="out/torch_compile", threads="1,2", budget="", bench="20s")
    parser.add_argument("--models", type=one_of(*NETWORKS), default=list(NETWORKS), help="which (default: all)")
    options = parser.parse_args(arguments)
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ["XDG_CACHE_HOME"] = str(options.out / "cache")
    found: list[Row] = []
    for one in rows(options):
        found.append(one)
        keep(TABLES[0], [one])
        print(published(found).splitlines()[-1], flush=True)
    tables.write(options.out, found, published(found))
    return 0 if found else 1
