"""The tiles of a product over an open number of rows, and how many of each compute so many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autofuse.device.target import Target
from autofuse.kernels.families.contraction.family import CONTRACTION, PRODUCTS
from autofuse.kernels.families.contraction.form import Contraction, contraction_form, results_a_column
from autofuse.kernels.families.contraction.panels import passes_over
from autofuse.kernels.families.contraction.parallel_grid import EVEN, ParallelGrid
from autofuse.kernels.families.protocol import Schedule
from autofuse.kernels.families.registry import nests_of, units_of
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.open_sizes.products.narrow import Narrow, narrow_product
from autofuse.kernels.schedule.covers import cheapest
from autofuse.kernels.schedule.knobs import packing
from autofuse.kernels.workload.workload import Workload

PAIR = 2
"""Rows of a tile that is taken of the workload of more: one by one they would read a panel twice."""
LONGEST_LEFT = 8
"""Rows up to which a tile of each number of rows is there, behind that of the next workload: what is left over whole
tiles is two tiles as alike as they can be, and each panel is read as few times as may be."""
PASS = 2
"""What it costs to read a panel once more, in rows: it comes from the second cache."""
LEAST = 4
"""Rows that a tile costs at least: fewer wait for each of their sums."""
ALIKE = 1e-3
"""Of tiles that cost the same, those are taken that are most alike: each has time to ask for its part of a panel."""
ALONE = {"algorithm": "direct", "split_k": 1, "k_blocking": 1}
"""Values of the knobs with which a panel is multiplied by some rows in one go."""


@dataclass(frozen=True)
class ProductTile:
    """So many `rows` at a time of a product, as the only `nest` of a `workload` of `knobs`.

    `number`: which of the kernel's tiles that is. Its workload may have more rows, of which these are the first.
    `shares`: whether tiles ask for the next panel, each for its part; few rows only read, which the hardware does
    ahead. `narrow`: what it multiplies where that is bytes or bfloat16. `passes`: parts of a panel, each of which meets
    many rows before the next one does.
    """

    number: int
    rows: int
    workload: Workload
    nest: Nest
    form: Contraction
    knobs: Mapping[str, int | str]
    shares: bool
    narrow: Narrow | None = None
    passes: int = 1

    @property
    def reads_ahead(self) -> bool:
        """Whether the first tile of a panel asks for what it reads itself a little later."""
        return self.narrow is not None and bool(self.knobs["prefetch"]) and not self.narrow.late


def product_tiles(
    tiles: Sequence[tuple[int, Workload, Schedule]], target: Target, threads: int
) -> list[ProductTile] | None:
    """The tiles of a kernel as those of a product whose panels each meet all rows; None where it is no such, or they
    pack its weights differently.

    `tiles`: rows, workload and schedule, the most rows first.
    """
    found = [_product_tile(number, *tile, target) for number, tile in enumerate(tiles)]
    products = [tile for tile in found if tile is not None]
    if len(products) < len(tiles) or len(tiles) == 1:
        return None
    packed = [packing(schedule) for _, _, schedule in tiles]
    if any(one != packed[0] for one in packed) or not _is_even(products[0], target, threads):
        return None
    longest, *smaller = products
    left = range(smaller[0].rows + 1, min(longest.rows - 1, LONGEST_LEFT) + 1)
    pair = next((replace(tile, rows=PAIR) for tile in products[:0:-1] if tile.rows > PAIR), None)
    kinds = [
        *(replace(longest, rows=rows) for rows in left[::-1]),
        *smaller[:-1],
        *([pair] if pair else []),
        smaller[-1],
    ]
    shorter = [replace(tile, shares=longest.shares and tile.rows > PAIR) for tile in kinds if tile.rows < longest.rows]
    return [longest, *shorter]


def product_counts(tiles: Sequence[int], rows: int) -> list[int]:
    """How many tiles of each kind compute so many rows by the rule: of the longest so many that two of them could
    compute what is left, and for that the tiles that cost least.

    `tiles`: rows of each kind, the most first, the last of 1.
    """
    whole = max(-(-rows // tiles[0]) - 2, 0)
    left = rows - whole * tiles[0]
    costs = {tile: max(tile, LEAST) + PASS + ALIKE * tile**2 for tile in tiles if tile <= left}
    taken = cheapest(left, costs)
    return [taken.count(tile) + whole * (tile == tiles[0]) for tile in tiles]


def _product_tile(number: int, rows: int, workload: Workload, schedule: Schedule, target: Target) -> ProductTile | None:
    nests = nests_of(workload)
    units = units_of(workload, nests, schedule)
    nest = units[0] if len(units) == 1 else None
    if not isinstance(nest, Nest) or nest.anchor is None:
        return None
    narrow = narrow_product(workload, nest, schedule, target)
    if narrow is None and nest.anchor.op_type not in PRODUCTS:
        return None
    knobs, form = CONTRACTION.chosen(schedule), contraction_form(workload, nest.anchor)
    plain = all(knobs[knob] == value for knob, value in ALONE.items()) and knobs["order"] != "copied"
    if narrow is not None:
        knobs, form, plain = {**narrow.knobs, "panels_per_task": 1}, narrow.product.form, True
    kinds = {workload.values[index].kind for index in nest.stores}
    constant = workload.values[form.w].kind == "constant"
    if not plain or not constant or kinds != {"output"} or len(form.windows) > 1 or results_a_column(form) != rows:
        return None
    together = min(rows, int(knobs["pixels"])) if number == 0 else rows
    shares = together > PAIR and (bool(knobs["next_panel"]) if narrow is None else narrow.late)
    passes = 1 if narrow is not None else passes_over(form, int(knobs["vectors"]), target)
    return ProductTile(number, together, workload, nest, form, knobs, shares, narrow, passes)


def _is_even(tile: ProductTile, target: Target, threads: int) -> bool:
    """Whether threads share the panels evenly."""
    columns = -(-tile.form.columns // target.lanes)
    vectors = min(int(tile.knobs["vectors"]), columns)
    tasks = ParallelGrid.cut(1, -(-columns // vectors), 1, tile.knobs)
    return threads == 1 or tasks.evenness(columns, vectors, threads) >= EVEN
