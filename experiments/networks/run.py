"""The measured table: each network tuned from an empty database, compiled, and timed against its rivals.

One network after the other, each in a child process, so that what goes wrong is a row and not the end. Started again
with the same folder, it keeps the rows that are finished, goes on with the one that was interrupted, and tries again
what failed. Leave the machine alone meanwhile.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import psutil

from autofuse.device.host import HostCpu, probe_host
from experiments.catalogue import TABLE, WRITTEN
from experiments.index import ROOT
from experiments.model_files import HELP, asked_for
from experiments.networks import table
from experiments.networks.row import Job, Row, sha256, title
from experiments.options import new_parser
from experiments.records import keep

MODULE = "experiments.networks.one_network"
TABLES = (table.TABLE,)
SLACK_S = 1800.0
"""What a row may take beyond its budgets: building, loading TVM's slow rival, checking."""
BUSY_PERCENT = 15.0


def main(arguments: Sequence[str] | None = None) -> int:
    """All rows in turn; 0 when all of them are finished."""
    parser = _parser()
    options = parser.parse_args(arguments)
    options.out = out = options.out.resolve()
    models = asked_for(parser, options.models, WRITTEN, TABLE)
    finished = True
    for model in models:
        for threads in options.threads:
            row = stored(out, model, threads)
            if row.finished and not options.only_bench:
                print(f"{title(row.network, row.threads)}: finished on {row.measured_at}, kept", flush=True)
                continue
            row = _measure(options, model, threads, row)
            print(f"{title(row.network, row.threads)}: {row.error or 'finished'}", flush=True)
            finished &= row.finished
            table.write(_rows(out, models), out)
            if row.finished:
                keep(TABLES[0], [row])
    rows = _rows(out, models)
    table.write(rows, out)
    print(f"\n{table.markdown(rows)}\nThis table: {out / 'results.md'}, its figures: {out / 'results.csv'}")
    return 0 if finished else 1


def _rows(out: Path, models: Sequence[Path]) -> list[Row]:
    """Every row of the folder: those of `models` in their order, then those of earlier runs."""
    rows = [row for path in (out / "rows").glob("*.json") if (row := Row.read(path)) is not None]
    place = {path.stem: number for number, path in enumerate(models)}
    return sorted(rows, key=lambda row: (place.get(row.network, len(place)), row.network, row.threads))


def _measure(options: argparse.Namespace, model: Path, threads: int, row: Row) -> Row:
    """Fill one row, in a child process."""
    busy = psutil.cpu_percent(interval=1.0)
    if busy > BUSY_PERCENT:
        print(f"warning: {busy:.0f} % of the machine is busy with something else; its times will not be trusted")
    out: Path = options.out
    path, database = _row_path(out, model, threads), out / f"{model.stem}.db"
    if not database.exists():
        row = Row(row.network, row.threads, row.model_sha256)
    # What an earlier run measured does not count any more; what it tuned does.
    replace(row, error="", autofuse_us=None, max_rel_error=None, rivals={}, busy_before=busy).write(path)
    name = f"{model.stem}-{threads}t"
    job = Job(
        str(model), threads, str(database), str(out / f"{name}.so"), str(out / f"{name}-unfused.so"), str(path),
        options.budget, options.bench, options.trials, options.only_bench,
    )  # fmt: skip
    doing = "measuring again" if options.only_bench else "tuning, compiling, measuring"
    print(f"\n{title(row.network, row.threads)}: {doing}", flush=True)
    problem = _child(job, options.budget * (not options.only_bench) + 2 * options.bench + SLACK_S)
    filled = Row.read(path)
    assert filled is not None, "the parent wrote it, and rows are replaced whole"
    if problem and not filled.error:
        filled = replace(filled, error=problem).write(path)
    return filled


def _child(job: Job, limit_s: float) -> str:
    """Run one job, with its output shown; what went wrong, or ""."""
    process = subprocess.Popen(
        [sys.executable, "-m", MODULE],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
        start_new_session=True,  # Ctrl-C reaches it through us: once, and not its own children
    )  # fmt: skip
    assert process.stdin and process.stdout
    late = threading.Event()

    def stop() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(limit_s, stop)
    timer.start()
    last: deque[str] = deque(maxlen=1)
    try:
        process.stdin.write(json.dumps(asdict(job)))
        process.stdin.close()
        for line in process.stdout:
            print(f"  {line.rstrip()}", flush=True)
            last.extend([line.strip()] if line.strip() else [])
        code = process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)  # it closes its run, so that the search can go on from there
        process.wait()
        raise
    finally:
        timer.cancel()
    if late.is_set():
        return f"no end after {limit_s:.0f} s"
    if code < 0:
        return f"died of {signal.Signals(-code).name}"
    return f"exit code {code}: {last[0] if last else 'no message'}" if code else ""


def stored(out: Path, model: Path, threads: int) -> Row:
    """The row as an earlier run left it, if it was about this very model."""
    sha = sha256(model)
    old = Row.read(_row_path(out, model, threads))
    return old if old is not None and old.model_sha256 == sha else Row(model.stem, threads, sha)


def _row_path(out: Path, model: Path, threads: int) -> Path:
    return out / "rows" / f"{model.stem}-{threads}t.json"


def _parser() -> argparse.ArgumentParser:
    cores = probe_host(HostCpu("")).threads
    parser = new_parser(__doc__, out=ROOT / "out" / "networks", threads=f"1,{cores}", budget="10m", bench="2m")
    parser.add_argument("models", nargs="+", metavar="MODEL", help=f"{HELP} ({', '.join(TABLE)})")
    parser.add_argument("--trials", type=int, help="stop tuning after so many candidates")
    parser.add_argument("--only-bench", action="store_true", help="measure again, from the databases as they are")
    return parser
