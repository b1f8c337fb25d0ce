"""ONNX's node cases, each compiled with a fresh database, run, and compared with what the case expects.

.venv/bin/python -m experiments node_suite            # goes on where an earlier run ended
.venv/bin/python -m experiments node_suite --only '^test_roialign'
.venv/bin/python -m experiments node_suite --constants --out out/node_suite_constants
.venv/bin/python -m experiments node_suite --driver ort --sample 500 --out out/node_suite_provider
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from experiments.children import each_result
from experiments.node_suite.cases import NodeCase, node_cases
from experiments.node_suite.engines import CONSTANTS, ENGINES, PROVIDER, Row, deciding_inputs, run_case
from experiments.node_suite.table import BOUND, DRIVEN, SUITE, bound_rows, driven_rows, verdicts
from experiments.options import new_parser
from experiments.records import Table, keep
from experiments.tables import write_rows

TABLES = (SUITE, BOUND, DRIVEN)
CASE_SECONDS = 60.0
"""A case that takes longer is a time-out."""


def run_cases(engine: str, cases: Sequence[NodeCase], take: Callable[[Row], None], processes: int = 1) -> None:
    """Hands the row of each case to `take`."""

    def lost(case: NodeCase, reason: str) -> Row:
        return Row(case.name, engine, reason.partition(":")[0], reason)

    each_result(partial(run_case, engine), cases, CASE_SECONDS, lost, take, processes)


def read_rows(path: Path) -> list[Row]:
    """The rows of an earlier run; none where there is no such file."""
    if not path.exists():
        return []
    return [Row(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines() if line]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what no row exists for yet; 0 when nothing is wrong, crashes, hangs or raises."""
    options = _parser().parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "rows.jsonl"
    old = read_rows(path)
    if options.only:
        old = [row for row in old if not re.search(options.only, row.case)]
        path.write_text("".join(json.dumps(row.record()) + "\n" for row in old), encoding="utf-8")
    done = {(row.engine, row.case) for row in old}
    cases = _cases(options)
    for engine in _engines(options):
        waiting = [case for case in cases if (engine, case.name) not in done]
        print(f"{engine}: {len(waiting)} cases", flush=True)
        with path.open("a", encoding="utf-8", buffering=1) as file:

            def take(row: Row, file: TextIO = file) -> None:
                file.write(json.dumps(row.record()) + "\n")
                if row.state not in ("right", "refused"):
                    print(f"{row.engine} {row.case}: {row.state} {row.reason}", flush=True)

            run_cases(engine, waiting, take, options.processes)
    return _told(options, read_rows(path))


def _cases(options: argparse.Namespace) -> list[NodeCase]:
    """The cases that are asked for; a sample is the same for the same seed."""
    cases = [case for case in node_cases() if re.search(options.only or "", case.name)]
    if options.constants:
        cases = [case for case in cases if deciding_inputs(case)]
    if options.sample is not None and options.sample < len(cases):
        chosen = set(random.Random(options.seed).sample(range(len(cases)), options.sample))
        cases = [case for place, case in enumerate(cases) if place in chosen]
    return cases


def _engines(options: argparse.Namespace) -> list[str]:
    if options.constants:
        return [CONSTANTS]
    return [PROVIDER, "onnxruntime"] if options.driver == "ort" else list(ENGINES)


def _told(options: argparse.Namespace, rows: Sequence[Row]) -> int:
    """Keep and show the table of a run; 1 where a case is neither right nor refused."""
    if options.constants:
        return _shown(options, BOUND, bound_rows(rows))
    if options.driver == "ort":
        return _shown(options, DRIVEN, driven_rows(rows))
    return _shown(options, SUITE, verdicts(rows))


def _shown(options: argparse.Namespace, table: Table[Any], found: Sequence[Any]) -> int:
    if not options.only:
        keep(table, found)
    print(write_rows(options.out, found, table.text(found)))
    return int(any(case.state not in ("right", "refused") for case in found))


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("ONNX's node cases: right, wrong, refused, crashed.", out="out/node_suite", processes=1, seed=0)
    parser.add_argument("--constants", action="store_true", help="give inputs that decide shapes as constants")
    parser.add_argument("--driver", choices=("session", "ort"), default="session", help="who runs what is compiled")
    parser.add_argument("--only", metavar="REGEX", help="run the cases of these names again")
    parser.add_argument("--sample", type=int, metavar="N", help="so many cases, drawn by the seed (default: all)")
    return parser
