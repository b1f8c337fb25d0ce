"""LSTM, GRU and RNN as torch's own layers and cells, told to onnx2torch, which knows none of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from onnx2torch.node_converters.registry import add_converter
from onnx2torch.utils.common import OnnxMapping, OperationConverterResult, get_shape_from_value_info
from torch import Tensor, nn

LAYERS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}
CELLS = {"LSTM": nn.LSTMCell, "GRU": nn.GRUCell, "RNN": nn.RNNCell}
ORDERS = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
"""Where each of torch's gates stands in ONNX."""
VERSIONS = (7, 14)
FORWARD, BOTH = "forward", "bidirectional"
LENGTHS, STATES, PEEPHOLES = 4, (5, 6), 7
"""Inputs of the operator."""


class Layer(nn.Module):
    """One of torch's layers with the results of the ONNX operator; None for those that nobody reads."""

    def __init__(self, layer: nn.Module, read: tuple[bool, ...]) -> None:
        super().__init__()
        self.layer, self.read = layer, read

    def forward(self, x: Tensor, *old: Tensor) -> Any:
        """Y [S, D, B, H], and the new states [D, B, H]."""
        y, new = self.layer(x, _packed(old))
        steps, batch, _ = y.shape
        by_direction = y.view(steps, batch, -1, self.layer.hidden_size).transpose(1, 2)
        return _only(self.read, by_direction, *_listed(new))


class Cell(nn.Module):
    """One of torch's cells, which are several times faster than a layer of one step."""

    def __init__(self, cell: nn.Module, read: tuple[bool, ...]) -> None:
        super().__init__()
        self.cell, self.read = cell, read

    def forward(self, x: Tensor, *old: Tensor) -> Any:
        """See Layer."""
        new = [state.unsqueeze(0) for state in _listed(self.cell(x[0], _packed([state[0] for state in old])))]
        return _only(self.read, new[0].unsqueeze(0), *new)


def _packed(states: Sequence[Tensor]) -> Any:
    """As torch takes them: none, one, or a pair."""
    return None if not states else states[0] if len(states) == 1 else tuple(states)


def _listed(states: Any) -> tuple[Tensor, ...]:
    return states if isinstance(states, tuple) else (states,)


def _only(read: Sequence[bool], *results: Tensor) -> Any:
    """Results of which some are read; one alone as such, as onnx2torch takes it."""
    if len(read) == 1:
        return results[0]
    return tuple(result if wanted else None for result, wanted in zip(results, read, strict=False))


def _converted(node: Any, graph: Any) -> OperationConverterResult:
    kind, given = node.operation_type, dict(node.attributes)
    hidden, direction = given.pop("hidden_size"), given.pop("direction", FORWARD)
    reset = given.pop("linear_before_reset", 0)
    inputs = [*node.input_values, *[""] * (PEEPHOLES + 1 - len(node.input_values))]
    unknown = direction not in (FORWARD, BOTH) or (kind == "GRU" and not reset)
    if given or unknown or not inputs[3] or inputs[LENGTHS] or inputs[PEEPHOLES]:
        raise NotImplementedError(f"{kind} with options that torch's own layer has not")
    w, r, b = (graph.initializers[name].to_torch() for name in inputs[1:4])
    steps, *_ = get_shape_from_value_info(graph.value_info[inputs[0]]) or [0]
    single = steps == 1 and direction == FORWARD
    made = (
        CELLS[kind](w.shape[2], hidden) if single else LAYERS[kind](w.shape[2], hidden, bidirectional=direction == BOTH)
    )
    with torch.no_grad():
        for number in range(len(w)):
            _fill(made, kind, "" if single else ("_l0", "_l0_reverse")[number], w[number], r[number], b[number])
    read = tuple(bool(name) for name in node.output_values)
    taken = (inputs[0], *(inputs[place] for place in STATES if inputs[place]))
    module = Cell(made, read) if single else Layer(made, read)
    return OperationConverterResult(module, OnnxMapping(inputs=taken, outputs=node.output_values))


def _fill(made: nn.Module, kind: str, suffix: str, w: Tensor, r: Tensor, b: Tensor) -> None:
    """The weights of one direction, in torch's order of gates."""
    bias_of_inputs, bias_of_state = b.chunk(2)
    for name, held in {"weight_ih": w, "weight_hh": r, "bias_ih": bias_of_inputs, "bias_hh": bias_of_state}.items():
        gates = held.chunk(len(ORDERS[kind]))
        getattr(made, f"{name}{suffix}").copy_(torch.cat([gates[place] for place in ORDERS[kind]]))


@cache
def declare() -> None:
    """Tell onnx2torch of them."""
    for cell in LAYERS:
        for version in VERSIONS:
            add_converter(operation_type=cell, version=version)(_converted)
