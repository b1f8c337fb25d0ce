"""The run of a search over open sizes in the database: begun or gone on with, plans that were tried, the choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from autofuse.compiler.open_sizes.plans import PARTS, SIZES, TILES, OpenForm, RangedPlan, parts_json, ranges_json
from autofuse.database.database import ProfilingDatabase
from autofuse.database.records import Json, RunStart, Trial
from autofuse.environment.environment import Environment
from autofuse.fusion.plan import FusionPlan
from autofuse.opened.search.plan_search import Tried
from autofuse.search.budget.budget import now
from autofuse.search.progress import SearchRequest, TileTime
from autofuse.search.tune import unused_name
from autofuse.values.arguments import file_title, named_inputs

DEFAULT, PREVIOUS, SEARCHED = "default", "previous", "search"
"""Names of the plan that stays, the rule's or what was known before, and of one that the search found."""


@dataclass
class OpenRun:
    """A run of a search of `form`. `tried`: plans, those of an earlier part of the run among them."""

    base: ProfilingDatabase
    id: int
    name: str
    form: OpenForm
    tried: int = 0

    @classmethod
    def begin(
        cls, base: ProfilingDatabase, environment: Environment, model: Path, form: OpenForm, request: SearchRequest,
        since: float,
    ) -> OpenRun:  # fmt: skip
        """Goes on with the interrupted run of this model over these ranges in this setting, or starts a new one, which
        began at `since`."""
        base.release_dead()
        sizes: list[Json] = [size.typed for size in request.sizes]
        setting = environment.setting
        old = base.interrupted_run(setting, form.model_key)
        if old is not None and old.arguments.get(SIZES) == sizes:
            base.resume_run(old.id)
            return cls(base, old.id, old.name, form, len(base.trials(old.id)))
        title, started = file_title(model), datetime.now(UTC) - timedelta(seconds=now() - since)
        stem = f"{title}-{setting.threads}t-{started:%Y%m%d-%H%M%S}"
        told = {**named_inputs(request.given), "space": request.space, "exact": request.exact}
        arguments: dict[str, Json] = {
            "model": title + model.suffix, "threads": setting.threads, "device": environment.profile.name,
            SIZES: sizes, **{name: one for name, one in told.items() if one},
        }  # fmt: skip
        start = RunStart(
            name=unused_name(base, stem), model_name=title, model_sha256=form.model_key, graph_key=form.key,
            seed=request.seed, arguments=arguments, budget={"seconds": request.budget_s, "trials": request.trials},
            provenance=environment.provenance.as_dict(), started_at=started,
        )  # fmt: skip
        return cls(base, base.start_run(setting, start), start.name, form)

    def record(self, tried: Tried) -> None:
        """Keeps a plan that was tried."""
        self.keep(tried.plan, SEARCHED if tried.answers else DEFAULT)
        answers: dict[str, Json] = {**tried.answers}
        self.base.record_trial(
            self.id,
            Trial(number=self.tried, answers=answers, state=tried.state, plan_key=tried.plan.key, composed_us=tried.us),
        )
        self.tried += 1

    def keep(self, plan: FusionPlan, origin: str) -> None:
        """Keeps a plan."""
        self.base.record_plan(self.form.key, plan.key, plan.to_json(), origin)

    def choose(
        self, plans: Sequence[RangedPlan], name: str, trusted: bool, tiles: Sequence[TileTime],
        details: Mapping[str, Json],
    ) -> None:  # fmt: skip
        """What `compile` takes from now on, with the `tiles` of all plans; of several plans, that of the largest sizes
        stands for all where they cannot."""
        for one in plans:
            self.keep(one.found.plan, name)
        known: list[Json] = [asdict(tile) for tile in tiles]
        told = {"name": name, SIZES: ranges_json(self.form.sizes), TILES: known, **details}
        told |= {PARTS: parts_json(plans)} if len(plans) > 1 else {}
        self.base.record_choice(self.id, plans[-1].found.plan.key, [], median_us=None, trusted=trusted, details=told)
