"""Recurrent layers of 100 steps, and single steps of them (cells), of one sequence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import onnx

from experiments.architectures.draft import Draft

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS = 100


@dataclass(frozen=True)
class Layer:
    """A recurrent layer of one direction, as PyTorch exports it; its inputs have `hidden` features, too."""

    cell: str
    hidden: int
    steps: int

    @property
    def weight_bytes(self) -> int:
        """Bytes of the recurrent weights, which each step reads."""
        return 4 * GATES[self.cell] * self.hidden**2

    def model(self) -> onnx.ModelProto:
        """The network."""
        draft, width = Draft("recurrent", 0), GATES[self.cell] * self.hidden
        shapes = {"w": (1, width, self.hidden), "r": (1, width, self.hidden), "b": (1, 2 * width)}
        weights = [draft.constant(name, draft.normal(shape, self.hidden**-0.5)) for name, shape in shapes.items()]
        reset = {"linear_before_reset": 1} if self.cell == "GRU" else {}
        result = draft.node(self.cell, "layer", ["x", *weights], hidden_size=self.hidden, **reset)
        return draft.model({"x": (self.steps, 1, self.hidden)}, result, (self.steps, 1, 1, self.hidden))


Make = Callable[[], Layer]
KINDS: Mapping[str, Mapping[str, Make]] = {
    "layers": {f"{c} {h}": partial(Layer, c, h, STEPS) for c in GATES for h in (128, 256, 512)},
    "cells": {f"{c} cell {h}": partial(Layer, c, h, 1) for c in GATES for h in (128, 256, 512)},
}
"""Kind -> name -> layer."""
