"""What a search is asked, its messages while it runs, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from autofuse.environment.worth import MoreTime, OpenQuestions, Waterfall
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.graph.loading.given.trace import Trace
from autofuse.search.budget.budget import never
from autofuse.segments.report import PartReport, RestReport
from autofuse.values.arguments import Given

PHASES = ("opening", "baselines", "search", "confirming")
"""What a search does, in this order."""
SEARCHING_ON = "searching on"
"""What it does in the last phase, where the finalists were soon decided, until they are measured again."""


@dataclass(frozen=True)
class Progress:
    """A message of a running search, after each candidate and each step between them; seconds and microseconds.

    `phase`: one of `PHASES`, or `SEARCHING_ON`; `asking`: the kind of question at hand (budget/agenda.py); `part`:
    (done, in all) of what it has to do, where that is known; `note`: the thing at hand. `done` of `total` (None: no
    limit) candidates, of which `ok` and `failed` were measured now and `hits` were known already. `best_us`,
    `baseline_us`: sums of the groups of the best plan and of the plan without fusion. `rival_us`: ONNX Runtime's time
    of the whole model here, if it was ever measured. `left_s`: until the end, building and measuring the finalists
    included (None: there is no end to foresee).
    """

    phase: str
    note: str
    elapsed_s: float
    budget_s: float | None
    done: int = 0
    total: int | None = None
    ok: int = 0
    failed: int = 0
    hits: int = 0
    best_us: float | None = None
    baseline_us: float | None = None
    rival_us: float | None = None
    part: tuple[int, int] | None = None
    left_s: float | None = None
    asking: str = ""

    @property
    def where(self) -> str:
        """Where the search is, for people: "phase 2 of 4, baselines: 12 of 51", "phase 3 of 4, search of plans"."""
        text = self.phase
        if text in (*PHASES, SEARCHING_ON):
            number = len(PHASES) if text == SEARCHING_ON else PHASES.index(text) + 1
            text = f"phase {number} of {len(PHASES)}, {text}"
        text += f" of {self.asking}" if self.asking else ""
        return text if self.part is None else f"{text}: {self.part[0]} of {self.part[1]}"


def silent(_: Progress) -> None:
    """Nobody listens."""


@dataclass(frozen=True)
class SearchRequest:
    """What `autofuse.api.tune` was asked for, as every search of a model takes it.

    `budget_s`, `trials`: limits, whichever comes first (None: none). `space`: file or name of a search space. `exact`:
    only what rounds as ONNX does. `pareto`: memory is a second objective. `trained`: the model that guides it, see
    `autofuse.search.plans.guide.guide_for`. `given`: shapes and constants of inputs. `progress` is called after each
    step. `stop`: whether somebody wants it to end; asked between steps, which KeyboardInterrupt ends then.
    `alone`: the chosen plan is raced against ONNX Runtime alone in the end. `sizes`: what stays open, and what is fixed
    beside it (none: all sizes are fixed); `trace`: how many calls have which (None: all are as frequent).
    """

    budget_s: float | None = None
    trials: int | None = None
    seed: int = 0
    space: str | None = None
    exact: bool = False
    pareto: bool = False
    trained: str | None = None
    given: Given = field(default_factory=dict)
    progress: Callable[[Progress], None] = silent
    stop: Callable[[], bool] = never
    alone: bool = False
    sizes: tuple[OpenSize, ...] = ()
    trace: Trace | None = None


@dataclass(frozen=True)
class PlanTime:
    """A finalist: `composed_us` is the sum of its groups; the rest was measured whole, interleaved.

    `median_us`: over the rounds that count, `trusted` or not for the reason in `problem`. `speedup`: the median of plan
    "none" in the same rounds over it, with its interval [`ci_lo`, `ci_hi`] and what it says, `verdict` (one of
    `autofuse.values.ratios.VERDICTS`); None where there is no ratio.
    """

    kernels: int
    composed_us: float | None
    median_us: float | None = None
    speedup: float | None = None
    ci_lo: float | None = None
    ci_hi: float | None = None
    trusted: bool = False
    max_rel_error: float | None = None
    problem: str = ""
    verdict: str = ""


@dataclass(frozen=True)
class ChoiceDecision:
    """How sure the choice of a plan is: the plan that it was decided `against` in one race, and the time of that one
    over the chosen one's with its interval [`lo`, `hi`]. `verdict`: "faster", "no difference" (the simpler one was
    taken) or "undecided" (noise left it open, and the simpler one was taken). `trusted`: it is decided."""

    against: str
    verdict: str
    trusted: bool
    ratio: float | None = None
    lo: float | None = None
    hi: float | None = None


@dataclass(frozen=True)
class CompositionReport:
    """The exact composition of measured groups beside the best plan that was sampled.

    `sampled_us`, `composed_us`: sums over the groups of the best plan of the search, and of the best plan that all
    measured groups make. `bound_us`: no plan of these groups is faster, whatever the layouts (by the sums that races of
    whole networks corrected meanwhile). `gap`: sampled over composed, minus 1 (None: no sampled plan has a time).
    `regions` of the model, of which `distinct` were solved;
    `cuts`: cycles that were forbidden; `plans` composed until their times agreed; `seconds` of the first.
    """

    sampled_us: float | None
    composed_us: float
    bound_us: float
    gap: float | None
    regions: int
    distinct: int
    cuts: int
    plans: int
    seconds: float


@dataclass(frozen=True)
class FrontPoint:
    """A plan that no other known one beats in both the sum of its kernels' times and its peak of memory."""

    us: float
    peak_bytes: int
    kernels: int
    plan_key: str


