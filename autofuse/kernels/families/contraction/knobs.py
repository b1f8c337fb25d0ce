"""The knobs of contractions, and which of their values make a difference for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from autofuse.kernels.families.contraction.dot import dot_refusal
from autofuse.kernels.families.contraction.form import (
    FEW_ROWS,
    Contraction,
    Convolution,
    contraction_form,
    copies_rows,
    group_lanes_refusal,
    is_widened,
    pixel_lanes_refusal,
    reads_rows,
    results_a_column,
)
from autofuse.kernels.families.contraction.winograd import ALGORITHMS, winograd_refusal
from autofuse.kernels.families.protocol import Case, Declared, Knob, Values, up_to, vector_lanes
from autofuse.kernels.nest.evaluate import in_rows
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import longest_row

LEAST_PANEL, BLOCK_BYTES = 2, 8192
"""Vectors, and bytes, of the part of a panel that a pass over the results has at least."""
LEAST_ROW = 8
"""Pixels that a row of a 1x1 contraction has at least when its pixels are cut into rows."""
MOST_SHARED = 64
"""Results a column from which on a panel's tiles are so many that they ask for the next one without being told."""
PART_CHANNELS = 64
"""Channels that a part of a sum has a multiple of."""

NAME = "contraction"
KNOBS: Declared = {
    "algorithm": Knob(
        ("direct", "winograd4", "winograd2", "dot", "pixel_lanes", "group_lanes"),
        "directly, by Winograd's transforms (3x3 of stride 1), with the lanes over channels (few columns), over pixels "
        "(1x1, between maps in rows), or over the channels of several small groups",
        packs=True,
    ),
    "vectors": Knob((2, 4, 1, 3, 8), "vectors of output channels held in registers", tile=True, packs=True),
    "pixels": Knob((4, 6, 5, 3, 8), "neighbouring results held in registers", tile=True),
    "rows_per_task": Knob((4, 1, 2, 8, 0), "rows of results a parallel task computes (0: all)"),
    "panels_per_task": Knob((1, 2, 4, 0), "panels of output channels a parallel task computes (0: all)"),
    "order": Knob(
        ("weights", "pixels", "copied"),
        "what stays in cache: a panel of weights, a row of the input, or a row of the input copied side by side",
    ),
    "pixel_rows": Knob((1, 2, 4, 8, 16), "rows into which the pixels of a 1x1 contraction are cut"),
    "split_k": Knob((1, 2, 4, 8, 16), "parts of the sum over channels that are computed apart, then added (few rows)"),
    "k_blocking": Knob(
        (1, 2, 4, 8, 16),
        "passes over the results, each with as many of the channels (whose weights then stay in the first cache)",
    ),
    "next_panel": Knob(
        (0, 1), "of few rows: whether a panel asks for the next one's weights however few tiles share it (1: it does)"
    ),
    "operand": Knob(("packed", "direct"), "a computed right-hand side: copied into panels first, or read as it lies"),
    "tiles": Knob((14, 28, 49, 7, 16, 4), "Winograd tiles transformed together"),
    "stage": Knob(("chunk", "root"), "where Winograd transforms its input: where it is used, or all ahead"),
}


