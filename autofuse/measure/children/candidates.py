"""What a process that runs kernels holds: candidates to check and to time, wherever they were built."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.device.target import Target
from autofuse.kernels.workload.levels import ambiguous_outputs
from autofuse.kernels.workload.packing import as_numbers, as_stored, to_physical
from autofuse.kernels.workload.workload import Value, Workload
from autofuse.measure.checking.tolerance import compare, poisoned
from autofuse.measure.children.child import Handlers, RefusedError
from autofuse.measure.children.messages import Done
from autofuse.measure.children.requests import Check, Checked, Drop, Time, Timed
from autofuse.measure.measurement import Case
from autofuse.measure.timing.clock import Clock, pin_main_thread, waited_ns
from autofuse.measure.timing.sampling import sample

KEPT_BYTES = 512 << 20
"""Physical copies of inputs and references kept for the next candidate of the same workload."""

Array = NDArray[np.generic]


@dataclass
class HeldCandidate:
    """A built kernel that a process holds with its arguments; each check fills `inputs` and `outputs` anew."""

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
    candidates: dict[int, HeldCandidate] = field(default_factory=dict)
    arrays: dict[tuple[Path, str], Array] = field(default_factory=dict)

    def handlers(self) -> Handlers:
        """What it does, by the kind of request."""
        return {Check: self.check, Time: self.time, Drop: self.drop}

    def place(self, path: Path) -> Path:
        """Where the file that a request names lies."""
        return path

    def take(self, identity: int, workload: Workload, kernel: Any, constants: Sequence[Any]) -> None:
        """Hold a kernel under an id of the coordinator's; `constants`: its tensors, packed."""
        from autofuse.backend.compile.jit import tensor

        inputs, outputs = (
            [tensor(np.zeros(value.physical_shape, value.stored_dtype)) for value in values_of(workload, kind)]
            for kind in ("input", "output")
        )
        self.candidates[identity] = HeldCandidate(workload, kernel, inputs, list(constants), outputs)

    def check(self, request: Check) -> Checked:
        """Run once on each case with poisoned outputs; RefusedError("wrong") unless all compare."""
        candidate = self._candidate(request.id)
        worst = 0.0
        for case in reversed(request.cases):  # the first case last: its inputs stay for the timing
            worst = max(worst, self._check_case(candidate, case, request.limit))
        return Checked(worst)

    def _check_case(self, candidate: HeldCandidate, case: Case, limit: float | None) -> float:
        workload = candidate.workload
        sources = [self._array(path, value) for path, value in _paired(case.inputs, values_of(workload, "input"))]
        made = values_of(workload, "output")
        expected = [as_numbers(self._array(path, value), value) for path, value in _paired(case.outputs, made)]
        for held, source in zip(candidate.inputs, sources, strict=True):
            held.copyfrom(source)
        for held, reference, value in zip(candidate.outputs, expected, made, strict=True):
            held.copyfrom(as_stored(poisoned(reference), value))
        candidate.kernel(*candidate.arguments)
        worst = 0.0
        ambiguous = ambiguous_outputs(workload)
        for index, (held, reference) in enumerate(zip(candidate.outputs, expected, strict=True)):
            found = as_numbers(held.numpy(), made[index])
            verdict = compare(found, reference, limit, workload.of_kind("output")[index] in ambiguous)
            if not verdict.ok:
                raise RefusedError("wrong", f"output {index}: {verdict.reason}")
            worst = max(worst, verdict.max_rel_error)
        for index, (held, source) in enumerate(zip(candidate.inputs, sources, strict=True)):
            if held.numpy().tobytes() != source.tobytes():
                raise RefusedError("wrong", f"the kernel changed its input {index}")
        return worst

    def time(self, request: Time) -> Timed:
        """Gated slices of one candidate, with the main thread pinned meanwhile."""
        candidate, clock, policy = self._candidate(request.id), self.clock, request.policy
        assert clock is not None
        clock.inherit(request.clock_full_s)
        expected_s = 1.0

        def run(calls: int) -> float:
            nonlocal expected_s
            if policy.cold_constants and candidate.constants:
                return float(candidate.kernel.cold_block_seconds(candidate.arguments, candidate.constants, calls))
            expected_s = float(candidate.kernel.block_seconds(candidate.arguments, calls, expected_s))
            return expected_s

        with pin_main_thread():
            if not clock.full_s:
                clock.calibrate()
            timing = sample(run, clock, waited_ns, policy, request.best_us)
        return Timed(timing, clock.full_s)

    def drop(self, request: Drop) -> Done:
        """Forget a candidate; unknown ids are fine."""
        self.candidates.pop(request.id, None)
        return Done()

    def _candidate(self, identity: int) -> HeldCandidate:
        if identity not in self.candidates:
            raise RefusedError("run_error", f"candidate {identity} is not built in this process")
        return self.candidates[identity]

    def _array(self, path: Path, value: Value) -> Array:
        key = (path, value.layout)
        if key not in self.arrays:
            array = to_physical(np.load(self.place(path), mmap_mode="r"), value)
            if array.dtype != np.dtype(value.stored_dtype):
                raise RefusedError("run_error", f"{path} holds {array.dtype}, the workload wants {value.stored_dtype}")
            if sum(kept.nbytes for kept in self.arrays.values()) + array.nbytes > KEPT_BYTES:
                self.arrays.clear()
            self.arrays[key] = array
        return self.arrays[key]


def values_of(workload: Workload, kind: str) -> list[Value]:
    """The values of one kind, in the workload's order."""
    return [workload.values[index] for index in workload.of_kind(kind)]


def confine(cpus: Iterable[int]) -> None:
    """Let this process, and threads that it starts from now on, use only these CPUs (Linux)."""
    if hasattr(os, "sched_setaffinity"):
        try:
            os.sched_setaffinity(0, cpus)
        except OSError as error:
            raise RefusedError("run_error", f"the device cannot use CPUs {list(cpus)}: {error.strerror}") from error


def _paired(paths: Sequence[Path], values: Sequence[Value]) -> list[tuple[Path, Value]]:
    if len(paths) != len(values):
        raise RefusedError("run_error", f"{len(paths)} arrays for {len(values)} values of the workload")
    return list(zip(paths, values, strict=True))