@dataclass(frozen=True)
class AskedQuestions:
    """What the questions of one kind came to in a search: how often they were asked, seconds that they took, and
    microseconds that they took off the composed time of the best plan."""

    kind: str
    asked: int
    spent_s: float
    gained_us: float


@dataclass(frozen=True)
class ForecastChanges:
    """The single changes of a model's `decisions`: `count` of them, of which there is time for `reached`; each is
    expected to take `each_s`, with the kernels that it needs."""

    decisions: int
    count: int
    reached: int
    each_s: float


@dataclass(frozen=True)
class Forecast:
    """What a budget will reach, as it is expected before a search (`tune` with `dry_run`).

    `kernels` of the default plan, `workloads` that differ, of which `known` have a time here. `candidates_per_s`: in
    run `rate_from` ("": a guess). Seconds in the order in which they are spent: `opening_s`, `first_s` (a time for
    each kernel of the default plan), `search_s` (for about `candidates`), `finals_s` (`finalists` built and measured
    whole; `left_out`: plans that there is no time for). `probing_s`: of the opening, to probe what the machine reaches.
    `sizes`: what stays open; then the workloads are tiles, and the finals a race of what is found with what stays.
    """

    budget_s: float | None
    trials: int | None
    device: str
    threads: int
    kernels: int
    workloads: int
    known: int
    candidates_per_s: float
    rate_from: str
    opening_s: float
    first_s: float
    search_s: float
    finals_s: float
    candidates: int
    changes: ForecastChanges
    finalists: tuple[str, ...]
    left_out: tuple[str, ...]
    probing_s: float = 0.0
    sizes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowsForecast:
    """What a budget will give a segment of rows, `what` says which: its tiles and plans are searched so many seconds
    (None: as long as its trials take)."""

    what: str
    budget_s: float | None


@dataclass(frozen=True)
class PartsForecast:
    """What a budget will reach of a model in parts: a forecast for each segment, then `race_s` seconds of whole models.

    `rest`: why operators are in ONNX Runtime, where nothing is searched. `rows`: what segments of rows get.
    """

    parts: tuple[PartReport, ...]
    rest: tuple[RestReport, ...]
    segments: tuple[Forecast, ...]
    race_s: float
    rows: tuple[RowsForecast, ...] = ()
    device: str = ""
    threads: int = 0


