"""The types that ONNX Runtime infers, in a process of its own: whatever a model does to it, the caller goes on.

`python -m autofuse.ort.inference` is that process: models from standard input, types to standard output.
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
from contextlib import suppress
from dataclasses import asdict
from types import TracebackType
from typing import Any, BinaryIO

from autofuse.errors import DeviceError, InputError
from autofuse.ort.session import ValueType, value_types
from autofuse.values.processes import child_environment, follow_parent, lower_limit, processor_limit

CPU_S = 20
"""Processor time for all that is asked of one process."""
WALL_S = 300.0
"""Wall time for one answer, on a machine that is busy with others."""
MEMORY_BYTES, COPIES = 2 << 30, 4
"""Memory of the process: so much, and for each byte of the model so many more."""
_LENGTH = struct.Struct("<Q")


class TypeInference:
    """ONNX Runtime's types of the values of models, as long as the block lasts; `name`: of the model, for messages."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> TypeInference:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe:
                    pipe.close()

    def __call__(self, model: bytes) -> dict[str, ValueType]:
        """The type of each input and output of `model`, also of outputs that declare none.

        InputError when ONNX Runtime refuses the model, or takes more than its time or memory; DeviceError when it
        cannot be started.
        """
        if self._process is None:
            self._process = _started(MEMORY_BYTES + COPIES * len(model))
        said = json.loads(self._answer(self._process, model))
        if "refused" in said:
            raise InputError(f"{self._name}: {said['refused']}")
        return {
            name: ValueType(one["text"], None if one["shape"] is None else tuple(one["shape"]))
            for name, one in said["types"].items()
        }

    def _answer(self, process: subprocess.Popen[bytes], model: bytes) -> bytes:
        """A line of the process."""
        assert process.stdin and process.stdout
        left = memoryview(_LENGTH.pack(len(model)) + model)
        with suppress(BrokenPipeError):
            while left:
                left = left[os.write(process.stdin.fileno(), left) :]
        found = bytearray()
        deadline = time.monotonic() + WALL_S
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not found.endswith(b"\n"):
                if not selector.select(deadline - time.monotonic()):
                    raise InputError(f"{self._name}: ONNX Runtime does not answer within {WALL_S:g} s")
                if not (data := os.read(process.stdout.fileno(), 1 << 20)):
                    raise self._ended(process.wait())
                found += data
        return bytes(found)

    def _ended(self, code: int) -> InputError:
        """How the process ended, as a refusal."""
        how = f"ended with {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        if code == -signal.SIGXCPU:
            how = f"took more than {CPU_S} s of processor time"
        return InputError(f"{self._name}: ONNX Runtime {how} while it read the model; simplify the model")


def _started(memory_bytes: int) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(os.getpid()), str(CPU_S), str(memory_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=child_environment(),
            start_new_session=True,
            bufsize=0,
        )
    except OSError as error:
        raise DeviceError(f"cannot start a child process ({sys.executable}): {error}") from error


def main(parent: int, cpu_s: int, memory_bytes: int) -> None:
    """Answer until standard input ends. Limits are only ever lowered; what libraries print is no answer."""
    follow_parent(parent)
    lower_limit(resource.RLIMIT_CORE, 0)
    lower_limit(resource.RLIMIT_DATA, memory_bytes)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with processor_limit(cpu_s):
        while head := sys.stdin.buffer.read(_LENGTH.size):
            answers.write(json.dumps(_said(sys.stdin.buffer, *_LENGTH.unpack(head))).encode() + b"\n")
            answers.flush()


def _said(models: BinaryIO, size: int) -> dict[str, Any]:
    try:
        found = value_types("", models.read(size))
    except MemoryError:
        return {"refused": "ONNX Runtime takes more memory than it may to read the model; simplify the model"}
    except InputError as error:
        return {"refused": str(error).removeprefix(": ")}
    return {"types": {name: asdict(one) for name, one in found.items()}}


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
