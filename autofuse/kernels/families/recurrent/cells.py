"""The cells: new states of one hidden unit from the sums of its gates and its old states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import tirx

from autofuse.kernels.families.recurrent.form import Activation, Recurrence
from autofuse.kernels.nest.scalar import SCALAR
from autofuse.kernels.tir.emit import Expr, const
from autofuse.kernels.workload.workload import WorkloadOperator

Bind = Callable[[Expr], Expr]


@dataclass(frozen=True)
class Cell:
    """The formulas of one direction. `bind` names a value that is used more than once."""

    form: Recurrence
    activations: Sequence[Activation]
    bind: Bind

    def activated(self, which: int, x: Expr) -> Expr:
        """Activation number `which` of a sum, which is clipped first."""
        limit = self.form.clip
        if limit > 0:
            x = tirx.Max(tirx.Min(x, const(limit, "float32")), const(-limit, "float32"))
        return self.function(which, x)

    def function(self, which: int, x: Expr) -> Expr:
        """Activation number `which`, unclipped."""
        activation, x = self.activations[which], self.bind(x)
        alpha, beta = (const(value, "float32") for value in (activation.alpha, activation.beta))
        if activation.name == "Affine":
            return self.bind(alpha * x + beta)
        if activation.name == "ScaledTanh":
            return self.bind(alpha * self._scalar("Tanh", self.bind(beta * x)))
        return self.bind(self._scalar(activation.name, x, alpha=activation.alpha, beta=activation.beta))

    def _scalar(self, op_type: str, x: Expr, **attributes: float) -> Expr:
        operator = WorkloadOperator(op_type, (), (), tuple(attributes.items()))
        return SCALAR[op_type]((x,), operator, "float32", self.bind)

    def lstm(self, sums: Sequence[Expr], c: Expr, peepholes: Sequence[Expr] | None) -> tuple[Expr, Expr]:
        """(new h, new c); `sums` in ONNX's order i, o, f, c, the peepholes i, o, f."""
        i, o, f, g = sums
        c = self.bind(c)
        if peepholes is not None:
            i, f = i + peepholes[0] * c, f + peepholes[2] * c
        i = self.activated(0, i)
        f = const(1.0, "float32") - i if self.form.input_forget else self.activated(0, f)
        new = self.bind(f * c + i * self.activated(1, g))
        if peepholes is not None:
            o = o + peepholes[1] * new
        return self.activated(0, o) * self.function(2, new), new

    def reset_product(self, r: Expr, h: Expr) -> Expr:
        """What the candidate of a GRU is a product of, where the reset comes before the product."""
        return self.activated(0, r) * h

    def gru(self, z: Expr, candidate: Expr, h: Expr) -> Expr:
        """New h: (1 - z) candidate + z h; z is activated already, the candidate is not."""
        z = self.bind(z)
        return (const(1.0, "float32") - z) * self.activated(1, candidate) + z * h

    def rnn(self, total: Expr) -> Expr:
        """New h."""
        return self.activated(0, total)
