"""What is worth measuring next: each question has an expected gain and a cost in seconds; the best ratio is asked.

The expectations are stated rules (`autofuse.search.schedules.expectations`). What a kind of question really gained in
this run corrects what is expected of it, so a rule that is wrong here is soon not believed. One question in a few goes
to the kind that got the least time: an expectation that is never tried is never corrected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autofuse.search.budget.budget import Budget

if TYPE_CHECKING:
    from autofuse.search.schedules.schedule_search import WorkloadSearch

EXPLORE_EVERY = 8
"""One question in so many goes to the kind that has had the least time, of those that the rules still expect something
of."""
EXPLORED = 0.1
"""Part of what the best question promises for its seconds that an explored one promises at least."""
DOUBT = 0.02
"""Part of the plan's time that a kind of question must have promised before what it gained outweighs the rule."""
DOUBT_S = 2.0
"""Seconds that questions of a kind must have taken before what they took outweighs what was expected."""
FADING = 0.7
"""What a kind promised and gained counts so much less after each further question of it: gains dry up."""
LEAST, MOST = 0.05, 1.0
"""Bounds of the correction of a kind's expectations. Few questions gain much, so that one that does says little of the
next: nothing is expected above the rule."""
WORTHLESS = 1e-4
"""Part of the plan's time that the best question must promise for all the time left; else the search is over."""


@dataclass(frozen=True)
class Question:
    """Something that may be measured next.

    `kind`: what is asked, as the screen says it. `gain_us`: what the answer is expected to take off the network's time.
    `cost_s`: seconds that it is expected to take. `ask`: measures it, within a budget. `owed`: it is asked before the
    search ends although it gains little, where time is left. `parts`: how many things it asks about. `first`: the
    searches of which it measures a new candidate first, as far as it is known before it is asked. `credit`: the kind
    whose questions made possible what it gains, if that is not its own. `closing`: it is asked last, when only the time
    that it takes is left.
    """

    kind: str
    gain_us: float
    cost_s: float
    ask: Callable[[Budget], None]
    owed: bool = False
    parts: int = 1
    first: Sequence[WorkloadSearch] = ()
    credit: str = ""
    closing: bool = False

    @property
    def rate(self) -> float:
        """Microseconds a second that the rules expect it to gain."""
        return self.gain_us / max(self.cost_s, 1e-3)


@dataclass
class Account:
    """What one kind of question came to: `asked` times, in `spent_s` seconds, with `gained_us` off the network's time.

    `promised_us`, `paid_us`: what was expected and what came of it, the newest weighing most. `planned_s`: seconds that
    were expected.
    """

    asked: int = 0
    spent_s: float = 0.0
    gained_us: float = 0.0
    promised_us: float = 0.0
    paid_us: float = 0.0
    planned_s: float = 0.0

    def pace(self) -> float:
        """How many times as long as expected questions of this kind took so far; 1 where they took less."""
        return max(1.0, (DOUBT_S + self.spent_s) / (DOUBT_S + self.planned_s))

    def correction(self, plan_us: float) -> float:
        """What an expectation of this kind is multiplied by, for a plan of `plan_us`; 1 as long as nothing is known."""
        doubt_us = DOUBT * plan_us
        return min(MOST, max(LEAST, (doubt_us + self.paid_us) / (doubt_us + self.promised_us)))

    def enter(self, promised_us: float, paid_us: float, planned_s: float, seconds: float) -> None:
        """Takes in one question and its answer, with the seconds that were expected and those that it took."""
        self.planned_s += planned_s
        self.asked, self.spent_s, self.gained_us = self.asked + 1, self.spent_s + seconds, self.gained_us + paid_us
        self.promised_us = FADING * self.promised_us + promised_us
        self.paid_us = FADING * self.paid_us + paid_us


@dataclass
class Agenda:
    """Chooses among questions, and keeps what became of them. It lasts as long as the search of one model."""

    accounts: dict[str, Account] = field(default_factory=dict)
    turn: int = 0

    def account(self, kind: str) -> Account:
        """What the questions of a kind came to."""
        return self.accounts.setdefault(kind, Account())

    def worth(self, question: Question, plan_us: float) -> float:
        """Microseconds a second that a question is expected to gain, after what such questions gained so far."""
        account = self.account(question.kind)
        return question.rate * account.correction(plan_us) / account.pace()

    def choose(self, questions: Iterable[Question], plan_us: float, left_s: float) -> Question | None:
        """The question to ask now; None when there is none, or none is worth the time that is left and none is owed."""
        chosen, turn = self._choice(list(questions), plan_us, left_s)
        self.turn = turn
        return chosen

    def likely(self, questions: Iterable[Question], plan_us: float, left_s: float) -> Question | None:
        """What `choose` would say, while an answer is awaited that may change it."""
        return self._choice(list(questions), plan_us, left_s)[0]

    def _choice(self, found: Sequence[Question], plan_us: float, left_s: float) -> tuple[Question | None, int]:
        """The question to ask, and the turn that it is asked in."""
        closing = next((one for one in found if one.closing), None)
        found = [one for one in found if not one.closing]
        if not found:
            return closing, self.turn
        best = max(found, key=lambda one: self.worth(one, plan_us))
        if closing is not None and left_s <= closing.cost_s + best.cost_s:
            return closing, self.turn
        if self.worth(best, plan_us) * left_s < WORTHLESS * plan_us:
            return next((one for one in found if one.owed), closing), self.turn
        turn = self.turn + 1
        if turn % EXPLORE_EVERY == 0:
            least = EXPLORED * max(one.rate for one in found)
            promising = [one for one in found if one.rate >= least]
            return min(promising, key=lambda one: self.account(one.kind).spent_s), turn
        return best, turn

    def ask(self, question: Question, budget: Budget, plan_us: Callable[[], float | None]) -> None:
        """Asks it, and keeps what it promised and paid; `plan_us`: time of the best plan, before and after."""
        before_us, started = plan_us(), budget.now()
        question.ask(budget)
        after_us = plan_us()
        paid_us = max(0.0, before_us - after_us) if before_us is not None and after_us is not None else 0.0
        self.account(question.kind).enter(question.gain_us, paid_us, question.cost_s, budget.now() - started)
        if question.credit:
            self.account(question.credit).paid_us += paid_us
