"""Recurrent layers and cells against other engines: `python -m experiments recurrent --kinds layers --threads 1,2`.

Each is a network of its own: tuned into one database, compiled from it, then raced in one interleaved run with the
others, each in a process of its own. ONNX Runtime, OpenVINO and autofuse read the ONNX operator, torch has its own
layer or cell with the same weights, and TVM, which does not know the operator, a cell written out in elementary ones.
`python -m experiments peers.environments openvino torch` makes the environments.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import onnx

from autofuse import api
from autofuse.backend.compile.host_cpu import local_device
from autofuse.errors import AutofuseError
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import load
from autofuse.measure.networks.bench import Contender, ContenderResult, Host
from autofuse.measure.networks.judgement import judged
from autofuse.values.ratios import compare
from experiments import tables
from experiments.options import new_parser, one_of
from experiments.peers.environments import MissingEnvironmentError
from experiments.peers.rivals import RIVALS, host_of
from experiments.races import NO_RATIO, race
from experiments.records import Table, keep
from experiments.recurrent.cases import KINDS, OPERATOR, WRITTEN, Layer

OWN = "autofuse"
ENGINES: Mapping[str, str] = {
    OWN: OPERATOR,
    "onnxruntime": OPERATOR,
    "openvino": OPERATOR,
    "torch": OPERATOR,
    "tvm": WRITTEN,
}
"""Name among the peers' rivals -> the form of the file that it reads."""


@dataclass(frozen=True)
class Row:
    """One engine on one network: `ratio` = its time / ours with its interval, `problem`: why there is none.

    `gbs`: of ours, the weights that it reads over its whole time: what the caches deliver at least.
    """

    network: str
    threads: int
    engine: str
    us: float | None = None
    ratio: float | None = None
    lo: float | None = None
    hi: float | None = None
    trusted: bool = False
    problem: str = ""
    gbs: float | None = None


def measured(name: str, layer: Layer, threads: int, options: argparse.Namespace) -> list[Row]:
    """The rows of one network at one number of threads."""
    problems: dict[str, str] = {}
    contenders = []
    for engine, form in ENGINES.items():
        try:
            contenders.append(_contender(engine, _file(name, layer, form, options.out), threads, options))
        except (AutofuseError, MissingEnvironmentError, ValueError) as error:
            problems[engine] = str(error)
    graph, target = load(_file(name, layer, OPERATOR, options.out)), local_device().target()
    results = race(graph, contenders, threads, options.bench, target)
    results = judged(results, graph, generate_inputs(graph, 0))
    rows = [_row(Row(name, threads, engine, problem=problems.get(engine, "")), results) for engine in ENGINES]
    own, *others = rows
    return [replace(own, gbs=layer.weight_bytes / own.us / 1e3) if own.us else own, *others]


def _file(name: str, layer: Layer, form: str, folder: Path) -> Path:
    """The network in a form, made unless it is there; ValueError where it has no such form."""
    path = folder / f"{name.replace(' ', '_')}-{form}.onnx"
    if not path.exists():
        onnx.save(layer.model(form), path)
    return path


def _contender(engine: str, path: Path, threads: int, options: argparse.Namespace) -> Contender:
    """An engine with its file; ours tuned (with trials) and compiled."""
    rival = RIVALS[engine]
    if engine != OWN:
        return Contender(
            engine, rival.kind, path, host_of(rival, threads, options.out / "inductor") if rival.foreign else Host()
        )
    library, database = path.with_name(f"{path.stem}-{threads}.so"), str(options.out / "recurrent.db")
    if options.trials:
        api.tune(path, database=database, trials=options.trials, budget=options.budget, threads=threads)
    api.compile(path, library, database=database, threads=threads)
    return Contender(engine, rival.kind, library)


def _row(row: Row, results: Mapping[str, ContenderResult]) -> Row:
    """A row with what the race found."""
    one, own = results.get(row.engine), results.get(OWN)
    if one is None:
        return row
    if one.error or one.wrong:
        return replace(row, problem=one.error or one.wrong)
    row = replace(row, us=one.median_us)
    found = compare(one.timed, own.timed) if own and own.timed and one.timed else None
    if found is None or found.value is None:
        return replace(row, problem=one.reason or NO_RATIO)
    return replace(row, ratio=found.value, lo=found.lo, hi=found.hi, trusted=found.trusted)


def published(rows: Sequence[Row]) -> str:
    """A line a network: ours, and each other engine's time over it; "?" behind a ratio that is not trusted."""
    others = [engine for engine in ENGINES if engine != OWN]
    lines = tables.head(["network", "threads", "us", "weights, GB/s", *(RIVALS[engine].title for engine in others)])
    for (network, threads), group in groupby(rows, key=lambda row: (row.network, row.threads)):
        found = {row.engine: row for row in group}
        own = found[OWN]
        ours = (f"{own.us:.1f}", f"{own.gbs or 0:.0f}") if own.us else (_why(own), "")
        lines.append(tables.line([network, threads, *ours, *(_cell(found.get(engine)) for engine in others)]))
    return "\n".join(lines) + "\n"


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    return tables.ratio(row.ratio, row.lo, row.hi, row.trusted) or _why(row)


def _why(row: Row) -> str:
    """The first words of a problem: a table has no room for more."""
    return (row.problem or NO_RATIO).splitlines()[0][:80]


def _place(row: Row) -> tuple[int, int, int]:
    names = [name for kind in KINDS.values() for name in kind]
    engines = list(ENGINES)
    place = names.index(row.network) if row.network in names else len(names)
    return place, row.threads, engines.index(row.engine) if row.engine in engines else len(engines)


TABLES = (Table("recurrent", Row, ("network", "threads", "engine"), published, _place),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table; 0 when every network has a ratio to some engine."""
    parser = new_parser(__doc__, out="out/recurrent", threads="1", budget="60s", bench="8s")
    parser.add_argument("--kinds", type=one_of(*KINDS), default=list(KINDS), help="which (default: all)")
    parser.add_argument("--trials", type=int, default=12, help="candidates tuned for each network (0: none)")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    found: list[Row] = []
    done = True
    for threads in options.threads:
        for name, make in ((name, make) for kind in options.kinds for name, make in KINDS[kind].items()):
            rows = measured(name, make(), threads, options)
            done &= any(row.ratio is not None and row.engine != OWN for row in rows)
            keep(TABLES[0], rows)
            found += rows
            print(published(rows).splitlines()[-1], flush=True)
    tables.write(options.out, found, published(found))
    return 0 if done else 1
