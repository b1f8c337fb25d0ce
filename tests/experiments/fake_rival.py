"""A rival that needs no library: `python -m tests.experiments.fake_rival`, held like every other one."""

import os
import time

import numpy as np

from autofuse.measure.children.child import RefusedError, serve
from autofuse.measure.networks.contender import ContenderSession
from experiments.peers.requests import Prepare, RivalReady

FACTORS = {"right": 2.0, "wrong": 2.5}


class Doubler:
    """y = 2 x, or something else."""

    def __init__(self, kind, inputs):
        self._factor, self._x, self._y = FACTORS[kind], inputs["x"], None

    def run(self):
        time.sleep(0.001)
        self._y = np.float32(self._factor) * self._x

    def outputs(self):
        return [self._y]


def open_network(kind, path, target, threads, inputs):
    assert os.environ["OMP_NUM_THREADS"] == str(threads)
    if kind == "crash":
        os._exit(9)
    return Doubler(kind, inputs)


def prepare(request):
    if request.kind == "refuses":
        raise RefusedError("build_error", "it has no such layer")
    found = {name: np.load(path).shape for name, path in request.inputs.items()}
    return RivalReady(request.folder, f"{found}")


if __name__ == "__main__":
    serve({**ContenderSession(open_network).handlers(), Prepare: prepare})
