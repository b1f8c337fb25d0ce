"""The process that decodes: `steps.py LIBRARY THREADS STEPS PASSES INPUTS.npz` prints JSON.

Microseconds of each step of each pass, whose caches begin empty, and the resident bytes when each pass begins, and at
the end. The inputs are those of a step; the caches among them are left out, since the library keeps them.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

from autofuse.api import Session
from experiments.memory.child import resident


def main(library: str, threads: str, steps: str, passes: str, inputs: str) -> None:
    """Decode, report."""
    session = Session(library, threads=int(threads))
    assert session.caches is not None, "the library was compiled to keep them"
    with np.load(inputs) as arrays:
        feeds = {one.name: arrays[one.name] for one in session.get_inputs()}
    memory, times = [resident("VmRSS")], []
    for _ in range(int(passes)):
        session.caches.keep(0)
        own = []
        for _ in range(int(steps)):
            began = time.perf_counter()
            session.run(None, feeds)
            own.append((time.perf_counter() - began) * 1e6)
        times.append(own)
        memory.append(resident("VmRSS"))
    print(json.dumps({"us": times, "memory": memory}))


if __name__ == "__main__":
    main(*sys.argv[1:])
