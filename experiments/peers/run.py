"""The peer benchmark: each network on every rival, in turn, in one run, on the same file and the same inputs.

Started again with the same folder it keeps the rows that are finished; what was converted, tuned or compiled is kept
too. Leave the machine alone meanwhile: `--prepare` does beforehand all that needs no quiet.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil

from autofuse.backend.compile.host_cpu import local_device
from autofuse.device.target import Target
from autofuse.environment.device import thread_count
from autofuse.errors import AutofuseError, InputError
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.measure.checking.reference import run_reference
from autofuse.measure.machine import probe_machine
from autofuse.measure.networks.bench import Contender, ContenderResult, Host, bench_contenders
from autofuse.measure.networks.judgement import judged
from autofuse.values.processes import default_memory
from experiments.catalogue import EXPORTED
from experiments.index import ROOT
from experiments.model_files import FOLDERS, HELP, resolve
from experiments.networks.one_network import facts
from experiments.networks.row import sha256, title
from experiments.options import duration, new_parser, one_of
from experiments.peers import published, table
from experiments.peers.environments import FOLDER, MissingEnvironmentError, interpreter
from experiments.peers.limits import Rates, demand_of
from experiments.peers.prepare import Prepared, Subject, prepare
from experiments.peers.rivals import RIVALS, Rival, host_of
from experiments.peers.row import Entry, Row

SEED = 0
TABLES = (*published.TABLES, published.SUMMARY)
BUSY_PERCENT = 15.0
SHARES = 2
"""A rival may take half of the memory that may be taken: sizes differ, and only one of them grows at a time."""
PACKAGES = {
    "torch": ("torch", "torchvision", "ncnn", "pnnx", "transformers", "onnx2torch"),
    "openvino": ("openvino",),
    "litert": ("ai_edge_litert", "litert_torch"),
    "metaschedule": ("xgboost_cpu",),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """All rows in turn; 0 when all of them are finished (with --prepare: when all are ready)."""
    options = _parser().parse_args(arguments)
    options.out = out = options.out.resolve()
    try:
        models = resolve(options.models, EXPORTED, options.generated)
        counts = [thread_count(count, "local") for count in options.threads]
    except InputError as error:
        raise SystemExit(str(error)) from error
    done = True
    for model in models:
        for threads in counts:
            row = stored(out, model, threads)
            if row.finished and set(options.rivals) <= set(row.entries) and not (options.again or options.prepare):
                print(f"{title(row.network, row.threads)}: finished on {row.measured_at}, kept", flush=True)
                continue
            try:
                row = _row(options, model, row)
            except (AutofuseError, OSError) as error:
                row = Row(row.network, threads, row.model_sha256, f"{type(error).__name__}: {error}")
            if options.prepare:
                done &= not row.error
                continue
            row.write(_row_path(out, model, threads))
            print(f"{title(row.network, row.threads)}: {row.error or 'finished'}", flush=True)
            done &= row.finished
            table.write(_rows(out, models), out)
            if row.finished:
                published.keep_row(row, *table.best_peer(row))
    if not options.prepare:
        _finish(out, models)
    return 0 if done else 1


def _finish(out: Path, models: Sequence[Path]) -> None:
    rows = _rows(out, models)
    table.write(rows, out)
    try:
        command = [str(interpreter("torch")), "-m", "experiments", "peers.plot"]
        subprocess.run([*command, str(out / "results.csv"), str(out / "results.svg")], cwd=ROOT, check=False)
    except MissingEnvironmentError as error:
        print(f"no plot: {error}")
    print(f"\n{table.markdown(rows)}\nThis table: {out / 'results.md'}; figures: {out / 'results.csv'}, results.svg")


def _row(options: argparse.Namespace, model: Path, row: Row) -> Row:
    """Make every rival ready, and time them unless only that was asked for."""
    print(f"\n{title(row.network, row.threads)}", flush=True)
    graph = load(model, {})
    out: Path = options.out
    subject = Subject(
        model, row.model_sha256, row.threads, generate_inputs(graph, SEED), local_device().target(),
        out / "ready" / model.stem, options.databases / f"{model.stem}.db", options.budget, options.metaschedule_budget,
    )  # fmt: skip
    ready = {name: prepare(RIVALS[name], subject, options.retry) for name in options.rivals}
    if options.prepare:
        return row
    busy = psutil.cpu_percent(interval=1.0)
    if busy > BUSY_PERCENT:
        print(f"warning: {busy:.0f} % of the machine is busy with something else; its times will not be trusted")
    results = _timed(graph, subject, ready, options.bench)
    entries = {
        name: Entry.of(results[name], found.note) if name in results else Entry(error=found.error, note=found.note)
        for name, found in ready.items()
    }
    failed = "" if any(entry.us for entry in entries.values()) else "no rival could be timed"
    return Row(
        row.network, row.threads, row.model_sha256, failed, demand_of(graph), _rates(subject.target, row.threads),
        entries, options.bench, busy, datetime.now(UTC).isoformat(timespec="seconds"),
        {**facts(), "of the rivals": versions()},
    )  # fmt: skip


def _timed(graph: Graph, subject: Subject, ready: dict[str, Prepared], bench_s: float) -> dict[str, ContenderResult]:
    """Times and checks of all that could be made ready."""
    contenders = [
        Contender(name, RIVALS[name].kind, Path(found.path), _host(RIVALS[name], subject))
        for name, found in ready.items()
        if not found.error
    ]
    if not contenders:
        return {}
    reference = run_reference(graph, subject.inputs)
    results = bench_contenders(
        contenders, subject.inputs, subject.threads, bench_s, target=subject.target,
        expected=[reference[name] for name in graph.outputs], memory_bytes=default_memory(SHARES),
    )  # fmt: skip
    return judged(results, graph, subject.inputs)


def _host(rival: Rival, subject: Subject) -> Host:
    return host_of(rival, subject.threads, subject.folder / "inductor") if rival.foreign else Host()


def _rates(target: Target, threads: int) -> Rates:
    found = probe_machine(target, threads)
    return Rates(found.gflops_n, found.dram_gbs_n) if threads > 1 else Rates(found.gflops_1, found.dram_gbs_1)


def versions() -> str:
    """Of what the rivals' environments hold, as "torch 2.13.0, ..."."""
    found = []
    for environment, packages in PACKAGES.items():
        for package in packages:
            for info in (FOLDER / environment).glob(f"lib/python*/site-packages/{package}-*.dist-info"):
                found.append(f"{package} {info.name.removesuffix('.dist-info').removeprefix(package + '-')}")
    return ", ".join(found)


