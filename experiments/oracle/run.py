"""Records oracles: all that a search may ask about a small network, measured with care, to replay searches on.

    python -m experiments oracle [NETWORK ...] [--db FILE] [--device local] [--budget 8m] [--bench 12s]

A tuning job measures what promises most, so what it left out is never known. Here every group of the fixed plans and of
every changed decision gets every schedule of `space.toml`, through the product's own lab; then the product's own search
adds groups of combined decisions and of composed plans. Close winners are measured again, and the best plans whole:
the finalists, and then in one race the fixed plans with the changed ones whose sums are least. What was recorded before
is not measured again, but for whole networks: each further run goes on.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.environment.place import Place
from autofuse.errors import AutofuseError
from autofuse.measure.timing.sampling import SamplingPolicy
from autofuse.search.budget.budget import Budget
from autofuse.search.budget.time_budget import BATCH
from autofuse.search.finals.finals import race_whole, record_whole
from autofuse.search.lab.lab import Asked
from autofuse.search.phases.phases import measure_baselines
from autofuse.search.phases.questions import Search, plan_search
from autofuse.search.progress import SearchRequest
from autofuse.search.schedules.schedule_search import WorkloadSearch
from autofuse.search.session import ModelSession
from autofuse.search.tune import open_session
from experiments.catalogue import SMALL, WRITTEN
from experiments.model_files import HELP, asked_for
from experiments.options import new_parser

SEED = 0
SPACE = Path(__file__).parent / "space.toml"
COMBINED = 60
"""Candidates of groups that only combined decisions make, at most."""
CLOSE = 1.03
"""Schedules of the best plan within so many times the best one are measured again."""
AGAIN = 24
"""Candidates that are measured again, at most."""
CHANGED = 9
"""Plans beside the fixed ones that are measured whole."""
WHOLE_S = 90.0
"""Seconds for building and racing them."""
ALL = 1 << 20
POLICY = SamplingPolicy(cold_constants=True, block_s=0.002, good_slices=15, cap_s=0.6)
"""Short blocks find gaps between what else a machine does; so many that the few good ones say enough."""


def record(session: ModelSession, budget: Budget, race_s: float) -> str:
    """Record one network; one line about what was done."""
    search, part = session.search, budget.keeping(session.reserve(race_s=race_s))
    measure_baselines(search, part, part)
    for flip in plan_search(search, part).flips(ALL):
        search.evidence.admit(flip.plan)
    complete(search, part)
    session.advance(part, COMBINED)
    complete(search, part)
    search.lab.remeasure(close(search), part)
    result = session.conclude(budget, race_s)
    wholes(session, race_s)
    searches = search.evidence.searches.values()
    known = sum(len(one.tried) for one in searches)
    whole = f"{len(result.plans)} plans whole" if result is not None else "no plan whole"
    return (
        f"{session.model.path.stem}: {sum(one.complete for one in searches)} of {len(searches)} groups complete, "
        f"{known} candidates known ({session.counts.measured} measured now), {whole}"
    )


def wholes(session: ModelSession, race_s: float) -> None:
    """The fixed plans, and of the changed and the composed ones those of the least sums, all in one race."""
    search, evidence = session.search, session.search.evidence
    plans = {plan.key: plan for plan in search.standing.plans().values()}
    others = {plan.key: plan for plan, _ in evidence.known_plans() if plan.key not in plans}
    sums = {key: us for key, plan in others.items() if (us := evidence.composed_us(plan)) is not None}
    plans |= {key: others[key] for key in sorted(sums, key=sums.__getitem__)[:CHANGED]}
    names = {plan.key: name for name, plan in search.standing.plans().items()}
    named = {names.get(key, f"changed {number}"): plan for number, (key, plan) in enumerate(plans.items())}
    for plan in named.values():
        search.lab.record_plan(plan, "changed")
    if len(named) > 1:
        first = {"default": named["default"]} if "default" in named else {}
        results, _ = race_whole(session.finals(race_s), {**first, **named}, Budget.lasting(WHOLE_S))
        record_whole(search.lab, named, results)


def complete(search: Search, budget: Budget) -> None:
    """Every schedule of every group that is known, in turn, so that one that ends early has some of each."""
    while not budget.spent():
        chosen = _poorest(search, BATCH)
        if not chosen:
            break
        search.lab.next_up = partial(_poorest, search, BATCH)
        search.lab.measure(chosen, budget)
    search.lab.next_up = tuple


def _poorest(search: Search, count: int) -> list[WorkloadSearch]:
    """The searches with the fewest candidates among those that are not complete."""
    waiting = [one for one in search.evidence.searches.values() if not one.complete]
    return sorted(waiting, key=lambda one: len(one.tried))[:count]


def close(search: Search) -> list[Asked]:
    """The best plan's schedules between which the first times hardly decide, those of the heaviest kernels first."""
    best = search.standing.best
    if best is None:
        return []
    found: list[Asked] = []
    weights = search.evidence.weights(best)
    for key in sorted(weights, key=lambda key: -weights[key]):
        one = search.evidence.searches[key]
        near = [text for text, us in one.tried.items() if us is not None and us <= CLOSE * (one.best_us or 0.0)]
        if len(near) > 1:
            found += [(one, json.loads(text)) for text in near]
    return found[:AGAIN]


def _record(model: Path, base: ProfilingDatabase, place: Place, budget_s: float, race_s: float) -> str:
    budget = Budget.lasting(budget_s)
    request = SearchRequest(budget_s, seed=SEED, space=os.path.relpath(SPACE))  # no folder of this machine is recorded
    with open_session(model, base, place, request, policy=POLICY) as opened:
        return record(opened, budget, race_s)


def main(arguments: Sequence[str] | None = None) -> int:
    """Record the networks named (none: all small ones); 1 when one of them could not be recorded."""
    parser = new_parser(__doc__, threads=1, budget="8m", bench="12s")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"{HELP} (default: {', '.join(SMALL)})")
    parser.add_argument("--db", type=Path, default=Path("out/oracle/times.db"), help="where times are kept")
    parser.add_argument("--device", default="local", help="local, the name of a profile, or a .toml file")
    options = parser.parse_args(arguments)
    options.db.parent.mkdir(parents=True, exist_ok=True)
    place = Place(str(options.db), options.device, options.threads)
    failed = 0
    with open_database(options.db) as base:
        for model in asked_for(parser, options.networks or list(SMALL), WRITTEN):
            try:
                print(_record(model, base, place, options.budget, options.bench), flush=True)
            except AutofuseError as error:
                failed += 1
                print(f"{model.stem}: {error}", file=sys.stderr, flush=True)
    return 1 if failed else 0
