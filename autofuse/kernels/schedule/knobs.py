"""What a schedule may choose: the knobs of each family, which of them a workload has, and good first choices.

A schedule is a flat mapping `family.knob -> value`. Search spaces (TOML) give the values that are tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod

from autofuse.device.target import Target
from autofuse.kernels.families.contraction.dot import dot_refusal
from autofuse.kernels.families.contraction.form import (
    Contraction,
    Convolution,
    contraction_form,
    convolution_windows,
    copies_rows,
    pixel_lanes_refusal,
    reads_rows,
)
from autofuse.kernels.families.contraction.winograd import winograd_refusal
from autofuse.kernels.families.fused.band import Band, band_rows, banded
from autofuse.kernels.families.fused.block import Chain, chained
from autofuse.kernels.families.registry import KNOB_FAMILY, WHOLE_SUMS, WINOGRAD, family_of, is_own
from autofuse.kernels.families.registry import anchor_types as _anchor_types
from autofuse.kernels.families.softmax.last_axis import row_count
from autofuse.kernels.families.windowed.pixel_lanes import rows_refusal
from autofuse.kernels.nest.evaluate import in_rows
from autofuse.kernels.nest.nest import Nest, cut
from autofuse.kernels.nest.scalar import SCALAR
from autofuse.kernels.nest.tiles import longest_row
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

LEAST_PANEL, PASS_BYTES = 2, 8192
"""Vectors, and bytes, of the part of a panel that a pass over the results has at least."""
LEAST_ROW = 8
"""Pixels that a row of a 1x1 contraction has at least when its pixels are cut into rows."""
FEW_ROWS, PART_CHANNELS = 16, 64
"""Results a column up to which a product is bound by its weights; channels that a part of a sum has a multiple of."""

IDLE_IN_BANDS = frozenset(
    f"contraction.{knob}"
    for knob in ("algorithm", "parts", "passes", "panels_per_job", "rows_per_job", "split", "stage", "tiles")
) | {"windowed.algorithm", "windowed.rows_per_job"}
"""Knobs without a meaning where windows are computed by bands of rows: convolutions are direct, and a band is a job."""

Schedule = Mapping[str, int | str]
Values = tuple[int | str, ...]

# family -> knob -> (values tried where the search space names none, meaning)
DECLARED: Mapping[str, Mapping[str, tuple[Values, str]]] = {
    "contraction": {
        "algorithm": (
            ("direct", "winograd4", "winograd2", "dot", "pixel_lanes"),
            "directly, by Winograd's transforms (3x3 of stride 1), with the lanes over channels (few columns), or over "
            "pixels (1x1, between maps in rows)",
        ),
        "vectors": ((2, 4, 1, 3, 8), "vectors of output channels held in registers"),
        "pixels": ((4, 6, 5, 3, 8), "neighbouring results held in registers"),
        "rows_per_job": ((4, 1, 2, 8, 0), "rows of results a parallel job computes (0: all)"),
        "panels_per_job": ((1, 2, 4, 0), "panels of output channels a parallel job computes (0: all)"),
        "order": (
            ("weights", "pixels", "copied"),
            "what stays in cache: a panel of weights, a row of the input, or a row of the input copied side by side",
        ),
        "split": ((1, 2, 4, 8, 16), "rows into which the pixels of a 1x1 contraction are cut"),
        "parts": ((1, 2, 4, 8, 16), "parts of the sum over channels that are computed apart, then added (few rows)"),
        "passes": (
            (1, 2, 4, 8, 16),
            "passes over the results, each with as many of the channels (whose weights then stay in the first cache)",
        ),
        "operand": (("packed", "direct"), "a computed right-hand side: copied into panels first, or read as it lies"),
        "tiles": ((14, 28, 49, 7, 16, 4), "Winograd tiles transformed together"),
        "stage": (("chunk", "root"), "where Winograd transforms its input: where it is used, or all ahead"),
    },
    "windowed": {
        "algorithm": (
            ("direct", "pixel_lanes"),
            "with the lanes over channels, or over pixels (depthwise convolutions of stride 1, between maps in rows)",
        ),
        "pixels": ((4, 8, 7, 2), "neighbouring results held in registers"),
        "rows_per_job": ((0, 7, 14, 4), "rows of results a parallel job computes (0: all)"),
    },
    "block": {
        "rows": (
            (32, 0, 16, 64),
            "rows that a chain of products and normalisations computes together (0: all, in turn)",
        )
    },
    "band": {
        "rows": ((0, 4, 8, 2, 14), "rows of its result that a chain of windows computes together (0: all, in turn)")
    },
    "row": {"rows": ((4, 2, 8, 1), "rows that a softmax or a normalisation works on at once")},
    "elementwise": {"jobs": ((8, 2, 32), "parallel chunks of an elementwise loop")},
}


def declared_names() -> dict[str, frozenset[str]]:
    """Family -> names of its knobs."""
    return {family: frozenset(knobs) for family, knobs in DECLARED.items()}


def complete(schedule: Schedule, family: str) -> dict[str, int | str]:
    """The knobs of one family, the missing ones at their first declared value."""
    declared = DECLARED.get(family, {})
    return {knob: schedule.get(f"{family}.{knob}", values[0]) for knob, (values, _) in declared.items()}


def nests_of(workload: Workload) -> list[Nest]:
    """The loop nests of a workload that we generate; none for one that TVM's importer lowers."""
    return cut(workload, _anchor_types(), frozenset(SCALAR)) if is_own(workload) else []


