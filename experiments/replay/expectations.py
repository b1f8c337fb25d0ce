"""Are the expectations of the search true? They are held to the recorded oracles; nothing is measured.

    python -m experiments replay.expectations [NETWORK ...] [--db FILE]

Four tables: what the n-th schedule of a workload saved, beside the rule; how often the second schedules of a side of a
changed decision that stood behind caught up, by its lag; both where the time before was trusted, and where it was not.
What a changed decision saved of the time of the kernels that it replaces, by its kind, both sides with their best
schedules; and how many kernels and changes a bound by bytes and operations rules out before anything is built.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

import optuna

from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.fusion.evidence import LAUNCH_US
from autofuse.fusion.planner.rewriting import RewritingPlanner
from autofuse.kernels.workload.workload import Workload
from autofuse.learning.features import facts_of
from autofuse.search.plans.changes import Change, us_of
from autofuse.search.plans.plan_search import PlanSearch
from autofuse.search.schedules.evidence import SearchEvidence
from autofuse.search.schedules.expectations import saved_by_schedules
from autofuse.search.schedules.schedule_search import schedule_text
from experiments.options import new_parser
from experiments.replay.policies import ALL
from experiments.replay.recorded import Oracle, add_oracles, read_chosen
from experiments.replay.run import SEED, everything, evidence_of
from experiments.tables import head, line

MOST_SHOWN = 8
"""Schedules of a workload that the first table has lines for."""
LAGS = (1.0, 1.02, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, inf)
"""Bounds of how many times as long as the other side of a decision one takes, by which decisions are counted."""
WINOGRAD = 4.0
"""A convolution by Winograd's algorithm may take so many times fewer products than its definition."""


@dataclass(frozen=True)
class Bounds:
    """Least microseconds of kernels at probed rates. `strict`: the longest of arithmetic, bytes from the nearest cache,
    and weights from the last cache, each for itself; else bytes from the second cache and weights one after the other.
    """

    rates: Mapping[str, float]
    strict: bool

    def us(self, workload: Workload) -> float:
        """Those of one kernel."""
        facts, rates = facts_of(workload), self.rates
        fewer = WINOGRAD if any(one.op_type == "Conv" for one in workload.operators) else 1.0
        arithmetic = facts["contraction_flops"] / fewer / rates["gflops_1"]
        near = (facts["bytes_in"] + facts["bytes_out"]) / rates["l1_gbs_1" if self.strict else "l2_gbs_1"]
        weights = facts["bytes_constant"] / rates["l3_gbs_1"]
        return (max(arithmetic, near, weights) if self.strict else max(arithmetic, near + weights)) / 1e3


def gains_of_schedules(
    oracle: Oracle, known: SearchEvidence, evidence: SearchEvidence
) -> Iterator[tuple[int, float, bool]]:
    """(its number, part of the best time before it that it saved, whether that time is trusted) of each schedule, in
    the order of the product."""
    for plan, _ in known.known_plans():
        evidence.admit(plan)
    for key, search in evidence.searches.items():
        number, sure = 0, True
        while (schedule := search.ask()) is not None:
            answer = oracle.answers.get((key, schedule_text(schedule)))
            us, before_us = answer.stored.median_us if answer is not None else None, search.best_us
            best = search.learn(schedule, us)
            if us is not None:
                number += 1
                if before_us is not None:
                    yield number, max(0.0, 1.0 - us / before_us), sure
            if answer is not None and best:
                sure = answer.stored.trusted is not False


def gains_of_changes(oracle: Oracle, known: SearchEvidence) -> Iterator[tuple[str, float, Change]]:
    """(kind, part of the replaced kernels' time that it saves, the change) of each single changed decision."""
    planner = RewritingPlanner(oracle.graph, known.space.fusion)
    default, *flips = PlanSearch(planner, SEED).flips(ALL)
    for flip in flips:
        change = Change.between(known, default.plan, flip.plan)
        replaced_us = us_of(known, change.gone)
        if replaced_us > 0 and all(known.searches[key].best_us is not None for key in change.come):
            ((_, choice),) = flip.answers.items()
            yield f"{flip.kind}: {choice}", 1.0 - us_of(known, change.come) / replaced_us, change


@dataclass(frozen=True)
class Lag:
    """What stood behind of a changed decision by first schedules: whether its times are `trusted`, how many `times` as
    long as the other side it took, and what its second schedules gained of that side's time."""

    trusted: bool
    times: float
    gained: float


def lags(oracle: Oracle, evidence: SearchEvidence, changes: Sequence[Change]) -> Iterator[Lag]:
    """Of each changed decision; `evidence`: of a search that has asked for everything."""
    for change in changes:
        sides = [_first_two(oracle, evidence, uses) for uses in (change.gone, change.come)]
        known = sorted(side for side in sides if side is not None)
        if len(known) == len(sides) and known[0][0] > 0.0:
            (fast_us, *_), (slow_us, second_us, trusted) = known
            yield Lag(trusted, slow_us / fast_us, max(0.0, 1.0 - second_us / fast_us))


def _first_two(oracle: Oracle, evidence: SearchEvidence, uses: Mapping[str, int]) -> tuple[float, float, bool] | None:
    """Microseconds of kernels with their first schedules and with the better of the first two, and whether the first
    are trusted; None where one has no time."""
    first_us, second_us, trusted = 0.0, 0.0, True
    for key, count in uses.items():
        search = evidence.searches.get(key)
        timed = [(text, us) for text, us in search.tried.items() if us is not None][:2] if search is not None else []
        if not timed:
            return None
        first_us += count * (timed[0][1] + LAUNCH_US)
        second_us += count * (min(us for _, us in timed) + LAUNCH_US)
        trusted = trusted and oracle.answers[key, timed[0][0]].stored.trusted is not False
    return first_us, second_us, trusted


