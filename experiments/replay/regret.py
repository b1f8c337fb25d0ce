"""How much slower than the best is the plan that is taken, and how many of its decisions do harm? Held to recorded
oracles; nothing is measured.

    python -m experiments replay.regret [NETWORK ...] [--db FILE] [--budgets 30s,60s] [--trusted]

Judges are the fixed rules as they are compiled where nothing was measured, and what `tune` has found after so many
seconds of recorded measurements. regret@1: time of the plan taken, with the schedules taken, over the best that the
oracle knows, minus 1. A decision is a part of the network that a plan groups otherwise than our rule; it does harm
where it is more than 2 % slower, both sides with their best schedules. None is counted about a kernel of which nothing
that the search asked was recorded: it knew of no other side. `--trusted`: times that something disturbed are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import optuna

from autofuse.database.database import open_database
from autofuse.environment.named_plans import NAMES, named_plan
from autofuse.errors import AutofuseError
from autofuse.fusion.plan import FusionPlan
from autofuse.search.budget.budget import Budget
from autofuse.search.phases.questions import compose
from autofuse.search.schedules.evidence import SearchEvidence
from autofuse.search.standing.waterfall import at_best, changes_between
from autofuse.values.arguments import parse_duration
from experiments.options import durations, new_parser
from experiments.records import Table, keep
from experiments.replay.policies import POLICIES
from experiments.replay.recorded import Oracle, add_oracles, chosen_oracles
from experiments.replay.run import Watch, everything, known_us, opened
from experiments.tables import head, line, write

RULE = "default"
"""The judge whose decisions the others' are held to."""
NOTICED = 0.02
"""Part by which a decision is slower before it counts as harm."""
MOST_REGRET, MOST_HARM = 0.08, 0.02
"""The bars: P90 of regret@1, and the share of decisions that do harm."""
RESAMPLES = 4000
QUESTIONS = next(policy for policy in POLICIES if policy.name == "questions")


@dataclass(frozen=True)
class Row:
    """A judge on an oracle. `regret`: of its plan as it is compiled, `plan_regret`: with the best schedules known
    (None: a kernel of it was not recorded). `decisions`: parts that it groups otherwise than our rule, `harmful`: of
    these the slower ones."""

    network: str
    cpu: str
    judge: str
    regret: float | None
    plan_regret: float | None
    decisions: int
    harmful: int


def judged(oracle: Oracle, budgets: Sequence[str]) -> Iterator[Row]:
    """Every judge on one oracle."""
    with TemporaryDirectory() as folder, open_database(Path(folder) / "known.db") as base:
        known = everything(oracle, base)
        best_us, default = known_us(known), named_plan(oracle.graph, RULE)
        for name in NAMES:
            try:
                plan = named_plan(oracle.graph, name)
                known.admit(plan)
            except AutofuseError:
                continue  # TVM may be unable to say how it would fuse
            yield _row(oracle, known, name, (default, plan), (known.rule_us(plan), best_us))
        for budget in budgets:
            plan, us, unseen = searched(oracle, parse_duration(budget), best_us)
            known.admit(plan)
            yield _row(oracle, known, f"tune, {budget}", (default, plan), (us, best_us), unseen)


def searched(oracle: Oracle, seconds: float, best_us: float) -> tuple[FusionPlan, float | None, frozenset[str]]:
    """The plan that `tune` would go into its finals with after so many seconds, its time as far as it knows, and the
    workloads of which it asked only what was not recorded."""
    with opened(oracle, QUESTIONS, None) as (search, runner):
        search.lab.tell = Watch(search, runner, best_us)
        QUESTIONS.run(search, Budget(seconds, clock=runner.clock))
        compose(search, Budget(), measure=False)
        leading = search.standing.leading() or search.standing.baselines[RULE]
        searches = search.evidence.searches
        unseen = frozenset(key for key, _ in runner.strangers if key in searches and searches[key].best_us is None)
        return leading, search.evidence.composed_us(leading), unseen


def _row(
    oracle: Oracle,
    known: SearchEvidence,
    judge: str,
    plans: tuple[FusionPlan, FusionPlan],
    times: tuple[float | None, float],
    unseen: frozenset[str] = frozenset(),
) -> Row:
    """`plans`: our rule's and the judge's; `times`: of the judge's as it is compiled, and of the best."""
    us, best_us = times
    plan_us = known.composed_us(plans[1])
    gains = decisions(known, *plans, unseen)
    regret, alone = (None if one is None else one / best_us - 1.0 for one in (us, plan_us))
    harmful = sum(gain < -NOTICED for gain in gains)
    return Row(oracle.network, oracle.where.target.mcpu, judge, regret, alone, len(gains), harmful)