def open_knobs(
    workload: Workload, target: Target, space: Mapping[str, Mapping[str, Sequence[int | str]]]
) -> dict[str, Values]:
    """Every knob that makes a difference for `workload` -> the values to try, the first being the default."""
    found: dict[str, Values] = {}
    for nest in nests_of(workload):
        family = KNOB_FAMILY.get(family_of(workload, nest.anchor))
        if family is None:
            continue
        for knob, (declared, _) in DECLARED[family].items():
            values = tuple(space.get(family, {}).get(knob, declared))
            useful = tuple(_useful(workload, nest, family, knob, values, target))
            name = f"{family}.{knob}"
            if len(useful) > len(found.get(name, ())):
                found[name] = useful
    chains = [unit for unit in chained(workload, nests_of(workload)) if isinstance(unit, Chain)]
    if chains:
        values = tuple(space.get("block", {}).get("rows", DECLARED["block"]["rows"][0]))
        most = max(chain.rows for chain in chains)
        found["block.rows"] = tuple(value for value in values if value == 0 or int(value) <= most) or values[:1]
    bands = [unit for unit in banded(workload, nests_of(workload)) if isinstance(unit, Band)]
    if bands:
        values = tuple(space.get("band", {}).get("rows", DECLARED["band"]["rows"][0]))
        most = max(band_rows(workload, band) for band in bands)
        found["band.rows"] = tuple(value for value in values if int(value) < most) or values[:1]
    return {name: values for name, values in found.items() if len(values) > 1}


def _useful(
    workload: Workload, nest: Nest, family: str, knob: str, values: Values, target: Target
) -> Iterator[int | str]:
    if family == "contraction":
        assert nest.anchor is not None
        yield from _useful_contraction(workload, nest.anchor, knob, values, target)
    elif family == "windowed":
        assert nest.anchor is not None
        windows = convolution_windows(workload, nest.anchor)
        if knob == "algorithm":
            turned = family_of(workload, nest.anchor) == "depthwise" and rows_refusal(workload, nest.anchor) is None
            yield from (value for value in values if turned or value == "direct")
            return
        limit = longest_row(windows) if knob == "pixels" else prod(w.outputs for w in windows[:-1])
        yield from _up_to(values, limit)
    elif family == "row":
        assert nest.anchor is not None
        yield from _up_to(values, max(1, min(row_count(nest.anchor, nest.space), _rows_in_cache(nest, target))))
    else:
        size = prod(nest.space)
        yield from (value for value in values if isinstance(value, int) and size >= 4096 * value)


def _rows_in_cache(nest: Nest, target: Target) -> int:
    """Rows of a softmax or a normalisation that fill half of the second cache."""
    assert nest.anchor is not None
    return target.l2_bytes // 8 // max(1, prod(nest.space) // row_count(nest.anchor, nest.space))


