"""What a recurrence computes: its sizes, directions, activations and options, read from the operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autofuse.graph.own.recurrence import GATES, LENGTHS, RECURRENCES
from autofuse.kernels.tir.offsets import Expr, Index
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

DEFAULT_ACTIVATIONS: Mapping[str, tuple[str, ...]] = {
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
    "GRU": ("Sigmoid", "Tanh"),
    "RNN": ("Tanh",),
}
_PARAMETERS: Mapping[str, tuple[float | None, float | None]] = {
    "Affine": (0.0, 0.0),
    "Elu": (1.0, None),
    "HardSigmoid": (0.2, 0.5),
    "LeakyRelu": (0.01, None),
    "Relu": (None, None),
    "ScaledTanh": (0.0, 0.0),
    "Sigmoid": (None, None),
    "Softplus": (None, None),
    "Softsign": (None, None),
    "Tanh": (None, None),
    "ThresholdedRelu": (0.0, None),
}
"""Activations, and the default of their alpha and beta in ONNX Runtime (None: it has none)."""
_NAMES = {name.lower(): name for name in _PARAMETERS}


@dataclass(frozen=True)
class Activation:
    """A function of one gate; alpha and beta are 0 where it has none."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0


@dataclass(frozen=True)
class Recurrence:
    """A recurrence over value indices of its workload (-1: absent).

    `cell`: the ONNX operator; `activations`: of each direction, in ONNX's order; `clip`: bound of what goes into an
    activation (0: none); `directions`: True where a direction runs backwards. `batch_first`: sequences stand in front
    of steps and directions.
    """

    cell: str
    steps: int
    batch: int
    hidden: int
    directions: tuple[bool, ...]
    activations: tuple[tuple[Activation, ...], ...]
    clip: float
    input_forget: bool
    linear_before_reset: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    batch_first: bool = False

    @property
    def gates(self) -> int:
        """Gates of a hidden unit."""
        return GATES[self.cell]

    @property
    def passes(self) -> tuple[tuple[int, ...], ...]:
        """Gates whose products are computed together; a later pass reads what an earlier one made of all units."""
        if self.cell == "GRU" and not self.linear_before_reset:
            return (0, 1), (2,)
        return (tuple(range(self.gates)),)

    def at_step(self, time: Expr, row: Expr, *others: Expr) -> Index:
        """Where an element of a step of a sequence stands in an input or a result."""
        return (row, time, *others) if self.batch_first else (time, *others[:-1], row, *others[-1:])

    def of_state(self, direction: Expr, row: Expr, unit: Expr) -> Index:
        """Where an element of a state before the first step, or after the last one, stands."""
        return (row, direction, unit) if self.batch_first else (direction, row, unit)

    def input(self, place: int) -> int:
        """Value index of an input."""
        return self.inputs[place] if place < len(self.inputs) else -1

    def output(self, place: int) -> int:
        """Value index of an output."""
        return self.outputs[place] if place < len(self.outputs) else -1

    projected = property(lambda self: self.input(0))
    weights = property(lambda self: self.input(1))
    bias = property(lambda self: self.input(2))
    lengths = property(lambda self: self.input(LENGTHS))
    initial_h = property(lambda self: self.input(4))
    initial_c = property(lambda self: self.input(5))
    peepholes = property(lambda self: self.input(6))


def recurrence_form(workload: Workload, operator: WorkloadOperator) -> Recurrence:
    """The recurrence that an operator describes; ValueError, with the reason, where it describes none."""
    cell = RECURRENCES[operator.op_type]
    steps, batch, _ = workload.values[operator.inputs[0]].shape
    if batch_first := bool(operator.attribute("layout", 0)):
        steps, batch = batch, steps
    directions, _, hidden = workload.values[operator.inputs[1]].shape
    direction = str(operator.attribute("direction", "forward"))
    backwards = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}.get(direction, ())
    if len(backwards) != directions:
        raise ValueError(f"direction {direction!r} with weights of {directions} directions")
    return Recurrence(
        cell,
        steps,
        batch,
        hidden,
        backwards,
        _activations(cell, directions, operator),
        float(operator.attribute("clip", 0.0) or 0.0),  # type: ignore[arg-type]
        bool(operator.attribute("input_forget", 0)),
        bool(operator.attribute("linear_before_reset", 0)),
        operator.inputs,
        operator.outputs,
        batch_first,
    )


def _activations(cell: str, directions: int, operator: WorkloadOperator) -> tuple[tuple[Activation, ...], ...]:
    """Those of each direction. As ONNX Runtime does, alphas and betas go in turn to those that have such."""
    default = DEFAULT_ACTIVATIONS[cell]
    given = operator.attribute("activations")
    names: Sequence[str] = (given,) if isinstance(given, str) else given or default * directions  # type: ignore[assignment]
    if len(names) != len(default) * directions:
        raise ValueError(f"{len(names)} activations where {len(default) * directions} are needed")
    pools = [list(_numbers(operator.attribute(name))) for name in ("activation_alpha", "activation_beta")]
    found = []
    for name in names:
        known = _NAMES.get(str(name).lower())
        if known is None:
            raise ValueError(f"activation {name!r}")
        values = [
            0.0 if usual is None else pool.pop(0) if pool else usual
            for usual, pool in zip(_PARAMETERS[known], pools, strict=True)
        ]
        found.append(Activation(known, *values))
    return tuple(tuple(found[number * len(default) : (number + 1) * len(default)]) for number in range(directions))


def _numbers(value: Any) -> tuple[float, ...]:
    return tuple(float(number) for number in value) if isinstance(value, tuple) else ()
