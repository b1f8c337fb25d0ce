"""Attempts in a process of their own, with limits of time and memory: whatever they do, the next one goes on."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from autofuse.errors import AutofuseError

Attempt = Callable[[], None]
"""Does something with damaged input; an AutofuseError is a refusal, any other exception a finding."""

ACCEPTED, REFUSED, SILENT, TRACEBACK, CRASH, HANG = (
    "accepted",
    "refused",
    "refused silently",
    "traceback",
    "crash",
    "hang",
)
FINDINGS = (SILENT, TRACEBACK, CRASH, HANG)
GRACE_S = 300.0
"""Wall time beyond the processor time that an attempt may take, on a machine that is busy with others."""


@dataclass(frozen=True)
class Limits:
    """Of one attempt: seconds of processor time, and bytes of memory more than there were before."""

    cpu_s: float = 20.0
    memory_bytes: int = 2 << 30


@dataclass(frozen=True)
class Outcome:
    """What became of an attempt; `text`: the message, or the end of the traceback."""

    kind: str
    text: str = ""
    cpu_s: float = 0.0

    @property
    def finding(self) -> bool:
        """Whether there is something to mend."""
        return self.kind in FINDINGS


DEFAULT_LIMITS = Limits()


def outcomes(attempts: Sequence[Attempt], limits: Limits = DEFAULT_LIMITS) -> Iterator[Outcome]:
    """What becomes of each attempt, in their order; they share a process until one breaks it."""
    begun = 0
    while begun < len(attempts):
        done = 0
        for outcome in _in_child(attempts[begun:], limits):
            done += 1
            yield outcome
        begun += done


def outcome_of(attempt: Attempt, limits: Limits = DEFAULT_LIMITS) -> Outcome:
    """What becomes of one attempt."""
    (found,) = outcomes([attempt], limits)
    return found


def counted(found: Sequence[Outcome]) -> Counter[str]:
    """How many of each kind."""
    return Counter(outcome.kind for outcome in found)


def _in_child(attempts: Sequence[Attempt], limits: Limits) -> Iterator[Outcome]:
    """Outcomes until the child ends; one that the child does not report is a crash or a hang."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reads)
        _work(attempts, limits, writes)
    os.close(writes)
    reported, line = 0, None
    with os.fdopen(reads, "rb") as stream:
        while reported < len(attempts) and (line := _line(stream, limits.cpu_s + GRACE_S)):
            reported += 1
            yield Outcome(**json.loads(line))
    if line is None:
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if reported < len(attempts):
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        if line is None or number == signal.SIGXCPU:
            yield Outcome(HANG, f"more than {limits.cpu_s:g} s of processor time")
        else:
            yield Outcome(CRASH, f"signal {number}" if number else f"exit {os.waitstatus_to_exitcode(status)}")


def _line(stream: BinaryIO, wait_s: float) -> bytes | None:
    """The next line; empty when the child has ended, None when it says nothing for so long."""
    return stream.readline() if select.select([stream], [], [], wait_s)[0] else None


def _work(attempts: Sequence[Attempt], limits: Limits, writes: int) -> None:
    """The child's life: it never returns."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    silence = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silence, descriptor)
    _limit_memory(limits.memory_bytes)
    with os.fdopen(writes, "wb") as stream:
        for attempt in attempts:
            _watch(limits.cpu_s)
            found = _outcome(attempt)
            stream.write(json.dumps({"kind": found.kind, "text": found.text, "cpu_s": found.cpu_s}).encode() + b"\n")
            stream.flush()
    os._exit(0)


def _watch(cpu_s: float) -> None:
    """Ends the process after so much processor time, even inside of native code."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime + cpu_s) + 1, hard))


def _limit_memory(more: int) -> None:
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    data = next(int(line.split()[1]) for line in status if line.startswith("VmData")) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (data + more, data + more))


def _outcome(attempt: Attempt) -> Outcome:
    start = time.process_time()
    try:
        attempt()
        kind, text = ACCEPTED, ""
    except AutofuseError as error:
        text = str(error)
        kind = REFUSED if text.strip() and "\n" not in text.strip() else SILENT
    except BaseException:  # noqa: BLE001 whatever gets through is the finding
        kind, text = TRACEBACK, traceback.format_exc()[-1500:]
    return Outcome(kind, text, time.process_time() - start)
