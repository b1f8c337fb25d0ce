"""The child that builds, checks and times kernels: `python -m autofuse.measure.children.worker`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from autofuse.backend.compile.objects import KernelObjects
from autofuse.measure.children.builder import kernel_of, loaded, preload
from autofuse.measure.children.candidates import CandidateSession, confine
from autofuse.measure.children.child import Handlers, serve
from autofuse.measure.children.messages import Done
from autofuse.measure.children.requests import Build, KernelBuilt, StartWorker
from autofuse.measure.timing.clock import PROBE_STEPS, Clock
from autofuse.values.processes import processor_limit

if TYPE_CHECKING:
    from autofuse.backend.compile.jit import LoadedKernel


class KernelSession(CandidateSession):
    """The session of a worker process: candidates are built in it, for the CPU that it runs on."""

    objects: KernelObjects | None = None

    def handlers(self) -> Handlers:
        """What it does, by the kind of request."""
        return {StartWorker: self.start, Build: self.build, **super().handlers()}

    def start(self, request: StartWorker) -> Done:
        """Import everything and compile the clock probe, so that the first candidate finds a warm process."""
        from autofuse.backend.compile.probes import FmaProbe

        if request.cpus:
            confine(request.cpus)
        self.target = request.target
        if request.objects is not None:
            self.objects = KernelObjects(request.objects, request.target)
        probe = FmaProbe(request.target, request.threads, PROBE_STEPS)
        probe.seconds()
        self.clock = Clock(probe.seconds)
        preload(request.builder)
        return Done()

    def build(self, request: Build) -> KernelBuilt:
        """Workload text, schedule -> a kernel under an id of the caller's, with its packed constants; its code."""
        from autofuse.backend.compile.jit import tensor
        from autofuse.kernels.tir.digest import code_key

        assert self.target is not None
        start = time.perf_counter()
        with processor_limit(request.cpu_s):
            workload, built = kernel_of(request, self.target)
            code = code_key(built.function)
            kernel = self._compiled(built.function, code)
        build_s = time.perf_counter() - start
        constants = [tensor(array) for array in built.pack(loaded(request.constants))]
        self.take(request.id, workload, kernel, constants)
        return KernelBuilt(build_s, code)

    def _compiled(self, function: Any, code: str) -> LoadedKernel:
        from autofuse.backend.compile.jit import JitKernel, kept_kernel

        assert self.target is not None
        if self.objects is None:
            return JitKernel(function, self.target)
        self.objects.sweep()
        return kept_kernel(function, code, self.target, self.objects)


def main() -> None:
    """Serve one coordinator until it goes away."""
    serve(KernelSession().handlers())


if __name__ == "__main__":
    main()
