"""What a process that runs kernels holds: candidates to check and to time, wherever they were built."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.device.target import Target
from autofuse.kernels.workload.packing import to_physical
from autofuse.kernels.workload.workload import Value, Workload
from autofuse.measure.checking.tolerance import compare, poisoned
from autofuse.measure.children.child import Handler, RefusedError
from autofuse.measure.children.codec import case_from_json, policy_from_json, timing_to_json
from autofuse.measure.children.messages import Message
from autofuse.measure.measurement import Case
from autofuse.measure.timing.clock import Clock, pin_main_thread, waited_ns
from autofuse.measure.timing.sampling import sample

KEPT_BYTES = 512 << 20
"""Physical copies of inputs and references kept for the next candidate of the same workload."""

Array = NDArray[np.generic]


@dataclass
class Candidate:
    """A built kernel with its arguments; `inputs` and `outputs` are filled anew for each check."""

    workload: Workload
    kernel: Any
    inputs: list[Any]
    constants: list[Any]
    outputs: list[Any]

    @property
    def arguments(self) -> list[Any]:
        """All tensors, in the kernel's order."""
        return [*self.inputs, *self.constants, *self.outputs]


@dataclass
class CandidateSession:
    """The target, the clock, the candidates at hand and not yet dropped. `place`: finds the files of requests."""

    target: Target | None = None
    clock: Clock | None = None
    candidates: dict[int, Candidate] = field(default_factory=dict)
    arrays: dict[tuple[str, str], Array] = field(default_factory=dict)

    def handlers(self) -> Mapping[str, Handler]:
        """Requests by name."""
        return {"check": self.check, "time": self.time, "drop": self.drop}

    def place(self, path: Path) -> Path:
        """Where the file that a request names lies."""
        return path

    def take(self, identity: int, workload: Workload, kernel: Any, constants: Sequence[Any]) -> None:
        """Hold a kernel under an id of the coordinator's; `constants`: its tensors, packed."""
        from autofuse.backend.compile.jit import tensor

        inputs, outputs = (
            [tensor(np.zeros(value.physical_shape, value.dtype)) for value in values_of(workload, kind)]
            for kind in ("input", "output")
        )
        self.candidates[identity] = Candidate(workload, kernel, inputs, list(constants), outputs)

    def check(self, request: Message) -> Message:
        """Run once on each case with poisoned outputs; RefusedError("wrong") unless all compare."""
        candidate = self._candidate(request)
        limit = request.get("limit")
        cases: Any = request["cases"]
        worst = 0.0
        for index in reversed(range(len(cases))):  # the first case last: its inputs stay for the timing
            case = case_from_json(cases[index])
            worst = max(worst, self._check_case(candidate, case, None if limit is None else float(str(limit))))
        return {"max_rel_error": worst}

    def _check_case(self, candidate: Candidate, case: Case, limit: float | None) -> float:
        workload = candidate.workload
        sources = [self._array(path, value) for path, value in _paired(case.inputs, values_of(workload, "input"))]
        expected = [self._array(path, value) for path, value in _paired(case.outputs, values_of(workload, "output"))]
        for held, source in zip(candidate.inputs, sources, strict=True):
            held.copyfrom(source)
        for held, reference in zip(candidate.outputs, expected, strict=True):
            held.copyfrom(poisoned(reference))
        candidate.kernel(*candidate.arguments)
        worst = 0.0
        for index, (held, reference) in enumerate(zip(candidate.outputs, expected, strict=True)):
            verdict = compare(held.numpy(), reference, limit)
            if not verdict.ok:
                raise RefusedError("wrong", f"output {index}: {verdict.reason}")
            worst = max(worst, verdict.max_rel_error)
        for index, (held, source) in enumerate(zip(candidate.inputs, sources, strict=True)):
            if held.numpy().tobytes() != source.tobytes():
                raise RefusedError("wrong", f"the kernel changed its input {index}")
        return worst

    def time(self, request: Message) -> Message:
        """Gated slices of one candidate, with the main thread pinned meanwhile."""
        candidate, clock = self._candidate(request), self.clock
        assert clock is not None
        clock.inherit(_floats(request["clock_best_s"]))
        policy = policy_from_json(request["policy"])
        best = request.get("best_us")
        expected_s = 1.0

        def run(calls: int) -> float:
            nonlocal expected_s
            if policy.cold_constants and candidate.constants:
                return float(candidate.kernel.cold_block_seconds(candidate.arguments, candidate.constants, calls))
            expected_s = float(candidate.kernel.block_seconds(candidate.arguments, calls, expected_s))
            return expected_s

        with pin_main_thread():
            if not clock.best_s:
                clock.calibrate()
            timing = sample(run, clock, waited_ns, policy, None if best is None else float(str(best)))
        return {"timing": timing_to_json(timing), "clock_best_s": list(clock.best_s)}

    def drop(self, request: Message) -> Message:
        """Forget a candidate; unknown ids are fine."""
        self.candidates.pop(identity_of(request), None)
        return {}

    def _candidate(self, request: Message) -> Candidate:
        if identity_of(request) not in self.candidates:
            raise RefusedError("run_error", f"candidate {identity_of(request)} is not built in this process")
        return self.candidates[identity_of(request)]

    def _array(self, path: str, value: Value) -> Array:
        key = (path, value.layout)
        if key not in self.arrays:
            array = to_physical(np.load(self.place(Path(path)), mmap_mode="r"), value)
            if array.dtype != np.dtype(value.dtype):
                raise RefusedError("run_error", f"{path} holds {array.dtype}, the workload wants {value.dtype}")
            if sum(kept.nbytes for kept in self.arrays.values()) + array.nbytes > KEPT_BYTES:
                self.arrays.clear()
            self.arrays[key] = array
        return self.arrays[key]


def values_of(workload: Workload, kind: str) -> list[Value]:
    """The values of one kind, in the workload's order."""
    return [workload.values[index] for index in workload.of_kind(kind)]


def identity_of(request: Message) -> int:
    """The candidate that a request is about."""
    return int(str(request["id"]))


def confine(cpus: Iterable[int]) -> None:
    """Let this process, and threads that it starts from now on, use only these CPUs (Linux)."""
    if hasattr(os, "sched_setaffinity"):
        try:
            os.sched_setaffinity(0, cpus)
        except OSError as error:
            raise RefusedError("run_error", f"the device cannot use CPUs {list(cpus)}: {error.strerror}") from error


def _paired(paths: Sequence[Any], values: Sequence[Value]) -> list[tuple[str, Value]]:
    if len(paths) != len(values):
        raise RefusedError("run_error", f"{len(paths)} arrays for {len(values)} values of the workload")
    return [(str(path), value) for path, value in zip(paths, values, strict=True)]


def _floats(value: object) -> tuple[float, ...]:
    assert isinstance(value, list)
    return tuple(float(item) for item in value)
