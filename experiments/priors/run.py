"""How good the first guesses are: from tuning databases, per kernel family and target. Nothing is measured.

    .venv/bin/python -m experiments priors out/networks/*.db

A workload counts when at least two of its schedules have a time. `--knobs` prints instead, for each value of each knob,
how far the best schedule with it is from the best of all: where another default would serve a family better.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, isnan, log
from pathlib import Path
from statistics import fmean, median
from typing import Any

from experiments import tables
from experiments.options import new_parser
from experiments.priors.tasks import Task, read_tasks
from experiments.records import Table, keep

WITHIN = 1.15
"""The bar of a first candidate: its time over the best found."""
ENOUGH, SHARE = 20, 0.98
"""The bar of a short search: candidates, and the best found over their best."""


@dataclass(frozen=True)
class Row:
    """One family on one target. Shares are of workloads.

    `first`, `typical`, `total`: share within 15 % of the best, median ratio to the best, ratio of the sums of times,
    of the first candidate that has a time. `rule...`: the same of the first guess that today's rules make, of the
    `ruled` workloads for which it was measured; `rules`: ratio of the sums for the best of all their guesses.
    `short`: share where the best of the first 20 reaches 98 %, of the `long` workloads with more candidates.
    `noise`: median ratio of the largest to the least time of equal code, which was measured under several names: a
    best of many candidates is too good by about as much.
    """

    target: str
    threads: int
    family: str
    workloads: int
    candidates: float
    trusted: float
    first: float
    typical: float
    total: float
    ruled: int
    rule: float
    rule_typical: float
    rule_total: float
    rules: float
    long: int
    short: float
    noise: float


def row_of(tasks: Sequence[Task], target: str, threads: int, family: str) -> Row:
    """What the candidates of one family's workloads say."""
    first = [(task.candidates[0].us, task.best_us) for task in tasks]
    ruled = [(task, guess) for task in tasks if (guess := next(iter(task.guesses), None)) is not None]
    rule = [(guess, task.best_us) for task, guess in ruled]
    known = [(min(us for us in task.guesses if us is not None), task.best_us) for task, _ in ruled]
    long = [task for task in tasks if len(task.candidates) > ENOUGH]
    noise = [ratio for task in tasks for ratio in task.noise]
    short = [task.best_us / task.best_of_first(ENOUGH) >= SHARE for task in long]
    return Row(
        target, threads, family, len(tasks), median(len(task.candidates) for task in tasks),
        fmean(candidate.trusted for task in tasks for candidate in task.candidates), _within(first), _typical(first),
        _total(first), len(ruled), _within(rule), _typical(rule), _total(rule), _total(known), len(long),
        fmean(short) if short else float("nan"), median(noise) if noise else float("nan"),
    )  # fmt: skip


Pairs = Sequence[tuple[float, float]]
"""(a candidate's time, the best time) of each workload."""


def _within(pairs: Pairs) -> float:
    return fmean(us <= WITHIN * best for us, best in pairs) if pairs else float("nan")


def _typical(pairs: Pairs) -> float:
    return median(us / best for us, best in pairs) if pairs else float("nan")


def _total(pairs: Pairs) -> float:
    return sum(us for us, _ in pairs) / sum(best for _, best in pairs) if pairs else float("nan")


def table(tasks: Iterable[Task]) -> list[Row]:
    """One row a target, number of threads and family, and one for all families."""
    groups: dict[tuple[str, int, str], list[Task]] = {}
    for task in tasks:
        for family in (task.family, "all"):
            groups.setdefault((task.target.isa, task.threads, family), []).append(task)
    return [row_of(found, *group) for group, found in sorted(groups.items())]


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table."""
    lines = tables.head(
        (
            "target", "threads", "family", "workloads", "candidates", "trusted", "first in 15 %",
            "first / best: median, sum", "rule in 15 % (of)", "rule / best: median, sum", "best rule: sum",
            "best of 20 at 98 % (of)", "equal code",
        )
    )  # fmt: skip
    for row in rows:
        lines.append(
            f"| {row.target} | {row.threads} | {row.family} | {row.workloads} | {row.candidates:.0f} "
            f"| {row.trusted:.0%} | {row.first:.0%} | {row.typical:.2f}, {row.total:.2f} "
            f"| {_text(row.rule, '.0%')} ({row.ruled}) | {_text(row.rule_typical)}, {_text(row.rule_total)} "
            f"| {_text(row.rules)} | {_text(row.short, '.0%')} ({row.long}) | {_text(row.noise)} |"
        )
    return "\n".join(lines) + "\n"


def _text(value: float, form: str = ".2f") -> str:
    """A figure, or a dash where there was nothing to count."""
    return "-" if isnan(value) else format(value, form)


def knob_lines(tasks: Iterable[Task]) -> list[str]:
    """For each family, knob and value: workloads tried with it, and the mean loss of the best of them."""
    losses: dict[tuple[str, str, str], list[float]] = {}
    for task in tasks:
        best: dict[tuple[str, str], float] = {}
        for candidate in task.candidates:
            here = {name: candidate.schedule.get(name, values[0]) for name, values in task.knobs.items()}
            for name, value in {**here, **_tile(here)}.items():
                place = name, str(value)
                best[place] = min(candidate.us, best.get(place, candidate.us))
        for (name, value), us in best.items():
            losses.setdefault((f"{task.target.isa} {task.family}", name, value), []).append(log(us / task.best_us))
    lines = []
    for (family, name, value), found in sorted(losses.items(), key=lambda item: (*item[0][:2], fmean(item[1]))):
        wins = sum(loss < log(1.02) for loss in found)
        lines.append(f"{family:28} {name:28} {value:12} {len(found):4} workloads, {exp(fmean(found)):.3f}, wins {wins}")
    return lines


def _tile(schedule: dict[str, int | str]) -> dict[str, str]:
    """Both sides of the register tile as one choice."""
    sides = [schedule.get(f"contraction.{side}") for side in ("vectors", "pixels")]
    return {"tile": "x".join(map(str, sides))} if None not in sides else {}


def _row(**cells: Any) -> Row:
    """A row as it was kept: what JSON has no number for was nothing to count."""
    kept: dict[str, Any] = {name: float("nan") if value is None else value for name, value in cells.items()}
    return Row(**kept)


TABLES = (Table("priors", _row, ("target", "threads", "family"), markdown),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table; 0 when there was something to compare."""
    parser = new_parser("First guesses against the best found, from tuning databases.", out="out/priors")
    parser.add_argument("databases", nargs="+", type=Path)
    parser.add_argument("--trusted", action="store_true", help="leave out times that were not trusted")
    parser.add_argument("--knobs", action="store_true", help="the loss of each value of each knob instead")
    options = parser.parse_args(arguments)
    tasks = list(read_tasks(options.databases, options.trusted))
    if options.knobs:
        print("\n".join(knob_lines(tasks)))
        return 0 if tasks else 1
    rows = table(tasks)
    text = markdown(rows)
    tables.write(options.out, rows, text)
    keep(TABLES[0], rows)
    print(text)
    return 0 if rows else 1
