"""The child that holds ONNX Runtime with our provider: `python -m experiments.provider.contender`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from autofuse.device.target import Target
from autofuse.measure.children.child import serve
from autofuse.measure.networks.contender import ContenderSession
from autofuse.measure.networks.network import Array, Network
from autofuse.ort import register
from autofuse.ort.provider.build import FILE


class ProviderNetwork:
    """A model that `compile --format ort` wrote, in ONNX Runtime as shipped; inputs and outputs are bound once."""

    def __init__(self, model: Path, threads: int, inputs: Mapping[str, Array]) -> None:
        import onnxruntime  # late: autofuse switches its telemetry off first

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        library = model.with_name(FILE)
        session = onnxruntime.InferenceSession(str(model), register(options, library=library))
        self._session, self._binding = session, session.io_binding()
        aligned = {name: _aligned(array) for name, array in inputs.items()}
        value = onnxruntime.OrtValue.ortvalue_from_numpy
        self._held = [value(array) for array in aligned.values()]
        for name, held in zip(aligned, self._held, strict=True):
            self._binding.bind_ortvalue_input(name, held)
        self._results = [value(_aligned(array)) for array in session.run(None, dict(aligned))]
        for output, held in zip(session.get_outputs(), self._results, strict=True):
            self._binding.bind_ortvalue_output(output.name, held)
        self._arrays = aligned

    def run(self) -> None:
        """See Network."""
        self._session.run_with_iobinding(self._binding)

    def outputs(self) -> list[Array]:
        """See Network."""
        return [held.numpy() for held in self._results]


def _aligned(array: Array) -> Array:
    """The array where it is read without a copy, as that of a library is."""
    block = np.empty(array.nbytes + 64, np.uint8)
    start = -block.__array_interface__["data"][0] % 64
    made = block[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def open_network(kind: str, path: Path, target: Target, threads: int, inputs: Mapping[str, Array]) -> Network:
    """See `autofuse.measure.networks.network.open_network`; there is one kind."""
    del kind, target
    return ProviderNetwork(path, threads, inputs)


def main() -> None:
    """Serve one coordinator until it goes away."""
    serve(ContenderSession(open_network).handlers())


if __name__ == "__main__":
    main()
