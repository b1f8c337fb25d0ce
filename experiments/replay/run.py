"""How many measurements a search needs, replayed on recorded oracles: without noise, and without a machine.

    python -m experiments replay [NETWORK ...] [--db FILE]

`--db`: what `python -m experiments oracle` recorded, or `autofuse db import` of the shipped export. Each policy
searches each network from an empty database until the best plan that it knows is within 2 % of the best that the oracle
knows. The model of the guided policy was trained on the other networks of the oracles; of those in another database
with `--train`, such as one of another kind of CPU.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory

import optuna

from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.database.records import RunStart
from autofuse.environment.environment import Environment, environment_of
from autofuse.environment.space import load_space
from autofuse.errors import AutofuseError
from autofuse.fusion.planner.rewriting import RewritingPlanner
from autofuse.graph.key import graph_key
from autofuse.kernels.schedule.knobs import declared_names
from autofuse.learning.advice import Adviser, PlanAdviser
from autofuse.learning.stored import load_model
from autofuse.search.budget.budget import Budget
from autofuse.search.composition.composer import compose_measured
from autofuse.search.lab.lab import Lab
from autofuse.search.phases.questions import Search
from autofuse.search.plans.guide import Guide
from autofuse.search.plans.plan_search import PlanSearch
from autofuse.search.schedules.evidence import SearchEvidence
from autofuse.search.standing.standing import Standing
from experiments.options import new_parser
from experiments.oracle.run import SPACE
from experiments.profitability.held_out import models_without
from experiments.records import keep
from experiments.replay.device import NoReference, OracleRunner
from experiments.replay.floor import floor
from experiments.replay.policies import ALL, POLICIES, Policy
from experiments.replay.recorded import Oracle, add_oracles, chosen_oracles
from experiments.replay.table import FLOOR, TABLE, Row, markdown
from experiments.tables import write

SEED = 0
CLOSE = 0.98
TABLES = (TABLE,)


@dataclass
class Watch:
    """Looks at a search after each answer. `reached`: (asked, seconds, strangers) when it came close, else None."""

    search: Search
    runner: OracleRunner
    aim_us: float
    reached: tuple[int, float, int] | None = None

    def __call__(self, _label: str) -> None:
        self._give_up()
        if self.reached is None and known_us(self.search.evidence) * CLOSE <= self.aim_us:
            strangers = len(self.runner.strangers)
            self.reached = self.runner.answered + strangers, self.runner.seconds, strangers

    def _give_up(self) -> None:
        """A group of which nothing was recorded is asked for once: on a machine its first answer would be a time."""
        for key, _ in self.runner.strangers:
            search = self.search.evidence.searches.get(key)
            if search is not None and key not in self.runner.workloads and not search.complete:
                search.pending, search.suggested, search.limit = [], [], len(search.tried)

    def close(self) -> bool:
        """Whether it came close."""
        return self.reached is not None


def known_us(evidence: SearchEvidence) -> float:
    """Sum of the kernels of the best plan whose every kernel has a time."""
    times = (evidence.composed_us(plan) for plan, _ in evidence.known_plans())
    return min((us for us in times if us is not None), default=float("inf"))


def best_us(oracle: Oracle, base: ProfilingDatabase) -> float:
    """The best that the oracle knows: of all recorded plans, and of what composes from all groups, exactly."""
    return known_us(everything(oracle, base))


def everything(oracle: Oracle, base: ProfilingDatabase) -> SearchEvidence:
    """What a search knows that was told every answer of an oracle: its plans, those of every single changed decision,
    and the one that composes best."""
    evidence = evidence_of(oracle, base)
    flips = PlanSearch(RewritingPlanner(oracle.graph, evidence.space.fusion), SEED).flips(ALL)
    for plan in (*oracle.plans, *(flip.plan for flip in flips)):
        try:
            evidence.admit(plan)
        except AutofuseError:
            continue  # a plan of an earlier version of the graph
    for (key, text), answer in oracle.answers.items():
        if key in evidence.searches and answer.stored.median_us is not None:
            evidence.searches[key].learn(json.loads(text), answer.stored.median_us)
    compose_measured(evidence, None, Budget())
    return evidence


def evidence_of(oracle: Oracle, base: ProfilingDatabase) -> SearchEvidence:
    """What a search knows of the network at its start: nothing."""
    environment = _environment(oracle, base)
    space = load_space(str(SPACE), environment.target.isa, declared_names())
    return SearchEvidence(oracle.graph, space, environment, base, SEED)


def _environment(oracle: Oracle, base: ProfilingDatabase) -> Environment:
    """The setting that the oracle was recorded in, in a database of its own."""
    where = oracle.where
    here = environment_of(base, "local", where.setting.threads, measuring=False)
    setting = base.setting(
        fingerprint=where.setting.device, device_name=where.device, device_facts=where.facts,
        target=where.target, threads=where.setting.threads, versions=here.versions,
    )  # fmt: skip
    return replace(here, target=where.target, setting=setting)


@contextmanager
def opened(oracle: Oracle, policy: Policy, model: Path | None) -> Iterator[tuple[Search, OracleRunner]]:
    """A search of an oracle that knows nothing yet, and what answers it."""
    with TemporaryDirectory() as folder, open_database(Path(folder) / "replay.db") as base:
        evidence = evidence_of(oracle, base)
        runner = OracleRunner(oracle.answers)
        start = RunStart(
            name=policy.name, model_name=oracle.network, model_sha256="0" * 64, graph_key=graph_key(oracle.graph),
            seed=SEED,
        )  # fmt: skip
        run = base.start_run(evidence.environment.setting, start)
        lab = Lab(evidence, runner, NoReference(Path(folder), {}, ()), run, lambda _: None)
        guide = _guide(oracle, evidence, model) if policy.guided and model is not None else None
        yield Search(evidence, lab, Standing(evidence), guide), runner


def replay(oracle: Oracle, policy: Policy, aim_us: float, model: Path | None) -> Row:
    """One policy on one oracle."""
    with opened(oracle, policy, model) as (search, runner):
        watch = Watch(search, runner, aim_us)
        search.lab.tell = watch
        budget = Budget(oracle.cost_s, over=watch.close, clock=runner.clock)
        policy.run(search, budget)
        watch("")
        asked, seconds, strangers = watch.reached or (0, 0.0, len(runner.strangers))
        end = known_us(search.evidence) / aim_us
        return Row(
            oracle.network, oracle.where.target.mcpu, policy.name, len(oracle.answers), oracle.cost_s, asked, seconds,
            strangers, end if isfinite(end) else None,
        )  # fmt: skip


def _guide(oracle: Oracle, evidence: SearchEvidence, model: Path) -> Guide:
    where = oracle.where
    adviser = Adviser(load_model(model), where.target, where.facts, where.setting.threads)
    return Guide(PlanAdviser(adviser, evidence.lowering), model.name, SEED)


def replayed(oracles: Sequence[Oracle], models: Mapping[str, Path], scratch: Path) -> Iterator[Row]:
    """Every policy on every oracle."""
    for oracle in oracles:
        with open_database(scratch / "best.db") as base:
            known = everything(oracle, base)
            aim_us = known_us(known)
            asked = floor(known, aim_us, CLOSE)
        yield Row(
            oracle.network, oracle.where.target.mcpu, FLOOR, len(oracle.answers), oracle.cost_s, asked, 0.0, 0, 1.0
        )  # fmt: skip
        for policy in POLICIES:
            if not policy.guided or oracle.network in models:
                yield replay(oracle, policy, aim_us, models.get(oracle.network))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table; 0 when there was something to replay."""
    parser = new_parser(__doc__, out="out/replay")
    add_oracles(parser)
    parser.add_argument("--train", type=Path, metavar="DB", help="what the model learns from (default: the oracles)")
    options = parser.parse_args(arguments)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    oracles = chosen_oracles(options)
    names = dict.fromkeys(one.network for one in oracles)
    models = (
        dict(models_without(names, [options.train or options.db], options.out))
        if options.train or len(names) > 1
        else {}
    )
    rows = []
    with TemporaryDirectory() as scratch:
        for row in replayed(oracles, models, Path(scratch)):
            rows.append(row)
            print(row.line(), flush=True)
    write(options.out, rows, markdown(rows))
    if not options.trusted:
        keep(TABLE, rows)
    print(markdown(rows))
    return 0 if rows else 1
