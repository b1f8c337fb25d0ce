"""Operands of narrow products as their instruction reads them: neighbours of the depth side by side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tvm import tirx

from autofuse.kernels.families.narrow.instructions import SIGN, Multiplier
from autofuse.kernels.families.narrow.products.form import NarrowContraction
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.tir.emit import Emitter, Expr, Index, const
from autofuse.kernels.tir.offsets import delinear


@dataclass(frozen=True)
class Operands:
    """The two sides of a narrow product while its kernel is emitted.

    `panel_vectors`: vectors of columns in a panel of packed weights.
    """

    scope: Scope
    product: NarrowContraction
    multiplier: Multiplier
    panel_vectors: int

    @cached_property
    def units(self) -> int:
        """Steps of the instruction over the depth."""
        return self.multiplier.whole(-(-self.product.form.depth // self.multiplier.together))

    @cached_property
    def padded_depth(self) -> int:
        """The depth, up to a whole number of steps."""
        return self.units * self.multiplier.together

    @cached_property
    def panels(self) -> int:
        """Panels of columns."""
        return -(-self.product.form.columns // self.panel_lanes)

    @cached_property
    def panel_lanes(self) -> int:
        """Columns of a panel."""
        return self.panel_vectors * self.multiplier.lanes

    @cached_property
    def taps(self) -> int:
        """Taps of the window."""
        return prod(window.kernel for window in self.product.form.windows)

    @cached_property
    def joins(self) -> bool:
        """Whether the numbers of a row of taps lie one behind the other, with no padding between positions.

        A step then takes some of one position and some of the next, and a row has fewer steps. The last step of a row
        may read numbers beyond it, which meet weights of 0.
        """
        form, together, window = self.product.form, self.multiplier.together, self.product.form.windows[-1]
        known = self.product.right_is_constant(self.scope.workload)
        plain = self.multiplier.rows == 1 and not (self.multiplier.strided or self.float16 or self.corrects)
        return known and plain and window.dilation == 1 and -(-window.taps * form.depth // together) < self.row_steps

    @property
    def row_steps(self) -> int:
        """Steps of a row of taps that keep positions apart."""
        return self.units * self.product.form.windows[-1].taps

    @cached_property
    def row_units(self) -> int:
        """Steps of a row of taps."""
        window = self.product.form.windows[-1]
        return -(-window.taps * self.product.form.depth // self.multiplier.together) if self.joins else self.row_steps

    @property
    def beyond(self) -> int:
        """Numbers beyond a row of taps that its last step reads."""
        form = self.product.form
        row = form.windows[-1].taps * form.depth
        return self.row_units * self.multiplier.together - row if self.joins else 0

    @property
    def cuts(self) -> bool:
        """Whether those are real: they may be infinite, so that a weight of 0 does not make 0 of them."""
        return self.real and self.beyond > 0

    @property
    def pitch(self) -> int:
        """Numbers from one position of a copy to the next one."""
        return self.product.form.depth if self.joins else self.padded_depth

    @cached_property
    def signed(self) -> bool:
        """Whether x is of signed bytes."""
        return self.product.left_signed(self.scope.workload)

    @property
    def real(self) -> bool:
        """Whether real numbers are rounded to bfloat16."""
        return self.multiplier.left == "uint16"

    @property
    def float16(self) -> bool:
        """Whether real numbers are rounded to float16."""
        return self.multiplier.left == "float16"

    @property
    def shifts(self) -> bool:
        """Whether zero points are taken out of the sums, and bytes stay as they are but for their sign."""
        return self.multiplier.right == "int8"

    @cached_property
    def shift(self) -> int:
        """What is added to a byte of x so that it has the sign of those that are multiplied."""
        wanted = self.multiplier.left == "int8"
        if not self.shifts or wanted == self.signed:
            return 0
        return -SIGN if wanted else SIGN

    @cached_property
    def corrects(self) -> bool:
        """Whether w less its zero point may exceed signed bytes, so that the sums of x take the rest of it away."""
        return self.shifts and not self.product.right_is_centred(self.scope.workload)

    def stored(self, value: int, index: Index) -> Expr | None:
        """The 16 bits of an element that lies in memory as bfloat16 and is multiplied so; else None."""
        if not self.real or value not in self.scope.ready or not self.scope.arrays[value].half:
            return None
        array = self.scope.arrays[value]
        return array.buffer[self.scope.emitter.simplify(array.offset(index))]

    def x_zero(self) -> Expr:
        """The zero point of x as int32, of bytes as they are multiplied."""
        shift = self.shift
        return self.zero(self.product.x_zero, (0,)) + const(shift, "int32")

    def zero(self, value: int, index: Index) -> Expr:
        """An element of a zero point as int32."""
        if value < 0:
            return const(0, "int32")
        shape = self.scope.shape(value)
        element = self.scope.read(value, tuple(0 for _ in shape) if prod(shape) == 1 else index)
        return const(int(element.value), "int32") if isinstance(element, tirx.IntImm) else tirx.Cast("int32", element)


@contextmanager
def positions(emitter: Emitter, batch: Index, sizes: Index) -> Iterator[tuple[Index, Index, Expr]]:
    """All positions, as (batch, position, number). Threads share those of all sizes but the last; of one size, all."""
    *outer, last = sizes
    grid, inner = ((*batch, *outer), last) if outer else ((*batch, last), 1)
    with emitter.parallel(prod(grid)) as task, emitter.serial(inner) as step:
        place = (*(emitter.simplify(part) for part in delinear(task, grid)), *([step] if outer else ()))
        yield place[: len(batch)], place[len(batch) :], emitter.simplify(task * inner + step)