def _useful_contraction(
    workload: Workload, anchor: WorkloadOperator, knob: str, values: Values, target: Target
) -> Iterator[int | str]:
    form = contraction_form(workload, anchor)
    lanes = vector_lanes(workload, target)  # of maps; the accumulators are whole registers
    winograd = isinstance(form, Convolution) and winograd_refusal(workload, anchor, form, lanes) is None
    width = longest_row(form.windows)
    flat = getattr(form, "flat", False)
    stored = {value for nest in nests_of(workload) for value in nest.stores}
    stored |= {value for value in workload.of_kind("input") if not workload.values[value].block}

    def lies(value: int) -> bool:
        return in_rows(workload, value, stored.__contains__)

    over_pixels = pixel_lanes_refusal(workload, form, lies) is None
    if knob in ("order", "rows_per_job") and prod(form.rows) == 1 and not (flat and width >= 2 * LEAST_ROW):
        yield values[0]  # there is one row of results
    elif knob == "order":
        copied = copies_rows(form) and any(value.block for value in workload.values)
        yield from (value for value in values if copied or value != "copied")
    elif knob == "algorithm":
        dot = ("dot",) if dot_refusal(workload, form, lanes, lies) is None else ()
        able = {"direct", *(WINOGRAD if winograd else ()), *dot, *(("pixel_lanes",) if over_pixels else ())}
        yield from (value for value in values if value in able)
    elif knob in ("tiles", "stage"):
        yield from values if winograd else ()
    elif knob == "operand":
        yield from (value for value in values if over_pixels or reads_rows(form, lies) or value == "packed")
    elif knob == "vectors":
        yield from _up_to(values, -(-max(form.columns, width if over_pixels else 1) // target.lanes))
    elif knob == "pixels":
        yield from _up_to(values, max(width, form.columns if over_pixels else 1))
    elif knob in ("parts", "passes"):
        worth = _worth_parting if knob == "parts" else partial(_worth_passing, workload, target.lanes)
        yield from (v for v in values if isinstance(v, int) and (v == 1 or worth(form, v)))
    elif knob == "split":
        whole = len(form.windows) == 1 and flat
        yield from (v for v in values if isinstance(v, int) and (v == 1 or (whole and width // v >= LEAST_ROW)))
    elif knob == "rows_per_job":
        yield from _up_to(values, width if flat else prod(form.rows))
    else:
        yield from values


def _worth_parting(form: Contraction, parts: int) -> bool:
    """Whether a sum divides into so many long parts, and its results are so few that it only streams weights."""
    return results_a_column(form) <= FEW_ROWS and form.depth % (parts * PART_CHANNELS) == 0


def _worth_passing(workload: Workload, lanes: int, form: Contraction, passes: int) -> bool:
    """Whether the part of a panel that each of so many passes takes is still large, and read by many results."""
    panel_bytes = 4 * LEAST_PANEL * lanes * form.depth * prod(window.taps for window in form.windows)
    many = results_a_column(form) > FEW_ROWS and workload.values[form.w].kind == "constant"
    return many and panel_bytes // passes >= PASS_BYTES


def results_a_column(form: Contraction) -> int:
    """Results that share a column of the right-hand side."""
    return prod(form.batch) * prod(window.outputs for window in form.windows)


def _up_to(values: Values, limit: int) -> Iterator[int | str]:
    """Values that do not exceed `limit`; at least the smallest."""
    numbers = [value for value in values if isinstance(value, int)]
    fitting = [value for value in numbers if value <= limit]
    yield from fitting or [min(numbers)]


def vector_lanes(workload: Workload, target: Target) -> int:
    """Lanes of the vectors along feature maps in a workload: a full register, or their smallest block."""
    return min([target.lanes, *(value.block for value in workload.values if value.block)])


def canonical(schedule: Schedule, knobs: Mapping[str, Values]) -> dict[str, int | str]:
    """`schedule` without knobs that the workload lacks or that its other choices make idle."""
    kept = {name: value for name, value in sorted(schedule.items()) if name in knobs}
    if kept.get("band.rows"):
        if kept.get("contraction.order") == "copied":  # the rows of a band stand side by side
            kept["contraction.order"] = "pixels"
        return {name: value for name, value in kept.items() if name not in IDLE_IN_BANDS}
    winograd = kept.get("contraction.algorithm") in WINOGRAD
    if kept.get("contraction.algorithm") in WHOLE_SUMS:
        kept.pop("contraction.parts", None)
        kept.pop("contraction.passes", None)
    elif "pixel_lanes" in knobs.get("contraction.algorithm", ()):  # it alone reads the map as the right-hand side
        kept.pop("contraction.operand", None)
    idle: tuple[str, ...] = ("rows_per_job", "order", "split", "parts", "passes") if winograd else ("tiles", "stage")
    if kept.get("contraction.parts", 1) != 1:
        idle = (*idle, "rows_per_job", "order", "split", "passes")
    elif kept.get("contraction.split") == 1:  # then all pixels are one row
        idle = (*idle, "rows_per_job", "order")
    elif kept.get("contraction.passes", 1) != 1 and not winograd:  # each takes the rows for its part of the weights
        idle = (*idle, "order")
    for knob in idle:
        kept.pop(f"contraction.{knob}", None)
    if kept.get("contraction.passes") == 1:  # as in a schedule without this knob
        del kept["contraction.passes"]
    if winograd and kept.get("contraction.stage", "chunk") == "chunk":
        kept.pop("contraction.panels_per_job", None)
    return kept


def fits_registers(schedule: Schedule, target: Target) -> bool:
    """Whether the accumulators, a row of weights and one broadcast fit the vector registers."""
    vectors, pixels = schedule.get("contraction.vectors"), schedule.get("contraction.pixels")
    if not isinstance(vectors, int) or not isinstance(pixels, int):
        return True
    return vectors * pixels + vectors + 1 <= target.registers
