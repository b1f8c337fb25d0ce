"""A process that does nothing but build kernels: `python -m experiments.overlap.builder MODEL CORE,...`."""

from __future__ import annotations

import os
import sys
from itertools import cycle
from pathlib import Path

from autofuse.backend.compile.host_cpu import local_device
from autofuse.backend.compile.jit import JitKernel
from autofuse.kernels.build import build_kernel
from experiments.overlap.candidates import candidates_of

READY = "building\n"


def main() -> None:
    """Builds on these cores, over and over, until it is ended; says `READY` before it begins."""
    model, cores = sys.argv[1:]
    os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    target = local_device().target()
    _, candidates = candidates_of(Path(model), target)
    sys.stdout.write(READY)
    sys.stdout.flush()
    for bound, schedule in cycle(candidates):
        JitKernel(build_kernel(bound.workload, schedule, target).function, target)


if __name__ == "__main__":
    main()
