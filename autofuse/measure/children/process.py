"""The parent's side: disposable child processes, with their deadlines and memory watched from here."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast, overload

import psutil

from autofuse.errors import DeviceError
from autofuse.measure.children.child import MEMORY_VARIABLE, PARENT_VARIABLE
from autofuse.measure.children.messages import (
    Known,
    Message,
    ProtocolError,
    Refused,
    Request,
    decode,
    encode,
    framed,
    known,
    unframed,
)
from autofuse.measure.measurement import Failure, Left, no_end
from autofuse.values.processes import child_environment

LOG_BYTES = 16 << 10
READS = 16
TICK_S = 0.05
SPIN_S = 0.25
"""Longer than the thread pools of TVM (0.17 s) and of ONNX Runtime (0.04 s) spin after their last task."""

Reply = Message | Failure
A = TypeVar("A", bound=Message)


class Child:
    """One child process: its own session, spawned (never forked), killed with its whole group.

    At most one request is under way; `wait_any` collects answers. A child that broke a limit, crashed or
    wrote garbage is dead afterwards (`alive` is False) and its request answered by a Failure. On Linux
    children also die with the thread that made them: make and use them in one thread.
    """

    def __init__(
        self,
        module: str,
        memory_bytes: int,
        environment: Mapping[str, str],
        paths: Iterable[Path],
        python: Path | None = None,
    ) -> None:
        """`python`: another environment's interpreter, with NumPy and pydantic; it finds this autofuse too.

        `killed`: whether somebody else ended it by SIGKILL, as the system does when memory runs out.
        """
        self.memory_bytes = memory_bytes
        self.killed = False
        self.deadline: float | None = None
        self.crash_kind = "run_error"
        self._limit_s = 0.0
        self._answers: Known[Message] = {}
        self._buffer = bytearray()
        self._log = bytearray()
        command = [str(python or sys.executable), "-P", "-m", module]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(memory_bytes, environment, paths),
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise DeviceError(f"cannot start a child process ({' '.join(command)}): {error}") from error
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._in, self._out, self._err = (
            pipe.fileno() for pipe in (self._process.stdin, self._process.stdout, self._process.stderr)
        )
        for descriptor in (self._in, self._out, self._err):
            os.set_blocking(descriptor, False)
        self.alive = True

    @property
    def pid(self) -> int:
        """Process id, also the id of its group."""
        return self._process.pid

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        return self.deadline is not None

    def request(self, message: Request[Any], limit_s: float, crash_kind: str = "run_error") -> None:
        """Send `message`; `limit_s` seconds from now it has failed. `crash_kind`: what a crash counts as."""
        assert not self.busy, "a child answers one request at a time"
        self._limit_s, self.crash_kind = limit_s, crash_kind
        self._answers = known((message.answer, Refused))
        self.deadline = time.monotonic() + limit_s
        if self.alive:
            self._send(memoryview(framed(encode(message))))

    def running(self) -> bool:
        """Whether the process still runs (a child may die while idle)."""
        if not self.alive or self._process.poll() is not None:
            return False
        try:  # killed, but not yet to be waited for: its other threads are still going
            return psutil.Process(self.pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        except psutil.Error:
            return False

    def memory(self) -> int:
        """Bytes of memory in use, mapped files aside; 0 when the child is gone."""
        try:
            return own_memory(self.pid) if self.alive else 0
        except (OSError, psutil.Error):
            return 0

    def log(self) -> str:
        """The end of what the child printed."""
        return self._log.decode(errors="replace").strip()

    def pause(self) -> None:
        """Stop all threads of an idle child, so that pools which spin after their work disturb nobody (Linux).

        Elsewhere it only waits a little, because a stopped child could outlive its parent there.
        """
        if sys.platform == "linux" and self.running():
            os.killpg(self.pid, signal.SIGSTOP)
        elif self.alive:
            time.sleep(SPIN_S)

    def resume(self) -> None:
        """Undo `pause`."""
        if sys.platform == "linux" and self.running():
            os.killpg(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End the child's process group, if it still runs, and free its pipes."""
        if not self.alive:
            return
        self.alive = False
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._drain(self._err, self._log)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe:
                pipe.close()

    def _send(self, frame: memoryview) -> None:
        while frame:
            try:
                frame = frame[os.write(self._in, frame) :]
            except BlockingIOError:
                if self.deadline is not None and time.monotonic() > self.deadline:
                    return
                self._drain(self._err, self._log)
                time.sleep(0.001)
            except OSError:
                return

    def _drain(self, descriptor: int, into: bytearray) -> bool:
        """Read what is there (a flood piecemeal); False at the end of the pipe."""
        for _ in range(READS):
            try:
                data = os.read(descriptor, 1 << 16)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not data:
                return False
            into += data
            if into is self._log:
                del into[:-LOG_BYTES]
        return True

    def collect(self, watch_memory: bool) -> Reply | None:
        """The answer to the request under way, a Failure, or None while it still runs."""
        if not self.alive:
            return self._fail(self.crash_kind, "the process had died before")
        open_pipe = self._drain(self._out, self._buffer)
        self._drain(self._err, self._log)
        try:
            text = unframed(self._buffer)
            message = None if text is None else decode(text, self._answers)
        except ProtocolError as error:
            return self._garbage(error)
        if message is not None:
            self.deadline = None
            if self._buffer:
                return self._fail(self.crash_kind, "the process answered more than it was asked")
            return self._refusal(message) if isinstance(message, Refused) else message
        if not open_pipe:
            return self._died()
        if watch_memory and self.memory() > self.memory_bytes:
            return self._fail("out_of_memory", f"more than {self.memory_bytes >> 20} MiB in use")
        if self.deadline is not None and time.monotonic() > self.deadline:
            return self._fail("timeout", f"no answer within {self._limit_s:g} s")
        return None

    def _refusal(self, refused: Refused) -> Failure:
        try:
            return Failure(refused.kind or self.crash_kind, refused.message)
        except ValueError as error:
            return self._garbage(error)

    def _garbage(self, error: Exception) -> Failure:
        return self._fail(self.crash_kind, f"the process wrote garbage to its coordinator: {error}")

    def _fail(self, kind: str, message: str) -> Failure:
        self.kill()
        self.deadline = None
        return Failure(kind, message)

    def _died(self) -> Failure:
        try:
            code = self._process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            return self._fail(self.crash_kind, "the process closed its pipe")
        self._drain(self._err, self._log)
        log = self.log()
        if code == -signal.SIGXCPU:
            return self._fail("timeout", "it took more processor time than it may")
        if code == -signal.SIGKILL:
            self.killed = True
            return self._fail("out_of_memory", "killed by the system, as it does when memory runs out")
        kind = "out_of_memory" if "bad_alloc" in log or "MemoryError" in log else self.crash_kind
        how = f"crashed with {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        told = "\n".join(line for line in log.splitlines() if not line.lstrip().startswith(('File "', "Traceback (")))
        tail = f"; it last printed: {told[-500:]}" if told else ""
        return self._fail(kind, f"the process {how}{tail}")


