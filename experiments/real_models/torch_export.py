"""torch's two exporters as people call them, with a seed for the random weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

OPSET = 18
SEED = 20


def seeded() -> None:
    """Weights that are drawn from here on are the same in each run of the same torch."""
    torch.manual_seed(SEED)


def traced(
    module: Any, inputs: tuple[Any, ...], path: Path, names: Sequence[str], results: Sequence[str],
    axes: Mapping[str, Mapping[int, str]] | None = None,
) -> None:  # fmt: skip
    """The tracing exporter; `axes`: names of open sizes, by input or output."""
    with torch.no_grad():
        torch.onnx.export(
            module, inputs, str(path), dynamo=False, opset_version=OPSET, input_names=list(names),
            output_names=list(results), dynamic_axes=axes and {name: dict(open_) for name, open_ in axes.items()},
        )  # fmt: skip


def dynamo(
    module: nn.Module, inputs: tuple[Tensor, ...], path: Path, names: Sequence[str],
    axes: Sequence[Mapping[int, str]] | None = None,
) -> None:  # fmt: skip
    """torch.export's exporter with its defaults; `axes`: names of open sizes, for each input."""
    shapes = None
    if axes is not None:
        known = {name: torch.export.Dim(name, min=2, max=4096) for one in axes for name in one.values()}
        shapes = tuple({axis: known[name] for axis, name in one.items()} for one in axes)
    with torch.no_grad():
        torch.onnx.export(
            module, inputs, str(path), dynamo=True, input_names=list(names), dynamic_shapes=shapes,
            external_data=False, verbose=False,
        )  # fmt: skip