def probed(base: ProfilingDatabase) -> dict[str, float]:
    """The best rate of each kind that any run of a database has probed."""
    found: dict[str, float] = {}
    for row in base.table("runs").records():
        provenance = row["provenance"]
        rates = provenance.get("rates") if isinstance(provenance, Mapping) else None
        for name, value in rates.items() if isinstance(rates, Mapping) else ():
            if isinstance(value, int | float):
                found[name] = max(float(value), found.get(name, 0.0))
    return found


def _schedules_table(gains: Mapping[tuple[int, bool], Sequence[float]]) -> list[str]:
    lines = head(("n-th schedule", "after a trusted time: workloads", "saved, mean", "after another: workloads",
                  "saved, mean", "rule"))  # fmt: skip
    for number in sorted({number for number, _ in gains})[:MOST_SHOWN]:
        cells = [cell for trusted in (True, False) for cell in _counted(gains.get((number, trusted), ()))]
        lines.append(line([str(number), *cells, f"{saved_by_schedules(number - 1, 1):.1%}"]))
    return lines


def _counted(parts: Sequence[float]) -> tuple[str, str]:
    return str(len(parts)), f"{mean(parts):.1%}" if parts else "-"


def _lags_table(found: Sequence[Lag]) -> list[str]:
    lines = head(
        ("times as long as the other side", "times", "decisions", "second schedules win", "gained, of that side")
    )
    for trusted in (True, False):
        for least, most in pairwise(LAGS):
            own = [one for one in found if one.trusted is trusted and least <= one.times < most]
            if own:
                won, gained = mean(one.gained > 0.0 for one in own), mean(one.gained for one in own)
                kind = "trusted" if trusted else "not trusted"
                lines.append(line([f"{least}-{most}", kind, str(len(own)), f"{won:.0%}", f"{gained:.1%}"]))
    return lines


def _changes_table(gains: Mapping[str, Sequence[float]]) -> list[str]:
    lines = head(("change", "count", "saves anything", "saved of what it replaces, mean (losses count as none)"))
    every = [one for parts in gains.values() for one in parts]
    for kind, parts in [*sorted(gains.items()), ("all", every)]:
        won = [max(0.0, part) for part in parts]
        lines.append(line([kind, str(len(parts)), f"{mean(one > 0.02 for one in won):.0%}", f"{mean(won):.1%}"]))
    return lines


@dataclass
class _Ruled:
    """What a bound came to: kernels, those faster than it, changes, those ruled out, and of these the faster ones."""

    kernels: int = 0
    wrong: int = 0
    changes: int = 0
    out: int = 0
    lost: int = 0

    def take(self, bounds: Bounds, known: SearchEvidence, changes: Sequence[Change]) -> None:
        least = {key: bounds.us(search.bound.workload) for key, search in known.searches.items()}
        timed = [(search.best_us, least[key]) for key, search in known.searches.items() if search.best_us is not None]
        self.kernels += len(timed)
        self.wrong += sum(us < bound_us for us, bound_us in timed)
        for change in changes:
            replaced_us, us = us_of(known, change.gone), us_of(known, change.come)
            out = sum(count * least[key] for key, count in change.come.items()) >= replaced_us
            self.changes, self.out, self.lost = self.changes + 1, self.out + out, self.lost + (out and us < replaced_us)


def _bounds_table(ruled: Mapping[bool, _Ruled]) -> list[str]:
    lines = head(("bound", "kernels", "faster than their bound", "changes", "ruled out", "of these faster in truth"))
    for strict, one in ruled.items():
        name = "each limit for itself" if strict else "bytes and weights one after the other"
        counts = (one.kernels, one.wrong, one.changes, one.out, one.lost)
        lines.append(line([name, *map(str, counts)]))
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; 0 when there was an oracle."""
    parser = new_parser(__doc__)
    add_oracles(parser)
    options = parser.parse_args(arguments)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with open_database(options.db, read_only=True) as base:
        oracles = list(read_chosen(base, options))
        rates = probed(base)
    by_number, by_kind = defaultdict[tuple[int, bool], list[float]](list), defaultdict[str, list[float]](list)
    behind: list[Lag] = []
    ruled = {True: _Ruled(), False: _Ruled()}
    for oracle in oracles:
        with TemporaryDirectory() as folder, open_database(Path(folder) / "known.db") as own:
            known = everything(oracle, own)
            evidence = evidence_of(oracle, own)
            for number, part, trusted in gains_of_schedules(oracle, known, evidence):
                by_number[number, trusted].append(part)
            changes = list(gains_of_changes(oracle, known))
            behind += lags(oracle, evidence, [change for *_, change in changes])
            for kind, part, _ in changes:
                by_kind[kind].append(part)
            for strict, one in ruled.items():
                one.take(Bounds(rates, strict), known, [change for *_, change in changes])
    tables = [_schedules_table(by_number), _lags_table(behind), _changes_table(by_kind), _bounds_table(ruled)]
    print("\n\n".join("\n".join(lines) for lines in tables if oracles))
    return 0 if oracles else 1
