"""A graph of dynamo as an ONNX file, by torch.export and torch's own exporter.

That one is kept by torch's maintainers, unlike the older one through TorchScript, and it knows which operators draw
random numbers. It needs the package onnxscript.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from autofuse.errors import InputError
from autofuse.torch_backend.open_sizes import Opened
from autofuse.torch_backend.refusals import RefusedError

PREFIX = "input"
MOST_FILE_BYTES = 1800 << 20
"""Weights above this stand in a file beside the ONNX file, which holds at most 2 GiB."""
_NOISY = "torch.onnx._internal.exporter._registration"


def check_exporter() -> None:
    """InputError where a package that torch's exporter needs is missing; none is loaded, which takes seconds."""
    if find_spec("onnxscript") is None:
        raise InputError("backend=\"autofuse\" needs the package onnxscript: pip install 'autofuse[torch]'")


def input_name(place: int) -> str:
    """What the argument of a graph at `place` is called in ONNX."""
    return f"{PREFIX}{place}"


def export_onnx(
    module: Any,
    args: Sequence[Any],
    inputs: Sequence[int],
    results: Sequence[int],
    path: Path,
    opened: Sequence[Opened],
) -> None:
    """Write a graph to `path`: arguments at the places `inputs` stay inputs, all others become weights and constants.

    `results`: places of the outputs that are tensors. `opened`: the sizes that stay open. RefusedError when torch's
    exporter cannot, or the graph draws random numbers.
    """
    import torch

    free = tuple(args[place] for place in inputs)
    with _quiet(), torch.no_grad():
        try:
            frozen = _frozen(module, args, inputs, results, opened)
            program = torch.export.export(frozen, free, strict=False, dynamic_shapes=_dynamic(inputs, opened))
        except Exception as error:  # torch's exporter raises whatever its parts do
            raise RefusedError(f"torch.export refuses it: {_first_line(error)}") from error
        _refuse_random(program)
        try:
            made = torch.onnx.export(
                program,
                dynamo=True,
                verbose=False,
                input_names=[input_name(place) for place in inputs],
                output_names=[f"output{number}" for number in range(len(results))],
            )
            size = sum(tensor.nbytes for tensor in program.state_dict.values())
            made.save(str(path), external_data=size > MOST_FILE_BYTES)
        except Exception as error:
            raise RefusedError(
                f"torch.onnx.export has no ONNX form of it: {_first_line(error.__cause__ or error)}"
            ) from error


def _dynamic(inputs: Sequence[int], opened: Sequence[Opened]) -> Any:
    """What torch.export is told of the sizes that stay open."""
    import torch

    if not opened:
        return None
    found: dict[int, dict[int, Any]] = {place: {} for place in inputs}
    for number, one in enumerate(opened):
        size = torch.export.Dim(f"size{number}", min=one.low, max=one.high)
        for place, axis, more in one.symbol.axes:
            found[place][axis] = size + more if more else size
    return {"given": tuple(found[place] for place in inputs)}


def _frozen(
    module: Any, args: Sequence[Any], inputs: Sequence[int], results: Sequence[int], opened: Sequence[Opened]
) -> Any:
    """The graph as a module whose arguments are those at `inputs`, with all others as buffers and constants.

    Numbers that are one of the `opened` sizes follow the shape of the first tensor that has it.
    """
    import torch

    numbers = [(*number, *one.symbol.axes[0][:2]) for one in opened for number in one.symbol.numbers]

    class Frozen(torch.nn.Module):  # type: ignore[misc]  # torch is not always there, and then it is Any
        def __init__(self) -> None:
            super().__init__()
            self.graph_module = module
            for place, value in enumerate(args):
                if place not in inputs and isinstance(value, torch.Tensor):
                    self.register_buffer(f"weight{place}", value.detach())

        def forward(self, *given: Any) -> Any:
            free = dict(zip(inputs, given, strict=True))
            full = [free.get(place, getattr(self, f"weight{place}", value)) for place, value in enumerate(args)]
            for place, more, first, along in numbers:
                full[place] = free[first].shape[along] + more
            outputs = self.graph_module(*full)
            return tuple(outputs[place] for place in results)

    return Frozen()


def _refuse_random(program: Any) -> None:
    import torch

    for node in program.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) and not _is_idle_dropout(node):
            raise RefusedError(f"it draws random numbers ({node.target}); switch the model to eval()")


def _is_idle_dropout(node: Any) -> bool:
    """Whether this is a dropout outside of training: torch tags the operator, whatever its arguments."""
    name = str(node.target)
    if name == "aten.dropout.default":
        return len(node.args) > 2 and node.args[2] is False
    if name.startswith("aten.scaled_dot_product_attention"):
        probability = node.args[4] if len(node.args) > 4 else node.kwargs.get("dropout_p", 0.0)
        return bool(probability == 0.0)
    return False


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]:.300}" if lines else type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter says of each optional package that it is not there."""
    logger = logging.getLogger(_NOISY)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
