"""A recorded oracle: every answer that was measured for a network in one setting, read from a profiling database."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median

from autofuse.database.ask.training import networks_of_workloads
from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.database.records import FAILURES, MeasuredSchedule
from autofuse.fusion.plan import FusionPlan
from autofuse.graph.key import graph_key
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from experiments.catalogue import WRITTEN
from experiments.model_files import FOLDERS
from experiments.profitability import networks
from experiments.profitability.cases import Where, settings_of, stored_plans

LONGEST_S = 10.0
"""More seconds than this between two answers were no measuring."""

Asked = tuple[str, str]
"""A workload's key and a schedule's text."""


@dataclass(frozen=True)
class Answer:
    """What was measured of one candidate: its verdict over all its measurements, and the seconds that it took."""

    stored: MeasuredSchedule
    cost_s: float


@dataclass(frozen=True, eq=False)
class Oracle:
    """All that is known of one network in one setting. `plans`: those that were recorded for its graph."""

    network: str
    graph: Graph
    where: Where
    plans: tuple[FusionPlan, ...]
    answers: Mapping[Asked, Answer]

    @property
    def cost_s(self) -> float:
        """Seconds that all answers took together."""
        return sum(answer.cost_s for answer in self.answers.values())


def add_oracles(parser: ArgumentParser) -> None:
    """The arguments that say which oracles, and where they and their networks lie: `networks`, `db` and `models`."""
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="which (default: all that were recorded)")
    parser.add_argument("--db", type=Path, default=Path("out/oracle/times.db"), help="what was recorded")
    parser.add_argument("--models", type=Path, default=FOLDERS[WRITTEN], help="folder of the ONNX files")
    parser.add_argument("--trusted", action="store_true", help="leave out the times that something disturbed")


def chosen_oracles(options: Namespace) -> list[Oracle]:
    """The oracles that the arguments of `add_oracles` choose."""
    with open_database(options.db, read_only=True) as base:
        return list(read_chosen(base, options))


def read_chosen(base: ProfilingDatabase, options: Namespace) -> Iterator[Oracle]:
    """The same of an open database."""
    found = read_oracles(base, options.models, options.networks)
    return map(undisturbed, found) if options.trusted else found


def undisturbed(oracle: Oracle) -> Oracle:
    """An oracle without the times that are not trusted, but for kernels that have no other: half of those that were
    recorded beside other work are more than twice too long, and what looks better is often only luckier."""
    timed = {asked: answer for asked, answer in oracle.answers.items() if answer.stored.median_us is not None}
    sound = {key for (key, _), answer in timed.items() if answer.stored.trusted}
    left_out = {asked for asked, answer in timed.items() if asked[0] in sound and not answer.stored.trusted}
    return replace(oracle, answers={asked: one for asked, one in oracle.answers.items() if asked not in left_out})


def read_oracles(base: ProfilingDatabase, models: Path, only: Collection[str] = ()) -> Iterator[Oracle]:
    """An oracle for each small network and setting that the database has a finished recording of. `only`: of these
    networks (none: of all)."""
    with base.reading() as sql:
        of_network = networks_of_workloads(sql)
    costs, plans, finished = _costs(base), stored_plans(base), _finished(base)
    for network, places in settings_of(base).items():
        there = [where for where in places if (network, where.setting.device) in finished]
        if not there or (only and network not in only):
            continue
        graph = load(networks.find(network, models), {})
        keys = [key for key, names in of_network.items() if network in names]
        for where in there:
            answers = dict(_answers(base, where, keys, costs))
            if answers:
                yield Oracle(network, graph, where, tuple(plans.get(graph_key(graph), ())), answers)


def _answers(
    base: ProfilingDatabase, where: Where, keys: list[str], costs: Mapping[int, float]
) -> Iterator[tuple[Asked, Answer]]:
    """The newest verdict on each candidate: with a time, or with a failure that says something about it."""
    usual = median(costs.values()) if costs else 0.0
    for key in keys:
        for stored in base.measured_schedules(where.setting, key):
            if stored.median_us is not None or stored.state in FAILURES:
                text = json.dumps(json.loads(stored.schedule), sort_keys=True, separators=(",", ":"))
                yield (key, text), Answer(stored, costs.get(stored.candidate_id, usual))


def _costs(base: ProfilingDatabase) -> dict[int, float]:
    """Seconds of each candidate's first measurement: since the answer before it in the same run."""
    times: dict[object, list[tuple[datetime, int]]] = {}
    for row in base.table("measurements").records():
        times.setdefault(row["run_id"], []).append((_moment(row["created_at"]), int(str(row["candidate_id"]))))
    found: dict[int, float] = {}
    for moments in times.values():
        for (before, _), (after, candidate) in pairwise(sorted(moments)):
            seconds = (after - before).total_seconds()
            if seconds <= LONGEST_S:
                found.setdefault(candidate, seconds)
    return found


def _finished(base: ProfilingDatabase) -> set[tuple[str, str]]:
    """Networks whose recording came to its end, each with the device's fingerprint."""
    runs = base.table("runs").records()
    return {(str(row["model_name"]), str(row["device_fingerprint"])) for row in runs if row["state"] == "finished"}


def _moment(value: object) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
