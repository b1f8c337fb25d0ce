"""Recurrent layers of 100 steps, and single steps of them (cells), of one sequence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx
from onnx import numpy_helper, parser

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS = 100
LAYERS, CELLS = "layers", "cells"
OPERATOR, WRITTEN = "operator", "written"
"""The forms of a file: the ONNX operator of that name, or what it computes in elementary operators (cells alone)."""

_SUMS = "p = MatMul (x, wt) q = Add (p, wb) s = MatMul (h, rt) t = Add (s, rb)"
_BODIES = {
    "LSTM": f"""{_SUMS} a = Add (q, t) ia, oa, fa, ga = Split <axis = 2> (a, gates)
        i = Sigmoid (ia) o = Sigmoid (oa) f = Sigmoid (fa) g = Tanh (ga)
        kept = Mul (f, c) new = Mul (i, g) c1 = Add (kept, new) d = Tanh (c1) h1 = Mul (o, d)""",
    "GRU": f"""{_SUMS} zx, rx, nx = Split <axis = 2> (q, gates) zh, rh, nh = Split <axis = 2> (t, gates)
        za = Add (zx, zh) z = Sigmoid (za) ra = Add (rx, rh) r = Sigmoid (ra)
        m = Mul (r, nh) na = Add (nx, m) n = Tanh (na) d = Sub (h, n) e = Mul (z, d) h1 = Add (n, e)""",
    "RNN": f"{_SUMS} a = Add (q, t) h1 = Tanh (a)",
}


@dataclass(frozen=True)
class Layer:
    """A recurrent layer of one direction, as PyTorch exports it; its inputs have `hidden` features, too.

    One of a single step is a cell: its old states are inputs, the new ones are outputs.
    """

    cell: str
    hidden: int
    steps: int

    @property
    def is_cell(self) -> bool:
        """Whether it is a single step."""
        return self.steps == 1

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that a call reads: the recurrent ones at each step, those of the inputs at least once."""
        return 4 * GATES[self.cell] * self.hidden**2 * (self.steps + 1)

    def model(self, form: str = OPERATOR) -> onnx.ModelProto:
        """The network, with the same weights in both forms; ValueError for a layer written out."""
        if form == WRITTEN and not self.is_cell:
            raise ValueError("a layer is a loop, which elementary operators do not write out")
        x = f"float[{self.steps},1,{self.hidden}] x"
        states = ["h", "c"] if self.cell == "LSTM" else ["h"]
        shape = f"float[1,1,{self.hidden}]"
        takes = [x, *(f"{shape} {state}" for state in states)] if self.is_cell else [x]
        gives = (
            [f"{shape} {state}1" for state in states] if self.is_cell else [f"float[{self.steps},1,1,{self.hidden}] y"]
        )
        body = _BODIES[self.cell] if form == WRITTEN else self._operator(states)
        text = f"recurrent ({', '.join(takes)}) => ({', '.join(gives)}) {{ {body} }}"
        made = parser.parse_model(f'<ir_version: 9, opset_import: ["": 17]> {text}')
        made.graph.initializer.extend(numpy_helper.from_array(*pair) for pair in self._weights(form))
        onnx.checker.check_model(made, full_check=True)
        return made

    def _operator(self, states: list[str]) -> str:
        reset = ", linear_before_reset = 1" if self.cell == "GRU" else ""
        results, old = (f", {'1, '.join(states)}1", f", , {', '.join(states)}") if self.is_cell else ("y", "")
        return f"{results} = {self.cell} <hidden_size = {self.hidden}{reset}> (x, w, r, b{old})"

    def _weights(self, form: str) -> list[tuple[np.ndarray, str]]:
        """Weights with their names; drawn alike for both forms."""
        draw, width = np.random.default_rng(0), GATES[self.cell] * self.hidden
        shapes = {"w": (1, width, self.hidden), "r": (1, width, self.hidden), "b": (1, 2 * width)}
        drawn = {name: draw.standard_normal(shape, np.float32) for name, shape in shapes.items()}
        scaled = {name: array * np.float32(self.hidden**-0.5) for name, array in drawn.items()}
        if form == OPERATOR:
            return [(array, name) for name, array in scaled.items()]
        found = [(np.ascontiguousarray(scaled[name][0].T), f"{name}t") for name in "wr"]
        found += [(scaled["b"][0, place * width :][:width], name) for place, name in enumerate(("wb", "rb"))]
        parts = np.full(GATES[self.cell], self.hidden, np.int64)
        return [*found, (parts, "gates")] if len(parts) > 1 else found


Make = Callable[[], Layer]
KINDS: Mapping[str, Mapping[str, Make]] = {
    LAYERS: {f"{c} {h}": partial(Layer, c, h, STEPS) for c in GATES for h in (128, 256, 512)},
    CELLS: {f"{c} cell {h}": partial(Layer, c, h, 1) for c in GATES for h in (128, 256, 512)},
}
"""Kind -> name -> layer."""