def wait_any(children: Iterable[Child], tick_s: float = TICK_S) -> list[tuple[Child, Reply]]:
    """Answers of busy `children`, at least one; checks deadlines and memory every `tick_s` seconds."""
    waiting = list(children)
    assert any(child.busy for child in waiting), "nothing to wait for"
    while True:
        found = poll(waiting, tick_s)
        if found:
            return found


def poll(children: Iterable[Child], tick_s: float = TICK_S) -> list[tuple[Child, Reply]]:
    """Answers of busy `children` that are there within `tick_s` seconds; checks deadlines and memory."""
    busy = [child for child in children if child.busy]
    found = [(child, reply) for child in busy if (reply := child.collect(True)) is not None]
    if found or not busy:
        return found
    with selectors.DefaultSelector() as selector:
        for child in busy:
            selector.register(child._out, selectors.EVENT_READ)
            selector.register(child._err, selectors.EVENT_READ)
        selector.select(_patience(busy, tick_s))
    return [(child, reply) for child in busy if (reply := child.collect(True)) is not None]


@overload
def wait(child: Child, tick_s: float = TICK_S) -> Reply: ...
@overload
def wait(child: Child, tick_s: float, left: Left) -> Reply | None: ...
def wait(child: Child, tick_s: float = TICK_S, left: Left = no_end) -> Reply | None:
    """The answer of one child, see `wait_any`; None when no time is `left` for it, and then it is busy still."""
    while left() > 0:
        found = poll([child], tick_s)
        if found:
            return found[0][1]
    return None


def ask(child: Child, request: Request[A], limit_s: float, crash_kind: str = "run_error") -> A | Failure:
    """Send one request and wait for what comes of it."""
    child.request(request, limit_s, crash_kind)
    return cast(A | Failure, wait(child))


def own_memory(pid: int) -> int:
    """Bytes that process `pid` holds in memory for itself: not the pages of files (libraries, mapped arrays)."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return int(psutil.Process(pid).memory_info().rss)
    lines = (line.split() for line in status.read_text().splitlines())
    return sum(int(line[1]) << 10 for line in lines if line[0] in ("RssAnon:", "RssShmem:"))


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _patience(busy: Iterable[Child], tick_s: float) -> float:
    deadlines = [child.deadline for child in busy if child.deadline is not None]
    return max(0.0, min(tick_s, min(deadlines) - time.monotonic() + 0.001))


def _environment(memory_bytes: int, extra: Mapping[str, str], paths: Iterable[Path]) -> dict[str, str]:
    """The parent's environment, the limits, and where the child finds autofuse and `paths`."""
    own = {"PYTHONUNBUFFERED": "1", PARENT_VARIABLE: str(os.getpid()), MEMORY_VARIABLE: str(memory_bytes)}
    return child_environment({**extra, **own}, paths)
