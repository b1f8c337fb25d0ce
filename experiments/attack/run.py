"""A thousand attempts on the product, as its users and those who mean it harm would make them.

    python -m experiments attack --seed 1 --attempts 1000

An attempt is made of its axis and seed alone. It *kept its word* (did what it was asked, and changed nothing else), or
was *refused* with one message; everything else is a finding, printed with the seed that makes it again
(`--axes NAME --seed SEED --attempts 1`), and the run ends with exit code 1.
"""

from __future__ import annotations

import os
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

import autofuse  # noqa: F401  before ONNX Runtime: it switches telemetry off
from experiments.attack.stage import prepare
from experiments.fuzz.contain import Attempt, Limits, Outcome, outcomes
from experiments.options import new_parser, one_of
from experiments.records import Table, keep
from experiments.tables import head, line

SHARES = {
    "outputs": 180, "arguments": 220, "databases": 140, "libraries": 100, "hybrids": 100, "sessions": 90, "models": 100,
    "kills": 30, "serving": 40,
}  # fmt: skip
"""Attempts of each axis in a thousand; each axis is a module with `attempt(folder, seed)`."""


@dataclass(frozen=True)
class Row:
    """What became of the attempts of one axis, seeds `seed`, `seed` + 1, ..."""

    axis: str
    seed: int
    attempts: int
    kept: int
    refused: int
    findings: int


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table, with their sum."""
    lines = head(("axis", "seeds from", "attempts", "kept its word", "refused", "finding"))
    lines += [line([one.axis, one.seed, one.attempts, one.kept, one.refused, one.findings]) for one in rows]
    sums = [sum(getattr(one, name) for one in rows) for name in ("attempts", "kept", "refused", "findings")]
    return "\n".join([*lines, line(["all", "", *sums])]) + "\n"


TABLES = (Table("attack", Row, ("axis",), markdown, lambda row: list(SHARES).index(row.axis)),)
LIMITS = Limits(cpu_s=40.0, memory_bytes=3 << 30)
KEPT, REFUSED, FINDING = "kept its word", "refused", "finding"


def attempts(axis: str, folder: Path, seed: int, count: int) -> list[Attempt]:
    """Attempts of seeds `seed`, `seed` + 1, ... of one axis."""
    attempt: Callable[[Path, int], str] = import_module(f"experiments.attack.{axis}").attempt
    return [partial(_quietly, attempt, folder, seed + number) for number in range(count)]


def _quietly(attempt: Callable[[Path, int], str], folder: Path, seed: int) -> None:
    attempt(folder, seed)


def prepared(folder: Path, *, tuned: bool = True) -> Path:
    """`folder` with its stage."""
    apart("the stage cannot be prepared", lambda: prepare(folder, tuned=tuned))
    return folder


def apart(problem: str, work: Callable[[], object]) -> None:
    """Does what loads TVM in a process of its own: what is forked later must find no threads."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 told, and then the process ends
            traceback.print_exc()
        finally:
            os._exit(code)
    if os.waitpid(child, 0)[1]:
        raise RuntimeError(f"attack: {problem}")


def judged(outcome: Outcome) -> str:
    """A word for the table."""
    return FINDING if outcome.finding else REFUSED if outcome.kind == "refused" else KEPT


def attack(axis: str, seed: int, count: int, folder: Path) -> list[Outcome]:
    """Outcomes of one axis; findings are printed."""
    found: list[Outcome] = []
    for outcome in outcomes(attempts(axis, folder, seed, count), LIMITS):
        if outcome.finding:
            last = outcome.text.strip().splitlines()[-1] if outcome.text.strip() else ""
            print(f"{axis}, seed {seed + len(found)}: {outcome.kind}: {last[:900]}", flush=True)
        found.append(outcome)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 when there are findings."""
    parser = new_parser(__doc__, seed=1)
    parser.add_argument("--attempts", type=int, default=1000, help="of all axes together")
    parser.add_argument("--axes", type=one_of(*SHARES), default=list(SHARES), help=f"some of {', '.join(SHARES)}")
    parser.add_argument("--stage", type=Path, help="keep the stage there; a temporary one when left out")
    options = parser.parse_args(arguments)
    axes = options.axes
    whole = sum(SHARES[axis] for axis in axes)
    findings = 0
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="autofuse-attack-") as scratch:
        folder = prepared((options.stage or Path(scratch)).resolve())
        for axis in axes:
            start = time.monotonic()
            found = attack(axis, options.seed, max(1, round(options.attempts * SHARES[axis] / whole)), folder)
            counts = Counter(map(judged, found))
            said = ", ".join(f"{counts[kind]} {kind}" for kind in (KEPT, REFUSED, FINDING))
            print(f"{axis}: {len(found)} attempts in {time.monotonic() - start:.0f} s: {said}", flush=True)
            rows.append(Row(axis, options.seed, len(found), *(counts[kind] for kind in (KEPT, REFUSED, FINDING))))
            apart("the result cannot be kept", partial(keep, TABLES[0], rows))
            findings += counts[FINDING]
    return 1 if findings else 0
