"""The child that builds, checks and times kernels: `python -m autofuse.measure.children.worker`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from autofuse.measure.children.builder import kernel_of, loaded, preload
from autofuse.measure.children.candidates import CandidateSession, confine, identity_of
from autofuse.measure.children.child import Handler, serve
from autofuse.measure.children.codec import target_from_json
from autofuse.measure.children.messages import Message
from autofuse.measure.timing.clock import PROBE_STEPS, Clock


class KernelSession(CandidateSession):
    """What one worker process holds: candidates built in it, for the CPU that it runs on."""

    def handlers(self) -> Mapping[str, Handler]:
        """Requests by name."""
        return {"hello": self.hello, "build": self.build, **super().handlers()}

    def hello(self, request: Message) -> Message:
        """Import everything and compile the clock probe, so that the first candidate finds a warm process."""
        from autofuse.backend.compile.probes import FmaProbe

        cpus: Any = request.get("cpus")
        if cpus:
            confine(cpus)
        self.target = target_from_json(request["target"])
        threads = int(str(request["threads"]))
        probe = FmaProbe(self.target, threads, PROBE_STEPS)
        probe.seconds()
        self.clock = Clock(probe.seconds)
        preload(str(request["builder"]))
        return {}

    def build(self, request: Message) -> Message:
        """Workload text, schedule -> a kernel under an id of the caller's, with its packed constants; its code."""
        from autofuse.backend.compile.jit import JitKernel, tensor
        from autofuse.kernels.tir.digest import code_key

        assert self.target is not None
        start = time.perf_counter()
        workload, built = kernel_of(request, self.target)
        kernel = JitKernel(built.function, self.target)
        build_s = time.perf_counter() - start
        constants = [tensor(array) for array in built.pack(loaded(request["constants"]))]
        self.take(identity_of(request), workload, kernel, constants)
        return {"build_s": build_s, "code": code_key(built.function)}


def main() -> None:
    """Serve one coordinator until it goes away."""
    serve(KernelSession().handlers())


if __name__ == "__main__":
    main()
