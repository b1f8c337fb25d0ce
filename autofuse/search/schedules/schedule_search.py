"""Schedule search: one Optuna study a workload, kept in memory and rebuilt from the profiling database."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice, product, zip_longest
from operator import itemgetter
from typing import Any

import optuna

from autofuse.database.records import canonical_json
from autofuse.device.rates import CoreRates
from autofuse.device.target import Target
from autofuse.fusion.plan import ScheduleLimits
from autofuse.graph.model import Graph
from autofuse.kernels.families.protocol import Values
from autofuse.kernels.schedule.guesses import first_packed_like, first_schedules, narrowed_schedules
from autofuse.kernels.schedule.knobs import canonical, fits_registers, open_knobs, packing, tile_knobs
from autofuse.kernels.schedule.limits import keeps, keeps_text, knobs_within
from autofuse.kernels.schedule.transfer import adapted
from autofuse.kernels.workload.workload import BoundWorkload, Workload
from autofuse.search.schedules.lessons import Lessons, Step, step_between, step_kind

MAX_CANDIDATES = 48
STARTUP_TRIALS = 8
ASK_ATTEMPTS = 24
STUDY_EVERY = 3
"""Every third candidate beyond the guesses is the study's; the others are one step from the best."""
SUGGESTIONS = 2
UNKNOWN_STEP = 0.02
"""Part of its time that a step saves of which nothing is known."""
HOPELESS_AFTER = 8
"""Failed candidates, with no other kind among them, after which a workload is given up."""

Schedule = Mapping[str, int | str]


def schedule_text(schedule: Schedule) -> str:
    """Canonical JSON of a schedule."""
    return canonical_json(dict(schedule))


_TILED = frozenset(
    {"Conv", "ConvInteger", "ConvTranspose", "MatMul", "MatMulInteger", "Gemm", "MaxPool", "AveragePool"}
    | {"WeightOnlyMatMul", "Bfloat16Conv", "Bfloat16MatMul"}
)


def anchor_key(workload: Workload) -> str:
    """What workloads share whose anchors are the same and only epilogues or prologues differ."""
    parts = []
    for operator in workload.operators:
        if operator.op_type in _TILED:
            shapes = [(workload.values[v].shape, workload.values[v].block) for v in operator.inputs[:2] if v >= 0]
            parts.append((operator.op_type, operator.attributes, tuple(shapes)))
    return repr(parts) if parts else workload.key


