"""OpenVINO on the ONNX file itself: in float32, or in its own choice of precision, which is bfloat16 where the CPU has
it. What a file quantises runs in int8 under both."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from experiments.peers.runtimes.job import Array, Job, Ready

OWN_CHOICE = "openvino:default"


def prepare(job: Job) -> Ready:
    """Nothing: it reads ONNX."""
    return Ready(job.model, "INFERENCE_PRECISION_HINT=f32")


class OpenVinoNetwork:
    """A compiled model with its inputs bound; one stream of `threads` threads."""

    def __init__(self, kind: str, path: Path, threads: int, inputs: Mapping[str, Array]) -> None:
        if hasattr(os, "sched_setaffinity"):  # it plans with the cores that it may use when it is imported
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
        import openvino

        hint = {} if kind == OWN_CHOICE else {"INFERENCE_PRECISION_HINT": "f32"}
        settings = {
            **hint,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
        }
        compiled = openvino.Core().compile_model(openvino.Core().read_model(path), "CPU", settings)
        self._request = compiled.create_infer_request()
        self._held = [np.ascontiguousarray(_given(inputs, port.names)) for port in compiled.inputs]
        for index, array in enumerate(self._held):
            self._request.set_input_tensor(index, openvino.Tensor(array, shared_memory=True))
        self._outputs = len(compiled.outputs)

    def run(self) -> None:
        """See `autofuse.measure.networks.network.Network`."""
        self._request.infer()

    def outputs(self) -> list[Array]:
        """See `autofuse.measure.networks.network.Network`."""
        return [np.array(self._request.get_output_tensor(index).data) for index in range(self._outputs)]


def _given(inputs: Mapping[str, Array], names: Collection[str]) -> Array:
    """The input of one of these names: the port of an input is called as what OpenVINO removed behind it, too."""
    return next(inputs[name] for name in names if name in inputs)


open_network = OpenVinoNetwork
