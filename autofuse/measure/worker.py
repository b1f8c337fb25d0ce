"""The child that builds, checks and times kernels: `python -m autofuse.measure.worker`."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.device.target import Target
from autofuse.kernels.packing import to_physical
from autofuse.kernels.workload import Value, Workload
from autofuse.measure.child import Handler, RefusedError, note, serve
from autofuse.measure.clock import PROBE_STEPS, Clock, pin_main_thread, waited_ns
from autofuse.measure.codec import case_from_json, policy_from_json, target_from_json, timing_to_json
from autofuse.measure.measurement import Case
from autofuse.measure.messages import Message
from autofuse.measure.sampling import sample
from autofuse.measure.tolerance import compare, poisoned

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
class KernelSession:
    """What one worker process holds: its target, its clock, the candidates built and not yet dropped."""

    target: Target | None = None
    clock: Clock | None = None
    candidates: dict[int, Candidate] = field(default_factory=dict)
    arrays: dict[tuple[str, str], Array] = field(default_factory=dict)

    def handlers(self) -> Mapping[str, Handler]:
        """Requests by name."""
        return {
            "hello": self.hello,
            "build": self.build,
            "check": self.check,
            "time": self.time,
            "drop": self.drop,
        }

    def hello(self, request: Message) -> Message:
        """Import everything and compile the clock probe, so that the first candidate finds a warm process."""
        from autofuse.backend.probes import FmaProbe

        self.target = target_from_json(request["target"])
        threads = int(str(request["threads"]))
        probe = FmaProbe(self.target, threads, PROBE_STEPS)
        probe.seconds()
        self.clock = Clock(probe.seconds)
        try:
            _builder(str(request["builder"]))
        except Exception as error:  # noqa: BLE001 the first build reports it, as that candidate's failure
            note(f"builder not loaded: {error}")
        return {}

    def build(self, request: Message) -> Message:
        """Workload text, schedule -> a kernel under an id of the caller's, with its packed constants."""
        from autofuse.backend.jit import JitKernel, tensor

        assert self.target is not None
        workload = Workload.from_text(str(request["workload"]))
        schedule: Any = request["schedule"]
        start = time.perf_counter()
        built = _builder(str(request["builder"]))(workload, schedule, self.target)
        kernel = JitKernel(built.function, self.target)
        build_s = time.perf_counter() - start
        originals = [np.load(path, mmap_mode="r") for path in _strings(request["constants"])]
        constants = [tensor(array) for array in built.pack(originals)]
        inputs, outputs = (
            [tensor(np.zeros(value.physical_shape, value.dtype)) for value in _values(workload, kind)]
            for kind in ("input", "output")
        )
        self.candidates[_id(request)] = Candidate(workload, kernel, inputs, constants, outputs)
        return {"build_s": build_s}

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
        sources = [self._array(path, value) for path, value in _paired(case.inputs, _values(workload, "input"))]
        expected = [self._array(path, value) for path, value in _paired(case.outputs, _values(workload, "output"))]
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
        self.candidates.pop(_id(request), None)
        return {}

    def _candidate(self, request: Message) -> Candidate:
        if _id(request) not in self.candidates:
            raise RefusedError("run_error", f"candidate {_id(request)} is not built in this process")
        return self.candidates[_id(request)]

    def _array(self, path: str, value: Value) -> Array:
        key = (path, value.layout)
        if key not in self.arrays:
            array = to_physical(np.load(path, mmap_mode="r"), value)
            if array.dtype != np.dtype(value.dtype):
                raise RefusedError("run_error", f"{path} holds {array.dtype}, the workload wants {value.dtype}")
            if sum(kept.nbytes for kept in self.arrays.values()) + array.nbytes > KEPT_BYTES:
                self.arrays.clear()
            self.arrays[key] = array
        return self.arrays[key]


def _builder(path: str) -> Callable[..., Any]:
    """The function that "package.module:name" names."""
    module, _, name = path.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def _values(workload: Workload, kind: str) -> list[Value]:
    return [workload.values[index] for index in workload.of_kind(kind)]


def _paired(paths: Sequence[Any], values: Sequence[Value]) -> list[tuple[str, Value]]:
    if len(paths) != len(values):
        raise RefusedError("run_error", f"{len(paths)} arrays for {len(values)} values of the workload")
    return [(str(path), value) for path, value in zip(paths, values, strict=True)]


def _id(request: Message) -> int:
    return int(str(request["id"]))


def _strings(value: object) -> list[str]:
    assert isinstance(value, list)
    return [str(item) for item in value]


def _floats(value: object) -> tuple[float, ...]:
    assert isinstance(value, list)
    return tuple(float(item) for item in value)


def main() -> None:
    """Serve one coordinator until it goes away."""
    serve(KernelSession().handlers())


if __name__ == "__main__":
    main()