@dataclass
class WorkloadSearch:
    """The schedule search of one workload: what was tried, what comes next, the best so far (microseconds).

    What comes next: a schedule that was good for a related workload (`suggested`), the rules' own, further suggestions,
    the rules' other guesses (`pending`), then two steps away from the best for each proposal of the Optuna study.
    `graph`: the realised graph that holds the constants of `bound`. `limit`: candidates after which the search is
    complete. `failures`: of those tried; `failure`: the message of the first.
    """

    bound: BoundWorkload
    graph: Graph
    target: Target
    knobs: dict[str, Values]
    seed: int
    threads: int = 1
    tried: dict[str, float | None] = field(default_factory=dict)
    pending: list[dict[str, int | str]] = field(default_factory=list)
    suggested: list[dict[str, int | str]] = field(default_factory=list)
    best_us: float | None = None
    best: dict[str, int | str] | None = None
    failures: int = 0
    failure: str = ""
    build_s: float = 0.0
    limit: int = 0
    rates: CoreRates | None = None
    lessons: Lessons = field(default_factory=Lessons)
    _guesses: list[dict[str, int | str]] | None = None
    _study: Any = None
    _near: tuple[str, list[tuple[dict[str, int | str], str, Step]]] | None = None

    def __post_init__(self) -> None:
        self._count()

    def _count(self) -> None:
        self.limit = sum(1 for _ in islice(self._every(), MAX_CANDIDATES))

    @classmethod
    def create(
        cls, bound: BoundWorkload, graph: Graph, target: Target, space: Mapping[str, Mapping[str, Values]], seed: int,
        threads: int = 1, rates: CoreRates | None = None, lessons: Lessons | None = None,
    ) -> WorkloadSearch:  # fmt: skip
        """A search that has tried nothing; its first candidates are the rules' guesses for so many threads."""
        knobs = open_knobs(bound.workload, target, space)
        search = cls(bound, graph, target, knobs, seed, threads, rates=rates, lessons=lessons or Lessons())
        search.pending = search.first_candidates()
        return search

    def first_candidates(self) -> list[dict[str, int | str]]:
        """What is tried first: what would be compiled, guesses that a narrow space has otherwise, and the others."""
        guesses = self.guesses()
        narrowed = narrowed_schedules(self.bound.workload, self.knobs, self.target, self.threads, self.rates)
        return [*guesses[:1], *(one for one in narrowed if fits_registers(one, self.target)), *guesses[1:]]

    def guesses(self) -> list[dict[str, int | str]]:
        """What the rules would try first."""
        if self._guesses is None:  # asked for again and again, while it is estimated how long the finalists will take
            self._guesses = first_schedules(self.bound.workload, self.knobs, self.target, self.threads, self.rates)
        return [dict(one) for one in self._guesses]

    @property
    def key(self) -> str:
        """Key of the workload."""
        return self.bound.workload.key

    @cached_property
    def kind(self) -> str:
        """What it has in common with workloads that take the same steps."""
        return step_kind(self.bound.workload, _TILED)

    def expected_part(self, rule: float, ahead: int = 0) -> float:
        """Part of its time that a further candidate is expected to save, where the rule says so much of it: what
        the step that comes next (or `ahead` of it, so many later) saved elsewhere says more."""
        if self.best is None:
            return rule
        following = self.peek(ahead + 1)
        if len(following) <= ahead:
            return rule
        return self.lessons.expected(step_between(self.kind, self.best, following[ahead]), rule)

    @property
    def first_us(self) -> float | None:
        """Time of the first schedule that has one."""
        return next((us for us in self.tried.values() if us is not None), None)

    @property
    def rule(self) -> dict[str, int | str]:
        """The first of the rules' guesses that has a time, or that may be tried first: what is compiled where nothing
        was measured."""
        timed = (guess for guess in self.guesses() if self.tried.get(schedule_text(guess)) is not None)
        untried = (guess for guess in self.guesses() if self.best is None and schedule_text(guess) not in self.tried)
        return next(chain(timed, untried), self.likely)

    @property
    def rule_us(self) -> float | None:
        """Time of the rules' schedule."""
        return self.tried.get(schedule_text(self.rule))

    @property
    def likely(self) -> dict[str, int | str]:
        """The best schedule known, or the one to be tried next while none is."""
        return self.best or next(iter([*self.suggested, *self.pending]), {})

    @property
    def hopeless(self) -> bool:
        """Whether the workload is given up: so many candidates failed, and none did not."""
        return self.best_us is None and self.failures >= HOPELESS_AFTER

    @property
    def complete(self) -> bool:
        """Whether nothing is left to try, or nothing worth it."""
        return self.hopeless or (not self.pending and not self.suggested and len(self.tried) >= self.limit)

    def learn(self, schedule: Schedule, time_us: float | None, failure: str = "") -> bool:
        """Takes in a measured candidate (None: it failed); True when it is the new best."""
        kept = dict(schedule)
        self.tried[schedule_text(kept)] = time_us
        self.pending = [other for other in self.pending if other != kept]
        self.suggested = [other for other in self.suggested if other != kept]
        self._tell(kept, time_us)
        if time_us is None:
            self.failures += 1
            self.failure = self.failure or failure
            return False
        if self.best is not None and self.best_us is not None and kept != self.best:
            self.lessons.enter(step_between(self.kind, self.best, kept), self.best_us, time_us)
        if self.best_us is None or time_us < self.best_us:
            self.best_us, self.best = time_us, kept
            return True
        return False

    def give_back(self, schedule: Schedule) -> None:
        """A candidate that was asked for and could not be measured comes next again."""
        self.tried.pop(schedule_text(schedule), None)
        self.pending.insert(0, dict(schedule))

    def correct(self, schedule: Schedule, time_us: float | None) -> None:
        """Takes in what a candidate came to that was not asked for, or once more (None: it failed)."""
        self.tried[schedule_text(schedule)] = time_us
        self._choose()

    def limit_schedules(self, limits: ScheduleLimits) -> None:
        """Forgets schedules beyond the limits, and asks for none from now on."""
        self.knobs = knobs_within(self.knobs, limits)
        self.tried = {text: us for text, us in self.tried.items() if keeps_text(limits, text)}
        self.suggested = [schedule for schedule in self.suggested if keeps(limits, schedule)]
        self._guesses = self._study = self._near = None
        self.pending = self.first_candidates()
        self._count()
        self._choose()

    def _choose(self) -> None:
        """The best of what was tried."""
        times = {text: us for text, us in self.tried.items() if us is not None}
        text = min(times, key=lambda name: times[name], default=None)
        self.best_us, self.best = (times[text], json.loads(text)) if text is not None else (None, None)

    def suggest(self, schedule: Schedule) -> None:
        """Queues a schedule that was good for a related workload; only the newest few are kept."""
        fitting = {name: value for name, value in schedule.items() if value in self.knobs.get(name, ())}
        default = {name: values[0] for name, values in self.knobs.items()}
        kept = canonical({**default, **fitting}, self.knobs)
        if schedule_text(kept) not in self.tried and kept not in self.suggested:
            self.suggested = [kept, *self.suggested[: SUGGESTIONS - 1]]

    def suggest_packing(self, schedule: Schedule) -> None:
        """Queues a schedule that packs weights as that of another number of rows does, unless one was tried."""
        wanted = packing(schedule)
        if any(packing(json.loads(text)) == wanted for text in self.tried):
            return
        guess = first_packed_like(self.bound.workload, self.knobs, schedule, self.target, self.threads, self.rates)
        if guess is not None:
            self.suggest(guess)

    def hint(self, schedule: Schedule) -> None:
        """Queues a schedule that somebody else shared, after the rules' first guess: it may cost a measurement."""
        kept = adapted(schedule, self.knobs, self.target)
        if kept is not None and schedule_text(kept) not in self.tried and kept not in self.pending:
            self.pending.insert(1, kept)

    def ask(self) -> dict[str, int | str] | None:
        """The next candidate; None when the search is complete."""
        if self.complete:
            return None
        for schedule in self._queue():
            for queue in (self.suggested, self.pending):
                if schedule in queue:
                    queue.remove(schedule)
            if schedule_text(schedule) not in self.tried:
                return self._issue(schedule)
        near = self._step() if len(self.tried) % STUDY_EVERY else None
        if near is not None:
            return self._issue(near)
        for _ in range(min(ASK_ATTEMPTS, self.limit - len(self.tried))):
            trial = self.study.ask(self._distributions())
            schedule = canonical(trial.params, self.knobs)
            known = schedule_text(schedule) in self.tried
            if not known and fits_registers(schedule, self.target):
                self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
                return self._issue(schedule)
            value = self.tried.get(schedule_text(schedule)) if known else None
            state = optuna.trial.TrialState.COMPLETE if value is not None else optuna.trial.TrialState.FAIL
            self.study.tell(trial, value, state=state)
        left = next((other for other in self._every() if schedule_text(other) not in self.tried), None)
        return None if left is None else self._issue(left)

    @property
    def lacks_rules_own(self) -> bool:
        """Whether others have a time and what would be compiled untuned has none: a suggestion may be the worse one."""
        if self.best is None or not self.pending:
            return False
        own = self.guesses()[:1]
        return self.pending[:1] == own and schedule_text(own[0]) not in self.tried

    def _queue(self) -> list[dict[str, int | str]]:
        """What is asked before any step from the best."""
        own = self.pending[:1] if self.lacks_rules_own else []
        return [*own, *self.suggested, *self.pending[len(own) :]]

    def peek(self, count: int = 1) -> list[dict[str, int | str]]:
        """Up to `count` candidates that `ask` will probably give next, unless something better is learned before.

        What the study would propose is not among them: only asking it says that.
        """
        if self.complete:
            return []
        known = [one for one in self._queue() if schedule_text(one) not in self.tried]
        studied = not known and count == 1 and len(self.tried) % STUDY_EVERY == 0
        return list(islice(chain(known, () if studied else self._steps()), count))

    def _step(self) -> dict[str, int | str] | None:
        """The nearest of `_steps`."""
        return next(self._steps(), None)

    def _steps(self) -> Iterator[dict[str, int | str]]:
        """Untried schedules that differ from the best in one choice: the nearest values of each choice first."""
        if self.best is None:
            return
        here = schedule_text(self.best)
        if self._near is None or self._near[0] != here:
            steps = [list(self._steps_along(choice)) for choice in choices(self.knobs)]
            near = [one for nearest in zip_longest(*steps) for one in nearest if one is not None]
            self._near = here, [(one, schedule_text(one), step_between(self.kind, self.best, one)) for one in near]
        untried = [known for known in self._near[1] if known[1] not in self.tried]
        untried.sort(key=self._promise, reverse=True)  # of equals the nearest first
        yield from (schedule for schedule, *_ in untried)

    def _promise(self, known: tuple[dict[str, int | str], str, Step]) -> float:
        """What a step is expected to save."""
        return self.lessons.expected(known[2], UNKNOWN_STEP)

    def _steps_along(self, choice: tuple[str, ...]) -> Iterator[dict[str, int | str]]:
        """Schedules like the best in everything but `choice`; none that does not fit the registers."""
        assert self.best is not None
        here = {name: self.best.get(name, values[0]) for name, values in self.knobs.items()}
        others = []
        for values in product(*(self.knobs[name] for name in choice)):
            there = here | dict(zip(choice, values, strict=True))
            schedule = canonical(there, self.knobs)
            if schedule != self.best and fits_registers(schedule, self.target):
                distance = sum(
                    abs(_place(self.knobs[name], there[name]) - _place(self.knobs[name], here[name])) for name in choice
                )
                others.append((distance, schedule))
        yield from (schedule for _, schedule in sorted(others, key=itemgetter(0)))

    def _every(self) -> Iterator[dict[str, int | str]]:
        """Every distinct schedule of the space that fits the registers, the defaults first."""
        seen: set[str] = set()
        for values in product(*self.knobs.values()):
            schedule = canonical(dict(zip(self.knobs, values, strict=True)), self.knobs)
            if fits_registers(schedule, self.target) and schedule_text(schedule) not in seen:
                seen.add(schedule_text(schedule))
                yield schedule

    def _issue(self, schedule: dict[str, int | str]) -> dict[str, int | str]:
        self.tried.setdefault(schedule_text(schedule), None)
        return schedule

    @property
    def study(self) -> Any:
        """The Optuna study (created when the first guesses are used up)."""
        if self._study is None:
            sampler = optuna.samplers.TPESampler(seed=self.seed, n_startup_trials=STARTUP_TRIALS, multivariate=True)
            self._study = optuna.create_study(direction="minimize", sampler=sampler)
            for text, time_us in self.tried.items():
                self._tell(json.loads(text), time_us)
        return self._study

    def _tell(self, schedule: Schedule, time_us: float | None) -> None:
        if self._study is None or time_us is None or not self.knobs:
            return
        params = {name: schedule.get(name, values[0]) for name, values in self.knobs.items()}
        if all(value in self.knobs[name] for name, value in params.items()):
            trial = optuna.trial.create_trial(params=params, distributions=self._distributions(), value=time_us)
            self._study.add_trial(trial)

    def _distributions(self) -> dict[str, Any]:
        return {name: optuna.distributions.CategoricalDistribution(values) for name, values in self.knobs.items()}


def choices(knobs: Mapping[str, Values]) -> list[tuple[str, ...]]:
    """Knobs that are stepped along together: the sides of a family's register tile, and each other knob alone."""
    tiles = [tuple(name for name in tile if name in knobs) for tile in tile_knobs() if len(tile) > 1]
    tiles = [tile for tile in tiles if tile]
    stepped = {name for tile in tiles for name in tile}
    return [*tiles, *((name,) for name in knobs if name not in stepped)]


def _place(values: Values, value: int | str) -> int:
    """Place of a value among its knob's, numbers in their order and 0 ("all") as the largest."""
    ordered = sorted(values, key=lambda v: (v or float("inf")) if isinstance(v, int) else values.index(v))
    return ordered.index(value) if value in ordered else 0
