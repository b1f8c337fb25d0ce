"""Damaged models, databases, exports, libraries, messages and command lines: `python -m experiments fuzz`.

Each is taken in, or refused with one line that says why. A traceback, a crash or a hang is a finding: it is printed
with the seed that makes it again (`--targets NAME --seed SEED --mutations 1`), and the run ends with exit code 1.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.fuzz.contain import Limits, Outcome, counted, outcomes
from experiments.fuzz.targets import TARGETS, attempts
from experiments.options import new_parser, one_of

BATCH = 500
KINDS = ("accepted", "refused", "refused silently", "traceback", "crash", "hang")


def fuzz(name: str, seed: int, mutations: int, folder: Path, limits: Limits) -> list[Outcome]:
    """Outcomes of the mutations `seed`, `seed` + 1, ... of one target; findings are printed."""
    found: list[Outcome] = []
    while len(found) < mutations:
        count = min(BATCH, mutations - len(found))
        for outcome in outcomes(attempts(name, folder, seed + len(found), count), limits):
            if outcome.finding:
                last = outcome.text.strip().splitlines()[-1] if outcome.text.strip() else ""
                print(f"{name}, seed {seed + len(found)}: {outcome.kind}: {last[:300]}", flush=True)
            found.append(outcome)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 when there are findings."""
    parser = new_parser(__doc__, seed=0)
    parser.add_argument("--mutations", type=int, default=1000, help="of each target")
    parser.add_argument("--targets", type=one_of(*TARGETS), default=list(TARGETS), help=f"some of {', '.join(TARGETS)}")
    parser.add_argument("--cpu", type=float, default=20.0, help="seconds of processor time for one mutation")
    options = parser.parse_args(arguments)
    findings = 0
    with tempfile.TemporaryDirectory(prefix="autofuse-fuzz-") as scratch:
        for name in options.targets:
            folder = Path(scratch) / name
            folder.mkdir()
            os.chdir(folder)
            start = time.monotonic()
            found = fuzz(name, options.seed, options.mutations, folder, Limits(cpu_s=options.cpu))
            counts = counted(found)
            line = ", ".join(f"{counts[kind]} {kind}" for kind in KINDS)
            print(f"{name}: {len(found)} mutations in {time.monotonic() - start:.0f} s: {line}", flush=True)
            findings += sum(outcome.finding for outcome in found)
    return 1 if findings else 0