@dataclass(frozen=True)
class Useful:
    """A nest of a contraction, asked about each of its knobs."""

    case: Case
    nest: Nest

    @cached_property
    def form(self) -> Contraction:
        assert self.nest.anchor is not None
        return contraction_form(self.case.workload, self.nest.anchor)

    @cached_property
    def winograd(self) -> bool:
        """Whether there is a Winograd form."""
        form, lanes = self.form, vector_lanes(self.case.workload, self.case.target)
        return isinstance(form, Convolution) and (
            winograd_refusal(self.case.workload, form.operator, form, lanes) is None
        )

    @cached_property
    def over_pixels(self) -> bool:
        """Whether the lanes may run over pixels."""
        return pixel_lanes_refusal(self.case.workload, self.form, self.lies) is None

    @cached_property
    def over_groups(self) -> bool:
        """Whether the lanes may run over channels of several groups."""
        return group_lanes_refusal(self.case.workload, self.form, self.case.target.lanes) is None

    @property
    def width(self) -> int:
        """Results in a row."""
        return longest_row(self.form.windows)

    @property
    def flat(self) -> bool:
        """Whether all pixels are one row."""
        return bool(getattr(self.form, "flat", False))

    @cached_property
    def stored(self) -> set[int]:
        """Values that lie in rows of pixels when they are read."""
        workload = self.case.workload
        made = {value for nest in self.case.nests for value in nest.stores}
        return made | {value for value in workload.of_kind("input") if not workload.values[value].block}

    def lies(self, value: int) -> bool:
        """Whether neighbours along the last dimension of a value are neighbours in memory."""
        return in_rows(self.case.workload, value, self.stored.__contains__)

    def of(self, knob: str, values: Values) -> Iterator[int | str]:
        """Those of `values` that make a difference, the default first."""
        one_row = prod(self.form.rows) == 1 and not (self.flat and self.width >= 2 * LEAST_ROW)
        if knob in ("order", "rows_per_task") and one_row:
            return iter(values[:1])
        by_knob: Mapping[str, Callable[[Values], Iterator[int | str]]] = {
            "algorithm": self.algorithm,
            "order": self.order,
            "operand": self.operand,
            "pixel_rows": self.pixel_rows,
            "split_k": self.split_k,
            "k_blocking": self.k_blocking,
            "next_panel": self.next_panel,
            "tiles": self.of_winograd,
            "stage": self.of_winograd,
            "vectors": lambda values: up_to(values, self.vectors),
            "pixels": lambda values: up_to(values, max(self.width, self.form.columns if self.over_pixels else 1)),
            "rows_per_task": lambda values: up_to(values, self.width if self.flat else prod(self.form.rows)),
        }
        return by_knob.get(knob, iter)(values)

    @property
    def vectors(self) -> int:
        """Vectors that the columns fill."""
        groups = prod(self.form.batch[1:]) if self.over_groups else 1
        columns = max(self.form.columns * groups, self.width if self.over_pixels else 1)
        return -(-columns // self.case.target.lanes)

    def algorithm(self, values: Values) -> Iterator[int | str]:
        lanes = vector_lanes(self.case.workload, self.case.target)  # of maps; the accumulators are whole registers
        dot = dot_refusal(self.case.workload, self.form, lanes, self.lies) is None
        able = {"direct"} | ({"dot"} if dot else set()) | ({"pixel_lanes"} if self.over_pixels else set())
        able |= {"group_lanes"} if self.over_groups else set()
        able |= set(ALGORITHMS) if self.winograd else set()
        return (value for value in values if value in able)

    def order(self, values: Values) -> Iterator[int | str]:
        copied = copies_rows(self.form) and any(value.block for value in self.case.workload.values)
        copied |= is_widened(self.case.workload, self.form)
        return (value for value in values if copied or value != "copied")

    def operand(self, values: Values) -> Iterator[int | str]:
        read = self.over_pixels or reads_rows(self.form, self.lies)
        return (value for value in values if read or value == "packed")

    def of_winograd(self, values: Values) -> Iterator[int | str]:
        return iter(values if self.winograd else ())

    def pixel_rows(self, values: Values) -> Iterator[int | str]:
        whole = len(self.form.windows) == 1 and self.flat
        return (v for v in values if isinstance(v, int) and (v == 1 or (whole and self.width // v >= LEAST_ROW)))

    def split_k(self, values: Values) -> Iterator[int | str]:
        """Those into which a sum divides as long parts, where its results are so few that it only streams weights."""
        few = results_a_column(self.form) <= FEW_ROWS
        return (
            v for v in values if isinstance(v, int) and (v == 1 or (few and not self.form.depth % (v * PART_CHANNELS)))
        )

    def next_panel(self, values: Values) -> Iterator[int | str]:
        """Those that make a difference where a few rows, but more than one, share a panel that was packed ahead."""
        form, packed = self.form, self.case.workload.values[self.form.w].kind == "constant"
        few = 1 < results_a_column(form) <= MOST_SHARED and prod(form.rows) == 1
        return iter(values if few and packed else values[:1])

    def k_blocking(self, values: Values) -> Iterator[int | str]:
        """Those each of which takes a part of a panel that is still large, and read by many results."""
        form, workload = self.form, self.case.workload
        panel_bytes = 4 * LEAST_PANEL * self.case.target.lanes * form.depth * prod(w.taps for w in form.windows)
        many = results_a_column(form) > FEW_ROWS and workload.values[form.w].kind == "constant"
        return (v for v in values if isinstance(v, int) and (v == 1 or (many and panel_bytes // v >= BLOCK_BYTES)))