def decisions(
    known: SearchEvidence, ruled: FusionPlan, taken: FusionPlan, unseen: frozenset[str] = frozenset()
) -> list[float]:
    """What each part saves, of its time, that `taken` groups otherwise than `ruled`; none where a kernel of the plans
    was not recorded, and none of a part with a kernel that was `unseen`."""
    if known.composed_us(ruled) is None or known.composed_us(taken) is None:
        return []
    regions = [
        one
        for one in changes_between(known, ruled, taken, at_best)
        if unseen.isdisjoint(kernel.key for kernel in (*one.before, *one.after))
    ]
    return [one.saved_us / before_us for one in regions if (before_us := sum(kernel.us for kernel in one.before))]


def text(rows: Sequence[Row]) -> str:
    """Regrets and harm of each judge over all oracles, and what a search gains over the best fixed rule."""
    by_judge: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_judge[row.judge].append(row)
    titles = ("takes the plan of", "oracles", "regret@1: median", "mean", "P90", "of the plan alone: median", "P90",
              "decisions otherwise than ours", "of these harm")  # fmt: skip
    lines = head(titles)
    for judge, own in by_judge.items():
        regrets, alone = (_known([getattr(row, name) for row in own]) for name in ("regret", "plan_regret"))
        if not len(regrets):
            continue
        count, harmful = sum(row.decisions for row in own), sum(row.harmful for row in own)
        numbers = (np.median(regrets), regrets.mean(), np.quantile(regrets, 0.9), np.median(alone))
        cells = [*(f"{number:.1%}" for number in numbers), f"{np.quantile(alone, 0.9):.1%}", count]
        lines.append(line([judge, len(regrets), *cells, f"{harmful / count:.1%}" if count else "-"]))
    return "\n".join([*lines, "", *_against_rules(by_judge)]) + "\n"


def _known(values: Sequence[float | None]) -> np.ndarray:
    return np.array([value for value in values if value is not None])


def _against_rules(by_judge: dict[str, list[Row]]) -> Iterator[str]:
    """Of each search: how many times as fast as the best fixed rule that has a time on most oracles, with an interval;
    networks are drawn whole."""
    known = {name: _known([row.regret for row in by_judge.get(name, ())]) for name in NAMES}
    most = max(map(len, known.values()))
    rules = {name: regrets.mean() for name, regrets in known.items() if 2 * len(regrets) > most}
    if not rules:
        return
    best = min(rules, key=lambda name: rules[name])
    of = {(row.network, row.cpu): row.regret for row in by_judge[best]}
    for judge, own in by_judge.items():
        logs: dict[str, list[float]] = defaultdict(list)
        for row in own if judge not in NAMES else ():
            other = of.get((row.network, row.cpu))
            if row.regret is not None and other is not None:
                logs[row.network].append(float(np.log((1.0 + other) / (1.0 + row.regret))))
        if logs:
            sums = np.array([(sum(values), len(values)) for values in logs.values()])
            drawn = sums[np.random.default_rng(0).integers(len(sums), size=(RESAMPLES, len(sums)))].sum(axis=1)
            lo, hi = np.exp(np.quantile(drawn[:, 0] / drawn[:, 1], (0.025, 0.975)))
            mean = np.exp(sums[:, 0].sum() / sums[:, 1].sum())
            yield f"{judge}: {mean:.2f} ({lo:.2f}-{hi:.2f}) times as fast as the best fixed rule, {best}; {_bars(own)}."


def _bars(own: Sequence[Row]) -> str:
    """Which bars a judge keeps."""
    p90 = float(np.quantile(_known([row.regret for row in own]), 0.9))
    harm = sum(row.harmful for row in own) / max(1, sum(row.decisions for row in own))
    bars = (("P90 of regret@1", p90, MOST_REGRET), ("harm", harm, MOST_HARM))
    return "; ".join(f"{name} {is_:.1%} (wanted: {most:.0%})" for name, is_, most in bars)


TABLE = Table("replay.regret", Row, ("network", "cpu", "judge"), text)
TRUSTED = Table("replay.regret.trusted", Row, ("network", "cpu", "judge"), text)
TABLES = (TABLE, TRUSTED)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 0 when there was an oracle."""
    parser = new_parser(__doc__, out="out/replay-regret")
    parser.add_argument("--budgets", type=durations, default=["30s", "60s"], metavar="DURATIONS", help="of searches")
    add_oracles(parser)
    options = parser.parse_args(arguments)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    rows: list[Row] = []
    for oracle in chosen_oracles(options):
        rows += judged(oracle, options.budgets)
        print(f"{oracle.network} on {oracle.where.target.mcpu}: done", flush=True)
    if rows:
        write(options.out, rows, text(rows))
        keep(TRUSTED if options.trusted else TABLE, rows)
        print(text(rows))
    return 0 if rows else 1
