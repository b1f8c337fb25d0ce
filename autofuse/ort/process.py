"""ONNX Runtime in a process of its own: whatever a model does to it, the caller goes on.

A request is the length of a body and the body; an answer is a line of JSON. A refusal is an answer, too.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

from autofuse.errors import DeviceError, InputError
from autofuse.values.processes import child_environment, follow_parent, lower_limit, processor_limit

_LENGTH = struct.Struct("<Q")
UNLIMITED = 0


class LostError(Exception):
    """The process gave no answer; the text says how it ended, such as "ended with SIGSEGV"."""


class HungError(LostError):
    """It did not end by itself."""


class OrtProcess:
    """`python -m module`, which calls `serve`. `cpu_s`: processor time for all that is asked of it (0: any).

    `memory_bytes`: its memory. DeviceError when it cannot be started.
    """

    def __init__(self, module: str, cpu_s: int, memory_bytes: int) -> None:
        self._cpu_s = cpu_s
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(os.getpid()), str(cpu_s), str(memory_bytes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=child_environment(),
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise DeviceError(f"cannot start a child process ({sys.executable}): {error}") from error
        assert self._process.stdin
        os.set_blocking(self._process.stdin.fileno(), False)

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def ask(self, body: bytes, wall_s: float) -> dict[str, Any]:
        """Its answer. LostError when there is none within `wall_s`: then it has ended."""
        deadline = time.monotonic() + wall_s
        try:
            self._send(body, deadline, wall_s)
            said: dict[str, Any] = json.loads(self._line(deadline, wall_s))
        except BaseException:
            self.end()
            raise
        return said

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()

    def _send(self, body: bytes, deadline: float, wall_s: float) -> None:
        """A process that hangs may read nothing more, and a pipe holds little: what is written has its time, too."""
        assert self._process.stdin
        left = memoryview(_LENGTH.pack(len(body)) + body)
        with suppress(BrokenPipeError), selectors.DefaultSelector() as selector:
            selector.register(self._process.stdin, selectors.EVENT_WRITE)
            while left:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise HungError(f"does not answer within {wall_s:g} s")
                left = left[os.write(self._process.stdin.fileno(), left) :]

    def _line(self, deadline: float, wall_s: float) -> bytes:
        assert self._process.stdout
        found = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not found.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise HungError(f"does not answer within {wall_s:g} s")
                if not (data := os.read(self._process.stdout.fileno(), 1 << 20)):
                    raise LostError(self._ending(self._process.wait()))
                found += data
        return bytes(found)

    def _ending(self, code: int) -> str:
        if code == -signal.SIGXCPU:
            return f"took more than {self._cpu_s} s of processor time"
        return f"ended with {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def serve(answer: Callable[[bytes], dict[str, Any]], parent: int, cpu_s: int, memory_bytes: int) -> None:
    """Answer until standard input ends. Limits are only ever lowered; what libraries print is no answer.

    An InputError of `answer` is a refusal, its text the reason; so is too little memory.
    """
    follow_parent(parent)
    lower_limit(resource.RLIMIT_CORE, 0)
    lower_limit(resource.RLIMIT_DATA, memory_bytes)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with processor_limit(cpu_s) if cpu_s != UNLIMITED else nullcontext():
        while head := sys.stdin.buffer.read(_LENGTH.size):
            (size,) = _LENGTH.unpack(head)
            answers.write(json.dumps(_said(answer, sys.stdin.buffer.read(size))).encode() + b"\n")
            answers.flush()


def _said(answer: Callable[[bytes], dict[str, Any]], body: bytes) -> dict[str, Any]:
    try:
        return answer(body)
    except MemoryError:
        return {"refused": "ONNX Runtime takes more memory than it may for this model; simplify the model"}
    except InputError as error:
        return {"refused": str(error).removeprefix(": ")}
