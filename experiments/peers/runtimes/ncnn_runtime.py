"""ncnn in float32, with what it stores in bfloat16, or in int8; its model converted by pnnx."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.peers.runtimes.job import Array, Job, Ready, UnsupportedError
from experiments.peers.runtimes.ncnn_int8 import PARAMETERS, WEIGHTS, quantise

SHAPES = "shapes.json"
BFLOAT16, INT8 = "ncnn:bf16", "ncnn:int8"
FOREIGN = re.compile(r"^(pnnx|aten|prim|torch|nn|F|Tensor)[.:]|^pnnx")
"""Names of operators that pnnx wrote down without knowing a layer of ncnn for them."""


def prepare(job: Job) -> Ready:
    """Convert once for all numbers of threads; the shapes of the outputs, whose batch ncnn drops, beside it."""
    import pnnx
    import torch

    from experiments.peers.runtimes.torch_module import arrays, module_of, tensors

    module, note = module_of(job.model, attention="eager")
    given = tensors(job.inputs)
    with torch.no_grad():
        results = arrays(module(*given))
    shapes = [[list(array.shape), array.dtype.name] for array in results]
    (job.folder / SHAPES).write_text(json.dumps(shapes), encoding="utf-8")
    pnnx.export(module, str(job.folder / "model.pt"), given, fp16=False)
    parameters = job.folder / PARAMETERS
    if not parameters.exists():
        raise UnsupportedError("pnnx wrote no ncnn model")
    unknown = foreign_layers(parameters.read_text(encoding="utf-8"))
    if unknown:
        raise UnsupportedError(f"ncnn has no layer for {', '.join(unknown)}")
    if job.kind != INT8:
        return Ready(job.folder, f"{note}, pnnx")
    quantise(job.folder, [ncnn_array(array) for array in job.inputs.values()], job.folder / "int8")
    shutil.copy(job.folder / SHAPES, job.folder / "int8" / SHAPES)
    return Ready(job.folder / "int8", f"{note}, pnnx, int8 by the largest numbers")


def foreign_layers(text: str) -> list[str]:
    """Layer types of a .param file that are no layers of ncnn."""
    types = [line.split()[0] for line in text.splitlines()[2:] if line.strip()]
    return sorted({kind for kind in types if FOREIGN.match(kind)})


class NcnnNetwork:
    """A net with fp16 off, and bf16 unless it is asked for; each run is an extractor of its own, as ncnn wants it."""

    def __init__(self, kind: str, path: Path, threads: int, inputs: Mapping[str, Array]) -> None:
        import ncnn

        self._net = ncnn.Net()
        options = self._net.opt
        options.num_threads = threads
        options.use_fp16_packed = options.use_fp16_storage = options.use_fp16_arithmetic = False
        options.use_bf16_storage = kind == BFLOAT16
        for load, file in (
            (self._net.load_param, PARAMETERS),
            (self._net.load_model, WEIGHTS),
        ):
            if load(str(path / file)):
                raise RuntimeError(f"ncnn cannot load {file}")
        self._inputs = [ncnn_array(array) for array in inputs.values()]
        self._shapes = json.loads((path / SHAPES).read_text(encoding="utf-8"))
        self._results: list[Any] = []

    def run(self) -> None:
        """See `autofuse.measure.networks.network.Network`."""
        extractor = self._net.create_extractor()
        for index, held in enumerate(self._inputs):
            extractor.input(f"in{index}", held)
        self._results = []
        for index in range(len(self._shapes)):
            code, result = extractor.extract(f"out{index}")
            if code:
                raise RuntimeError(f"ncnn cannot compute output {index} (code {code})")
            self._results.append(result)

    def outputs(self) -> list[Array]:
        """See `autofuse.measure.networks.network.Network`."""
        return [
            np.array(result).reshape(shape).astype(dtype)
            for result, (shape, dtype) in zip(self._results, self._shapes, strict=True)
        ]


def ncnn_array(array: Array) -> Any:
    """An input as ncnn's own array: it has no batch, and 32-bit integers."""
    import ncnn

    held = array[0] if array.ndim > 1 and array.shape[0] == 1 else array
    return ncnn.Mat(np.ascontiguousarray(held.astype("int32") if held.dtype.kind in "iu" else held)).clone()


open_network = NcnnNetwork