@dataclass(frozen=True)
class TileTime:
    """A tile of a kernel over an open size: of so many `rows` (0: the kernel has no open size), which a call runs
    `runs` times on the average over the sizes. `us` of its best schedule so far, `rule_us` of the fixed rule's;
    `tried`: schedules, with those that were known before. `places`: of a tile of an image, such as "8x32".
    `workload_key`: what its candidates are stored under."""

    label: str
    rows: int
    runs: float
    us: float | None
    rule_us: float | None
    tried: int
    places: str = ""
    workload_key: str = ""


@dataclass(frozen=True)
class SizeRatio:
    """What a race of two plans of open sizes said at one of them: the time of the other one over that of the one taken,
    with its interval [`lo`, `hi`]; None, and why, where there is no ratio. `share`: of all calls' time that is spent at
    sizes near this one."""

    size: str
    share: float
    ratio: float | None = None
    lo: float | None = None
    hi: float | None = None
    problem: str = ""

    def turned(self) -> SizeRatio:
        """The same with the plans exchanged."""
        if self.ratio is None or self.lo is None or self.hi is None:
            return self
        return replace(self, ratio=1 / self.ratio, lo=1 / self.hi, hi=1 / self.lo)


@dataclass(frozen=True)
class RangeChoice:
    """The plan for a part of the range of open sizes, such as "batch x tokens up to 64". `raced`: the time of the plan
    of all sizes over its, at each size in this part at which it won."""

    part: str
    plan_key: str
    kernels: int
    raced: tuple[SizeRatio, ...] = ()


@dataclass(frozen=True)
class TuneResult:
    """The outcome of a tuning job; `plans`: the finalists by name, `chosen` the one that `compile` takes.

    `front`: time against peak memory, where that was asked for, the fastest first (see
    `autofuse.search.composition.pareto`). `left_out`: what the budget left no time for, a sentence each. `warning`:
    what the reader must know about the answer; "" when there is nothing. `untrusted`: kernels of the chosen plan whose
    time the machine was too disturbed for, also when they were measured again, unless a race of whole networks decided
    the plan with its schedules. `questions`: what the search asked, the
    kind that took longest first. `waterfall`: what each decision was worth (None: too little was measured to say).
    `not_asked`: what it did not come to, and `more_time`: what as much time again is expected to give. `forecast`: of a
    dry run, which has nothing else to say. `decision`: how sure the choice is; None where nothing was raced. `tiles`:
    of a model with an open size the tiles of the chosen plan, the one that takes most time first; `raced`: what a race
    of plans said at each of several sizes; `ranges`: the plans for parts of the range, where there are several (then
    `plan_key` and `kernels` are of the largest sizes). `alone`:
    what the race of the chosen plan with ONNX Runtime alone said, or why there was none. `decided_share`: part of the
    time of the kernels decided on in which the decision is trusted (see `autofuse.values.ratios.decided_share`).
    `compile_s`: seconds that compiling the chosen plan is expected to take. `parts`: which part of a model runs where,
    where ONNX Runtime runs one. `sizes`: what stays open, as it is typed ("batch=1:16").
    """

    model: str
    run: str
    run_id: int
    database: str
    device: str
    threads: int
    state: str
    elapsed_s: float
    measured: int
    failed: int
    hits: int
    plan_trials: int
    chosen: str
    plan_key: str
    kernels: int
    plans: Mapping[str, PlanTime] = field(default_factory=dict)
    warning: str = ""
    composition: CompositionReport | None = None
    untrusted: tuple[str, ...] = ()
    front: tuple[FrontPoint, ...] = ()
    left_out: tuple[str, ...] = ()
    questions: tuple[AskedQuestions, ...] = ()
    waterfall: Waterfall | None = None
    not_asked: tuple[OpenQuestions, ...] = ()
    more_time: MoreTime | None = None
    decision: ChoiceDecision | None = None
    forecast: Forecast | PartsForecast | None = None
    tiles: tuple[TileTime, ...] = ()
    raced: tuple[SizeRatio, ...] = ()
    ranges: tuple[RangeChoice, ...] = ()
    alone: str = ""
    decided_share: float | None = None
    compile_s: float = 0.0
    parts: tuple[PartReport, ...] = ()
    sizes: tuple[str, ...] = ()
