"""Does `tune` end in time? Real processes, from their start to their end, against their budget + 10 % + 10 s.

    .venv/bin/python -m experiments budget_kept resnet50 gpt2 --budgets 60s,90s --cores 1,2 [--job]

Each tuning starts from an empty database, held to so many of the machine's cores (its children, too) and with as many
threads. With `--job` one tuning takes all the models. What was found is not judged here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from autofuse.values.arguments import parse_duration
from experiments import tables
from experiments.catalogue import TABLE, WRITTEN
from experiments.index import ROOT
from experiments.model_files import HELP, asked_for
from experiments.options import counts, durations, new_parser
from experiments.records import Table, keep

SHARE, SECONDS = 1.10, 10.0
"""What a tuning may take: so many times its budget, and so many seconds."""
ENDED = (0, 5)
"""Exit codes of a tuning that came to its end: well, or with times that are not trusted."""
HANGS = 4.0
"""A tuning that takes so many times its limit is killed."""


@dataclass(frozen=True)
class Row:
    """One tuning of `models` with `cores` cores and threads: it took `elapsed_s`, and might have taken `limit_s`.

    `measured`: candidates; None where the tuning did not say.
    """

    models: str
    cores: int
    budget: str
    elapsed_s: float
    limit_s: float
    measured: int | None = None
    problem: str = ""

    @property
    def kept(self) -> bool:
        """Whether it ended in time."""
        return not self.problem and self.elapsed_s <= self.limit_s


def limit(budget_s: float) -> float:
    """Seconds that a tuning with this budget may take."""
    return SHARE * budget_s + SECONDS


def measure(models: Sequence[Path], cores: int, budget: str) -> Row:
    """One tuning, timed."""
    name, most = " + ".join(model.stem for model in models), limit(parse_duration(budget))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-m", "autofuse", "tune", *map(str, models), "--db", f"{folder}/tuned.db"]
        flags = ["--budget", budget, "--threads", str(cores), "--format", "json"]
        started = time.monotonic()
        process = psutil.Popen([*command, *flags], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process.cpu_affinity((psutil.Process().cpu_affinity() or [])[:cores])
        try:
            out, errors = process.communicate(timeout=HANGS * most)
        except subprocess.TimeoutExpired:
            _kill(process)
            return Row(name, cores, budget, time.monotonic() - started, most, problem="did not end, and was killed")
        elapsed = time.monotonic() - started
    if process.returncode not in ENDED:
        said = (errors.strip() or out.strip()).splitlines()[-1:]
        return Row(name, cores, budget, elapsed, most, problem=f"exit code {process.returncode}: {''.join(said)}")
    return Row(name, cores, budget, elapsed, most, candidates(out))


def candidates(text: str) -> int | None:
    """How many were measured, as the tuning's JSON says: of one model, or the sum of a job's tasks."""
    try:
        body: dict[str, Any] = json.loads(text)
        return int(body["measured"]) if "measured" in body else sum(int(task["measured"]) for task in body["tasks"])
    except (ValueError, KeyError, TypeError):
        return None


def _kill(process: psutil.Popen) -> None:
    for one in (*process.children(recursive=True), process):
        one.kill()
    process.wait()


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table."""
    lines = tables.head(("network", "cores", "budget", "took, s", "allowed, s", "candidates", "kept"))
    for row in rows:
        kept = row.problem or ("yes" if row.kept else "NO")
        measured = "" if row.measured is None else row.measured
        cells = [f"{row.elapsed_s:.0f}", f"{row.limit_s:.0f}", measured, kept]
        lines.append(tables.line([row.models, row.cores, row.budget, *cells]))
    return "\n".join(lines) + "\n"


TABLES = (Table("budget_kept", Row, ("models", "cores", "budget"), markdown),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune with every budget and number of cores; 1 when one took too long or failed."""
    available = len(psutil.Process().cpu_affinity() or [0])
    parser = new_parser(__doc__, out="out/budget_kept")
    parser.add_argument("models", nargs="+", metavar="MODEL", help=HELP)
    parser.add_argument("--budgets", type=durations, default=["60s", "90s"], help="default: 60s,90s")
    parser.add_argument("--cores", type=counts, default=[1], metavar="N,N", help="numbers of cores (default: 1)")
    parser.add_argument("--job", action="store_true", help="one tuning of all the models, with a budget for all")
    options = parser.parse_args(arguments)
    if max(options.cores) > available:
        parser.error(f"--cores {max(options.cores)}: this process may use {available}")
    files = asked_for(parser, options.models, WRITTEN, TABLE)
    rows: list[Row] = []
    for models in [files] if options.job else [[file] for file in files]:
        for cores in options.cores:
            for budget in options.budgets:
                rows.append(measure(models, cores, budget))
                keep(TABLES[0], rows[-1:])
                print(markdown(rows[-1:]).splitlines()[-1], flush=True)
    tables.write(options.out, rows, markdown(rows))
    return int(not all(row.kept for row in rows))
