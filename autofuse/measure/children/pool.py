"""A pool of children that work on jobs: hands out, tries again, discards, and counts what does not start."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from autofuse.measure.children.messages import Message, Request
from autofuse.measure.children.process import TICK_S, Child, Reply, poll, wait
from autofuse.measure.measurement import Failure, Left, Limits, no_end
from autofuse.values.processes import default_memory

ATTEMPTS = 3
"""Children that a job is handed to, at most: one that ends with each of them is taken for the cause."""
START_ATTEMPTS = 2
NO_LIMITS = Limits(candidates=1 << 62, growth_bytes=1 << 62)

W = TypeVar("W")


@dataclass(frozen=True)
class Call:
    """A request with its limit in seconds, and what a crash meanwhile counts as."""

    request: Request[Any]
    limit_s: float
    crash_kind: str = "run_error"


@dataclass(frozen=True)
class Program:
    """A program for the children of a pool: `python -m module`, which is first asked `hello`.

    `memory_bytes`: what each may take (None: an equal share for `share` of them). `paths`: folders to import from.
    """

    module: str
    hello: Call
    environment: Mapping[str, str] = field(default_factory=dict)
    paths: tuple[Path, ...] = ()
    memory_bytes: int | None = None
    share: int = 1

    def start(self) -> Child:
        """A new child, with `hello` under way; DeviceError when the system starts none."""
        child = Child(self.module, self.memory_bytes or default_memory(self.share), self.environment, self.paths)
        child.request(self.hello.request, self.hello.limit_s, self.hello.crash_kind)
        return child


@dataclass(eq=False)
class Job(Generic[W]):
    """One piece of work on its way through a pool; `attempts`: children that it was handed to."""

    work: W
    attempts: int = 0


@dataclass(eq=False)
class Member(Generic[W]):
    """A child of a pool, the job that it works on, and the jobs whose results it holds.

    `started`: whether it has answered its first request. `served`: jobs that ended in it.
    """

    child: Child
    started: bool = False
    job: Job[W] | None = None
    held: list[Job[W]] = field(default_factory=list)
    served: int = 0
    idle_bytes: int = 0


@dataclass(frozen=True)
class Answer(Generic[W]):
    """An answer to a request about `work`. A Failure ends the job; it has no `member` when no child starts."""

    work: W
    reply: Reply
    member: Member[W] | None


@dataclass(frozen=True)
class Again:
    """The verdict that a job was not at fault: it is tried again, and ends with `failure` after the last try."""

    failure: Failure


Judge = Callable[[Child, Failure], Failure | Again]
"""Called with a child that died under a job, and how: whether the job was at fault."""


def killed_from_outside(child: Child, failure: Failure) -> Failure | Again:
    """A job need not have caused that its child was killed by SIGKILL."""
    return Again(failure) if child.killed else failure


class Pool(Generic[W]):
    """Up to `size` children, each working on one job at a time; used from one thread.

    `start`: makes a child, with its first request under way or already answered. `first`: what a child is asked when
    it is handed a job. `name`: of its children, for messages. `limits`: after how much work a child is replaced.
    `judge`: see `Judge`. `greeted`: takes what each child answers to its first request.

    An owner calls `feed`, waits for its children to answer (`busy`, `poll`), and passes what they say to `take`.
    For each Answer that is no Failure it says what comes next: `ask`, `hold` or `finish`.
    """

    def __init__(
        self,
        start: Callable[[], Child],
        first: Callable[[W], Call],
        size: int,
        name: str,
        *,
        limits: Limits = NO_LIMITS,
        judge: Judge = killed_from_outside,
        greeted: Callable[[Message], None] = lambda _answer: None,
    ) -> None:
        self.size, self.name, self.limits = max(1, size), name, limits
        self.waiting: deque[Job[W]] = deque()
        self.members: list[Member[W]] = []
        self.start_failure: Failure | None = None
        self._start, self._first, self._judge, self._on_greeting = start, first, judge, greeted
        self._failed_starts = 0
        self._given_up: list[Answer[W]] = []

    # -- what an owner calls

    def submit(self, works: Iterable[W]) -> None:
        """Queue work; children that did not start before get another chance."""
        self._failed_starts = 0
        self.waiting.extend(Job(work) for work in works)

    def feed(self, hold: bool = False) -> list[Answer[W]]:
        """Hand out what waits (nothing new while `hold`); the jobs that no child can take any more."""
        self._replace_worn()
        if self.waiting and not hold:
            self._start_members()
            for member in self.members:
                if self.waiting and member.job is None and not member.child.busy:
                    self._hand_out(member, self.waiting.popleft())
        given_up, self._given_up = self._given_up, []
        return given_up

    def busy(self) -> list[Child]:
        """Children with a request under way."""
        return [member.child for member in self.members if member.child.busy]

    @property
    def done(self) -> bool:
        """Whether nothing waits, is under way or remains to be given back."""
        return not (self.waiting or self._given_up or self.under_way())

    def under_way(self) -> list[W]:
        """Work that children do now."""
        return [member.job.work for member in self.members if member.job is not None]

    def step(self, hold: bool = False) -> list[Answer[W]]:
        """`feed`, wait a moment, and `take` what the children said."""
        found = self.feed(hold)
        for child, reply in poll(self.busy(), TICK_S):
            found += self.take(child, reply)
        return found

    def take(self, child: Child, reply: Reply) -> list[Answer[W]]:
        """What a child's reply says about its job: nothing when the job is tried again, or none was under way."""
        member = next((one for one in self.members if one.child is child), None)
        if member is None:
            return []  # it was discarded meanwhile
        if not member.started:
            self._greeted(member, reply)
            return []
        job = member.job
        assert job is not None
        if not isinstance(reply, Failure):
            return [Answer(job.work, reply, member)]
        self.finish(member)
        verdict: Failure | Again = reply
        if not child.alive:
            self._lost_under_a_job(member)
            verdict = self._judge(child, reply)
        if isinstance(verdict, Again) and job.attempts < ATTEMPTS:
            self.waiting.append(job)
            return []
        failure = verdict.failure if isinstance(verdict, Again) else verdict
        return [Answer(job.work, failure, member)]

    def ask(self, member: Member[W], call: Call) -> None:
        """The next request about the job of `member`."""
        member.child.request(call.request, call.limit_s, call.crash_kind)

    def hold(self, member: Member[W]) -> None:
        """The child keeps what it made of its job, and is free for others. If it dies, the job starts anew."""
        assert member.job is not None
        member.held.append(member.job)
        member.job = None

    def resume(self, member: Member[W], job: Job[W]) -> None:
        """Go on with a job that `member` holds."""
        member.held.remove(job)
        member.job = job

    def finish(self, member: Member[W]) -> None:
        """The job of `member` has ended."""
        member.job = None
        member.served += 1

    def ask_now(self, member: Member[W], call: Call, tick_s: float = TICK_S, left: Left = no_end) -> Reply | None:
        """One request beside any job, waited for; None when no time is `left` for its answer."""
        self.ask(member, call)
        reply = wait(member.child, tick_s, left)
        if isinstance(reply, Failure) and not member.child.alive:
            self.lost(member)
            self._judge(member.child, reply)
        return reply

    def lost(self, member: Member[W]) -> None:
        """`member` died at rest: what it held is made elsewhere, unless that has happened too often."""
        given_up = [job for job in member.held if job.attempts >= ATTEMPTS]
        self._give_back(given_up, f"lost with its process {ATTEMPTS} times, through no fault of its own")
        self.waiting.extend(job for job in member.held if job not in given_up)
        member.held.clear()
        self._discard(member)

    def any_member(self) -> Member[W] | Failure:
        """A child that is idle, started and waited for if need be; why none starts."""
        free = (one for one in self.members if not one.started or not one.child.busy)
        member = next(free, None) or self._start_member()
        if not member.started:
            self._greeted(member, wait(member.child))
        return member if member.started else self.start_failure or Failure("device_lost", "")

    def withdraw(self, work: W) -> Member[W] | None:
        """Forget work that waits or is held; who holds it. What is under way goes on."""
        self.waiting = deque(job for job in self.waiting if job.work is not work)
        for member in self.members:
            for job in [job for job in member.held if job.work is work]:
                member.held.remove(job)
                return member
        return None

    def worn(self) -> bool:
        """Whether a child has served long enough, or has grown, and is to be replaced once it holds nothing."""
        return any(self._is_worn(member) for member in self.members)

    def restart(self, start: Callable[[], Child], size: int) -> None:
        """Go on with children of another kind; what is under way or held is begun anew, at no cost to it."""
        jobs = [job for member in self.members for job in (member.job, *member.held) if job is not None]
        for job in jobs:
            job.attempts -= 1
        for member in list(self.members):
            self._discard(member)
        self.waiting.extendleft(reversed(jobs))
        self._start, self.size, self._failed_starts = start, max(1, size), 0

    def close(self) -> None:
        """End all children, and forget what waits; new ones are started for new work."""
        for member in self.members:
            member.child.kill()
        self.members.clear()
        self.waiting.clear()
        self._given_up.clear()

    # -- children

    def _start_members(self) -> None:
        wanted = min(self.size, len(self.waiting) + sum(member.job is not None for member in self.members))
        while self._failed_starts < START_ATTEMPTS and len(self.members) < wanted:
            self._start_member()
        if not self.members:
            reason = self.start_failure.message if self.start_failure else ""
            self._give_back(self.waiting, f"no {self.name} starts: {reason}")
            self.waiting.clear()
            self._failed_starts = 0

    def _start_member(self) -> Member[W]:
        child = self._start()
        member: Member[W] = Member(child, started=not child.busy)
        self.members.append(member)
        return member

    def _greeted(self, member: Member[W], reply: Reply) -> None:
        if isinstance(reply, Failure):
            self._failed_starts, self.start_failure = self._failed_starts + 1, reply
            self._discard(member)
        else:
            self._failed_starts, member.started = 0, True
            member.idle_bytes = member.child.memory()
            self._on_greeting(reply)

    def _hand_out(self, member: Member[W], job: Job[W]) -> None:
        job.attempts += 1
        member.job = job
        self.ask(member, self._first(job.work))

    def _replace_worn(self) -> None:
        """Drop children that died while idle, and those that served long enough or have grown."""
        for member in list(self.members):
            if member.child.busy or member.job or member.held:
                continue
            if self._is_worn(member) or not member.child.running():
                self._discard(member)

    def _is_worn(self, member: Member[W]) -> bool:
        grown = member.child.memory() - member.idle_bytes
        return member.served >= self.limits.candidates or grown > self.limits.growth_bytes

    def _lost_under_a_job(self, member: Member[W]) -> None:
        """What `member` held is made elsewhere and costs no attempt: the job under way is charged for it."""
        for job in member.held:
            job.attempts -= 1
        self.lost(member)

    def _discard(self, member: Member[W]) -> None:
        member.child.kill()
        if member in self.members:
            self.members.remove(member)

    def _give_back(self, jobs: Iterable[Job[W]], message: str) -> None:
        self._given_up += [Answer(job.work, Failure("device_lost", message), None) for job in jobs]
