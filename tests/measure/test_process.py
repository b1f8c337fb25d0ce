"""Children follow their parent into the grave, whatever they are doing."""

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from autofuse.measure.children.messages import Request
from autofuse.measure.children.process import Child, ask
from autofuse.measure.measurement import Failure
from tests.measure.quiet_child import Dance, Echo, Echoed, Misbehave

HERE = Path(__file__).parent

PARENT = """
import sys
from pathlib import Path
from autofuse.measure.children.process import Child, ask
from tests.measure.quiet_child import Echo, Misbehave

child = Child("quiet_child", 1 << 30, {{}}, [Path({here!r})])
assert ask(child, Echo("hello"), 120).text == "hello"
{then}
print(child.pid, flush=True)
sys.stdin.read()
"""


def started_parent(then: str) -> tuple[subprocess.Popen[str], int]:
    code = PARENT.format(here=str(HERE), then=then)
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE.parents[1]
    )
    return parent, int(parent.stdout.readline())


def gone(pid: int, within_s: float = 300.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize(
    "then",
    [
        "",
        "child.request(Misbehave('sleep'), 100)",
        "child.request(Misbehave('stubborn'), 100)",
        "child.pause()",
    ],
    ids=["idle", "asleep", "in native code that holds the interpreter", "stopped"],
)
def test_a_killed_parent_leaves_no_child(then):
    parent, child = started_parent(then)
    assert psutil.pid_exists(child)
    parent.kill()
    parent.wait()
    assert gone(child)


def test_a_parent_that_ends_leaves_no_child():
    parent, child = started_parent("")
    parent.communicate("")
    assert gone(child)


@pytest.fixture
def child():
    made = Child("quiet_child", 300 << 20, {}, [HERE])
    yield made
    made.kill()


def answer(child: Child, request: Request, limit_s: float = 120.0):
    return ask(child, request, limit_s)


def test_an_unknown_request_is_refused_and_the_child_lives(child):
    reply = answer(child, Dance())
    assert isinstance(reply, Failure)
    assert reply.message == "unknown message 'Dance': expected one of Echo, Greet, Misbehave"
    assert child.running()


def test_an_ill_typed_request_is_refused_with_its_field_and_the_child_lives(child, monkeypatch):
    monkeypatch.setattr("autofuse.measure.children.process.encode", lambda _message: b'Echo {"text":[],"loud":1}')
    reply = answer(child, Echo("hello"))
    assert isinstance(reply, Failure)
    assert reply.message == "Echo: text: Input should be a valid string; loud: Unexpected keyword argument"
    assert child.running()


def test_an_ill_typed_answer_ends_the_child(child):
    reply = answer(child, Echo(wrong=True))
    assert isinstance(reply, Failure)
    assert "wrote garbage to its coordinator: Echoed: text: Input should be a valid string" in reply.message
    assert not child.running()


def test_a_stopped_child_goes_on_when_resumed(child):
    answer(child, Echo())
    child.pause()
    while psutil.Process(child.pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)
    child.resume()
    assert answer(child, Echo("on")) == Echoed("on")


def test_memory_beyond_the_limit_ends_a_child_that_does_not_notice(child):
    reply = answer(child, Misbehave("grow"))
    assert isinstance(reply, Failure)
    assert reply.kind == "out_of_memory"


def test_a_request_too_large_for_the_pipe_still_arrives(child):
    text = "x" * (1 << 21)
    assert answer(child, Echo(text)) == Echoed(text)


def test_a_stopped_child_with_a_full_pipe_times_out(child):
    answer(child, Echo())
    child.pause()
    reply = answer(child, Echo("x" * (1 << 21)), limit_s=0.5)
    assert isinstance(reply, Failure)
    assert reply.kind == "timeout"
    assert not child.running()


def test_an_answer_nobody_asked_for_ends_the_child(child):
    reply = answer(child, Misbehave("twice"))
    assert isinstance(reply, Failure)
    assert not child.running()


def test_the_end_of_what_a_crashed_child_printed_is_in_the_message(child):
    reply = answer(child, Misbehave("complain"))
    assert "the sky is falling" in reply.message
    assert "Traceback" not in reply.message
    assert "exited with code 9" in reply.message
