"""LiteRT with XNNPACK, its model converted by litert-torch; in int8 by ai-edge-quantizer, with activations quantised by
what is timed (static), or as they come (dynamic)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.peers.runtimes.job import Array, Job, Ready

FILE, FLOAT = "model.tflite", "float.tflite"
INT8, DYNAMIC = "litert:int8", "litert:dynamic"
SIGNATURE = "serving_default"


def prepare(job: Job) -> Ready:
    """Convert once for all numbers of threads."""
    import litert_torch

    from experiments.peers.runtimes.torch_module import module_of, tensors

    path = job.folder / FILE
    module, note = module_of(job.model)
    converted = litert_torch.convert(module, tensors(job.inputs))
    if job.kind not in (INT8, DYNAMIC):
        converted.export(str(path))
        return Ready(path, f"{note}, litert-torch")
    converted.export(str(job.folder / FLOAT))
    _quantise(job, path)
    return Ready(path, f"{note}, litert-torch, ai-edge-quantizer")


def _quantise(job: Job, path: Path) -> None:
    """Writes the converted model in int8."""
    from ai_edge_quantizer import quantizer, recipe

    static = job.kind == INT8
    made = quantizer.Quantizer(
        str(job.folder / FLOAT), recipe.static_wi8_ai8() if static else recipe.dynamic_wi8_afp32()
    )
    given = {f"args_{place}": _narrow(array) for place, array in enumerate(job.inputs.values())}
    found = made.calibrate({SIGNATURE: [given]}) if static else None
    made.quantize(found).export_model(str(path), overwrite=True)


def _narrow(array: Array) -> Array:
    """The converter narrows integers: 64 bits become 32."""
    return array.astype(np.int32) if array.dtype == np.int64 else array


class LiteRtNetwork:
    """The interpreter with its default delegate (XNNPACK), inputs set once."""

    def __init__(self, kind: str, path: Path, threads: int, inputs: Mapping[str, Array]) -> None:
        del kind
        from ai_edge_litert.interpreter import Interpreter

        self._interpreter: Any = Interpreter(model_path=str(path), num_threads=threads)
        self._interpreter.allocate_tensors()
        signature = next(iter(self._interpreter._get_full_signature_list().values()))
        places = _in_order(signature["inputs"])
        details = {detail["index"]: detail for detail in self._interpreter.get_input_details()}
        for place, array in zip(places, inputs.values(), strict=True):
            self._interpreter.set_tensor(place, np.ascontiguousarray(_held(array, details[place])))
        self._results = _in_order(signature["outputs"])
        self._details = {detail["index"]: detail for detail in self._interpreter.get_output_details()}

    def run(self) -> None:
        """See `autofuse.measure.networks.network.Network`."""
        self._interpreter.invoke()

    def outputs(self) -> list[Array]:
        """See `autofuse.measure.networks.network.Network`."""
        return [_real(self._interpreter.get_tensor(place), self._details[place]) for place in self._results]


def _held(array: Array, detail: Mapping[str, Any]) -> Array:
    """An input as the model takes it: in bytes where that is quantised; integers of 64 bits become 32."""
    scale, zero = detail["quantization"]
    if array.dtype.kind != "f" or not scale:
        return array.astype(detail["dtype"])
    bounds = np.iinfo(detail["dtype"])
    return np.clip(np.rint(array / scale) + zero, bounds.min, bounds.max).astype(detail["dtype"])


def _real(array: Array, detail: Mapping[str, Any]) -> Array:
    """An output in float32 where the model's is quantised."""
    scale, zero = detail["quantization"]
    return (array.astype(np.float32) - zero) * np.float32(scale) if scale else array


def _in_order(places: Mapping[str, int]) -> list[int]:
    """Tensors of a signature by the number in their names: args_0, args_1, ..., args_10."""
    return [place for _, place in sorted(places.items(), key=lambda item: _number(item[0]))]


def _number(name: str) -> int:
    found = re.findall(r"\d+", name)
    return int(found[-1]) if found else 0


open_network = LiteRtNetwork
