"""A child without TVM for tests of the pipes: `python -m quiet_child`, which defines what it is asked, too."""

import mmap
import os
import sys
import time
from dataclasses import dataclass

from autofuse.measure.children.child import serve
from autofuse.measure.children.messages import Done, Message, Request, encode, framed

kept = []


@dataclass(frozen=True)
class Echoed(Message):
    text: str


@dataclass(frozen=True)
class Echo(Request[Echoed]):
    """Say it again; `wrong`: with a number where the text should be."""

    text: str = ""
    wrong: bool = False


@dataclass(frozen=True)
class Misbehave(Request[Done]):
    how: str


@dataclass(frozen=True)
class Dance(Request[Done]):
    """Which the child does not know."""


@dataclass(frozen=True)
class Greet(Request[Done]):
    """The first request of a child in a pool; `crash`: and its last."""

    crash: bool = False


def greet(request):
    return complain() if request.crash else Done()


def echo(request):
    if request.wrong:
        for descriptor in range(3, 10):
            try:
                os.write(descriptor, framed(b'Echoed {"text":7}'))
            except OSError:
                continue
        time.sleep(3600)
    return Echoed(request.text)


def misbehave(request):
    {"sleep": sleep, "stubborn": stubborn, "grow": grow, "twice": twice, "complain": complain}[request.how]()
    return Done()


def sleep():
    time.sleep(3600)


def stubborn():
    """Native code that holds the interpreter's lock."""
    sum(range(1 << 62))


def grow():
    """Take memory that RLIMIT_DATA does not count."""
    while True:
        piece = mmap.mmap(-1, 1 << 24)
        for page in range(0, 1 << 24, 4096):
            piece[page] = 1
        kept.append(piece)


def twice():
    for descriptor in range(3, 10):
        try:
            os.write(descriptor, framed(encode(Done())) * 2)
        except OSError:
            continue


def complain():
    sys.stderr.write('Traceback (most recent call last):\n  File "x.py", line 1\nthe sky is falling\n')
    sys.stderr.flush()
    os._exit(9)


if __name__ == "__main__":
    serve({Greet: greet, Echo: echo, Misbehave: misbehave})
