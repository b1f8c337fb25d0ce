"""The process that decodes: `steps.py LIBRARY THREADS STEPS PASSES INPUTS.npz` prints JSON.

Microseconds of each step of each pass, whose caches begin empty; GB/s of a loop that only reads, behind the first step
and every tenth one further; the resident bytes when each pass begins, and at the end. Reads stand between the steps
since a machine that is shared gives half of its bandwidth one minute and all of it the next. The inputs are those of a
step; the caches among them are left out, since the library keeps them.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

from autofuse.api import Session
from autofuse.backend.compile.host_cpu import local_device
from autofuse.backend.compile.probes import ReadProbe
from autofuse.backend.library.threads import configure_threads, held_on
from autofuse.measure.machine_probes import DRAM_BYTES
from experiments.memory.child import resident

PROBED = 10
"""Steps for each read of the probe's."""


def main(library: str, threads: str, steps: str, passes: str, inputs: str) -> None:
    """Decode, report."""
    session = Session(library, threads=int(threads))
    assert session.caches is not None, "the library was compiled to keep them"
    with np.load(inputs) as arrays:
        feeds = {one.name: arrays[one.name] for one in session.get_inputs()}
    probe = ReadProbe(local_device().target(), int(threads), DRAM_BYTES // int(threads), 1)
    memory, times, rates = [resident("VmRSS")], [], []
    for _ in range(int(passes)):
        session.caches.keep(0)
        own, read = [], []
        for step in range(int(steps)):
            began = time.perf_counter()
            session.run(None, feeds)
            own.append((time.perf_counter() - began) * 1e6)
            if step % PROBED == 0:
                with held_on(configure_threads(int(threads))):
                    read.append(probe.bytes / probe.seconds() / 1e9)
        times.append(own)
        rates.append(read)
        memory.append(resident("VmRSS"))
    print(json.dumps({"us": times, "gbs": rates, "memory": memory}))


if __name__ == "__main__":
    main(*sys.argv[1:])