def stored(out: Path, model: Path, threads: int) -> Row:
    """The row as an earlier run left it, if it was about this very model."""
    sha = sha256(model)
    old = Row.read(_row_path(out, model, threads))
    return old if old is not None and old.model_sha256 == sha else Row(model.stem, threads, sha)


def _rows(out: Path, models: Sequence[Path]) -> list[Row]:
    """Every row of the folder: those of `models` in their order, then those of earlier runs."""
    rows = [row for path in (out / "rows").glob("*.json") if (row := Row.read(path)) is not None]
    place = {path.stem: number for number, path in enumerate(models)}
    return sorted(rows, key=lambda row: (place.get(row.network, len(place)), row.network, row.threads))


def _row_path(out: Path, model: Path, threads: int) -> Path:
    return out / "rows" / f"{model.stem}-{threads}t.json"


def _path(text: str) -> Path:
    return Path(text).resolve()


def _parser() -> argparse.ArgumentParser:
    parser = new_parser(__doc__, out="out/peers", threads="1,2", budget="", bench="2m")
    add = parser.add_argument
    add("models", nargs="+", metavar="MODEL", help=HELP)
    add("--rivals", type=one_of(*RIVALS), default=list(RIVALS), help=f"default: {','.join(RIVALS)}")
    add("--metaschedule-budget", type=duration, default=0.0, help="tune TVM so long for each row (default: not at all)")
    add("--databases", type=_path, default=ROOT / "out" / "networks", help="folder of NAME.db (default: out/networks)")
    add("--generated", type=_path, default=FOLDERS[EXPORTED], help="folder of networks given by name")
    add("--prepare", action="store_true", help="convert, tune and compile, but measure nothing")
    add("--retry", action="store_true", help="make ready again what could not be made ready")
    add("--again", action="store_true", help="measure finished rows again")
    return parser
