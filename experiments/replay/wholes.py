"""Do races of whole networks say what sums of kernels do not? They are held to recorded ones; nothing is measured.

    python -m experiments replay.wholes [NETWORK ...] [--db FILE]

Each plan of a recorded race is left out in turn. What the others of its race teach (`autofuse.search.schedules.
beyond_sums`) foretells its ratio to the default plan; the table has how far that was off, beside the ratio of the sums.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from autofuse.database.ask.times import timed_plans
from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.errors import AutofuseError
from autofuse.fusion.plan import FusionPlan
from autofuse.graph.key import graph_key
from autofuse.search.finals.learning import DEVIATIONS
from autofuse.search.schedules.beyond_sums import BeyondSums, Whole
from autofuse.search.schedules.evidence import SearchEvidence
from autofuse.values.names import UNTUNED
from autofuse.values.ratios import Timed, compare
from experiments.options import new_parser
from experiments.replay.recorded import Oracle, add_oracles, read_chosen
from experiments.replay.run import everything
from experiments.tables import head, line

FIRST = "default"
"""The plan that the others of a race are compared with."""


@dataclass(frozen=True)
class Foretold:
    """A plan's ratio to the default one: measured whole (`error`: by what part that may be off), by the sums of their
    kernels, and by those as the other plans of the race correct them."""

    network: str
    name: str
    measured: float
    error: float
    by_sums: float
    corrected: float


def foretold(network: str, known: SearchEvidence, race: Mapping[str, tuple[FusionPlan, Timed]]) -> Iterator[Foretold]:
    """Each plan of a race but the first, from what the others say."""
    plans = {name: plan for name, (plan, _) in race.items()}
    sums = {name: one for name, plan in plans.items() if (one := known.summed(plan)) is not None}
    if FIRST not in sums:
        return
    kinds = {key: kind for plan in plans.values() for key, kind in known.kinds(plan).items()}
    wholes = {}
    for name in sums:
        ratio = compare(race[name][1], race[FIRST][1])
        if name != FIRST and ratio.value is not None and ratio.lo is not None and ratio.hi is not None:
            wholes[name] = Whole(sums[name], ratio.value, (ratio.hi - ratio.lo) / (2 * DEVIATIONS * ratio.value))
    for name, whole in wholes.items():
        beyond = BeyondSums()
        others = [one for key, one in wholes.items() if key != name]
        if not others:
            continue
        beyond.learn(sums[FIRST], others, kinds)
        own, first = (beyond.corrected_us(one, kinds) for one in (whole.summed, sums[FIRST]))
        yield Foretold(
            network, name, whole.over_first, whole.error, whole.summed.us / sums[FIRST].us, own / first
        )  # fmt: skip


def races(base: ProfilingDatabase, oracle: Oracle, known: SearchEvidence) -> list[dict[str, tuple[FusionPlan, Timed]]]:
    """The recorded races of an oracle's network, each plan by its name; those with the rules' schedules left out."""
    plans = {plan.key: plan for plan in oracle.plans}
    rows = [row for row in base.table("plan_measurements").records() if row["graph_key"] == graph_key(oracle.graph)]
    times = timed_plans(rows)
    found: dict[object, dict[str, tuple[FusionPlan, Timed]]] = defaultdict(dict)
    for row in rows:
        plan, time = plans.get(str(row["plan_key"])), times.get(int(str(row["plan_measurement_id"])))
        if plan is None or time is None or row["name"] == UNTUNED or not _fits(known, plan):
            continue
        found[row["series"]][str(row["name"])] = plan, time
    return list(found.values())


def _fits(known: SearchEvidence, plan: FusionPlan) -> bool:
    try:
        known.admit(plan)
    except AutofuseError:
        return False  # a plan of an earlier version of the graph
    return True


def table(found: Sequence[Foretold]) -> list[str]:
    """How far off the ratios were: each network's, and all together."""
    lines = head(("network", "plans", "error of the measured ratio", "sums are off by", "corrected sums are off by"))
    by_network: dict[str, list[Foretold]] = defaultdict(list)
    for one in found:
        by_network[one.network].append(one)
    for network, parts in [*by_network.items(), ("all", list(found))]:
        errors = [one.error for one in parts]
        by_sums, corrected = [_off(one.by_sums, one) for one in parts], [_off(one.corrected, one) for one in parts]
        lines.append(line([network, str(len(parts)), *(f"{median(off):.1%}" for off in (errors, by_sums, corrected))]))
    return lines


def _off(ratio: float, one: Foretold) -> float:
    return abs(log(ratio / one.measured))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 0 when there was a race."""
    parser = new_parser(__doc__)
    add_oracles(parser)
    options = parser.parse_args(arguments)
    found: list[Foretold] = []
    with open_database(options.db, read_only=True) as base:
        for oracle in read_chosen(base, options):
            with TemporaryDirectory() as folder, open_database(Path(folder) / "known.db") as own:
                known = everything(oracle, own)
                for race in races(base, oracle, known):
                    found += foretold(oracle.network, known, race)
    print("\n".join(table(found)) if found else "no recorded race has ratios of three plans")
    return 0 if found else 1
