"""The pool of children: what it hands out, tries again, discards and counts. Its children need no TVM."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from autofuse.measure.children.messages import Message
from autofuse.measure.children.pool import ATTEMPTS, START_ATTEMPTS, Again, Answer, Call, Pool, Program
from autofuse.measure.children.process import Child, ask
from autofuse.measure.measurement import Failure, Limits
from tests.measure.quiet_child import Echo, Echoed, Greet, Misbehave

HERE = Path(__file__).parent
MEMORY = 300 << 20


def program(crash: bool = False) -> Program:
    return Program("quiet_child", Call(Greet(crash), 120.0), paths=(HERE,), memory_bytes=MEMORY)


def first(word: str) -> Call:
    return Call(Misbehave(word) if word in ("complain", "sleep") else Echo(word), 120.0, "build_error")


Made = Callable[..., Pool[str]]


@pytest.fixture
def made() -> Iterator[Made]:
    pools: list[Pool[str]] = []

    def make(size: int = 1, start: Callable[[], Child] | None = None, **options: Any) -> Pool[str]:
        pools.append(Pool(start or program().start, first, size, "quiet child", **options))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def drained(pool: Pool[str], meanwhile: Callable[[], None] = lambda: None) -> list[Answer[str]]:
    """Answers until the pool is done; those that are no failures end their job."""
    found: list[Answer[str]] = []
    deadline = time.monotonic() + 600.0
    while not pool.done:
        assert time.monotonic() < deadline
        for answer in pool.step():
            found.append(answer)
            if answer.member is not None and not isinstance(answer.reply, Failure):
                pool.finish(answer.member)
        meanwhile()
    return found


def killer(pool: Pool[str], times: int) -> Callable[[], None]:
    """Kills the child that sleeps, `times` times; one that is dead already is not killed again."""
    left = [times]

    def kill() -> None:
        for member in pool.members:
            asleep = member.started and member.job is not None and member.job.work == "sleep"
            if left[0] and asleep and member.child.running():
                left[0] -= 1
                os.kill(member.child.pid, signal.SIGKILL)
                while member.child.running():
                    time.sleep(0.01)

    return kill


def test_every_job_is_answered_by_as_few_children_as_do(made: Made) -> None:
    pool = made(2)
    pool.submit(["a", "b", "c"])
    assert sorted(answer.reply.text for answer in drained(pool) if isinstance(answer.reply, Echoed)) == ["a", "b", "c"]
    assert len(pool.members) == 2
    pool.submit(["d"])
    assert [answer.work for answer in drained(pool)] == ["d"]
    assert len(pool.members) == 2


def test_a_crash_is_the_failure_of_its_own_job_and_another_child_goes_on(made: Made) -> None:
    pool = made()
    pool.submit(["complain", "a"])
    crashed, after = drained(pool)
    assert isinstance(crashed.reply, Failure)
    assert crashed.reply.kind == "build_error"
    assert "the sky is falling" in crashed.reply.message
    assert after.reply == Echoed("a")


def test_a_job_whose_children_are_killed_is_tried_again_but_not_for_ever(made: Made) -> None:
    pool = made()
    pool.submit(["sleep", "a"])
    found = drained(pool, killer(pool, ATTEMPTS))
    assert {answer.work for answer in found} == {"sleep", "a"}
    (ended,) = (answer.reply for answer in found if answer.work == "sleep")
    assert isinstance(ended, Failure)
    assert ended.kind == "out_of_memory"


def test_what_a_child_holds_is_made_again_when_it_dies(made: Made) -> None:
    pool = made()
    pool.submit(["kept"])
    answers: list[Answer[str]] = []
    while not answers:
        answers = pool.step()
    (member,) = pool.members
    pool.hold(member)
    assert pool.done
    pool.ask_now(member, Call(Misbehave("complain"), 120.0))
    assert not pool.done
    assert [answer.reply for answer in drained(pool)] == [Echoed("kept")]


def test_work_that_is_held_and_lost_too_often_is_given_back_with_the_reason(made: Made) -> None:
    pool = made()
    pool.submit(["kept"])
    answers: list[Answer[str]] = []
    while not pool.done:
        for answer in pool.step():
            answers.append(answer)
            if answer.member is not None:
                pool.hold(answer.member)
                pool.ask_now(answer.member, Call(Misbehave("complain"), 120.0))
    ended = answers[-1].reply
    assert len(answers) == ATTEMPTS + 1
    assert isinstance(ended, Failure)
    assert ended.kind == "device_lost"
    assert f"lost with its process {ATTEMPTS} times" in ended.message


def test_when_no_child_starts_all_work_comes_back_and_new_work_is_tried_anew(made: Made) -> None:
    started = []

    def start() -> Child:
        started.append(1)
        return program(crash=len(started) <= START_ATTEMPTS).start()

    pool = made(start=start)
    pool.submit(["a", "b"])
    found = drained(pool)
    assert [answer.work for answer in found] == ["a", "b"]
    for answer in found:
        assert isinstance(answer.reply, Failure)
        assert answer.reply.kind == "device_lost"
        assert answer.reply.message.startswith("no quiet child starts: ")
        assert "the sky is falling" in answer.reply.message
    pool.submit(["c"])
    assert [answer.reply for answer in drained(pool)] == [Echoed("c")]
    assert len(started) == START_ATTEMPTS + 1


def test_a_child_is_replaced_after_its_share_of_jobs_and_when_it_died_idle(made: Made) -> None:
    pool = made(limits=Limits(candidates=2))
    seen: list[int] = []
    for word in ("a", "b", "c"):
        pool.submit([word])
        drained(pool)
        seen.append(pool.members[0].child.pid)
    assert seen[0] == seen[1] != seen[2]
    os.kill(seen[2], signal.SIGKILL)
    pool.submit(["d"])
    while pool.members[0].child.running():
        time.sleep(0.01)
    assert [answer.reply for answer in drained(pool)] == [Echoed("d")]
    assert pool.members[0].child.pid != seen[2]


def test_nothing_new_is_handed_out_while_the_owner_holds_it_back(made: Made) -> None:
    pool = made()
    pool.submit(["a"])
    assert pool.step(hold=True) == []
    assert not pool.members
    assert [answer.reply for answer in drained(pool)] == [Echoed("a")]


def test_a_pool_that_is_restarted_begins_its_work_anew_with_children_of_the_other_kind(made: Made) -> None:
    pool = made()
    pool.submit(["sleep", "b"])
    while not pool.under_way():
        pool.step()
    pid = pool.members[0].child.pid
    pool.restart(program().start, 2)
    assert not psutil.pid_exists(pid)
    assert [job.work for job in pool.waiting] == ["sleep", "b"]
    found = drained(pool, killer(pool, ATTEMPTS))
    assert sorted(answer.work for answer in found) == ["b", "sleep"]


def test_a_judge_decides_what_a_childs_death_means(made: Made) -> None:
    verdicts: list[Failure | Again] = [Again(Failure("device_lost", "restarted")), Failure("wrong", "at fault")]
    pool = made(judge=lambda _child, _failure: verdicts.pop(0))
    pool.submit(["complain"])
    assert [answer.reply for answer in drained(pool)] == [Failure("wrong", "at fault")]
    assert not verdicts


def test_a_child_that_starts_idle_is_given_work_at_once(made: Made) -> None:
    """As a session on a device does, which its starter has greeted."""
    greeted: list[Message] = []

    def start() -> Child:
        child = Child("quiet_child", MEMORY, {}, [HERE])
        ask(child, Greet(), 120.0)
        return child

    pool = made(start=start, greeted=greeted.append)
    pool.submit(["a"])
    pool.feed()
    assert pool.under_way() == ["a"]
    assert [answer.reply for answer in drained(pool)] == [Echoed("a")]
    assert greeted == []


def test_an_idle_child_can_be_asked_something_beside_the_work(made: Made) -> None:
    pool = made()
    member = pool.any_member()
    assert not isinstance(member, Failure)
    assert pool.ask_now(member, Call(Echo("aside"), 120.0)) == Echoed("aside")
    broken = made(start=program(crash=True).start)
    failure = broken.any_member()
    assert isinstance(failure, Failure)
    assert "the sky is falling" in failure.message
    assert not broken.members
