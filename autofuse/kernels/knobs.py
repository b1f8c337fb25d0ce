"""What a schedule may choose: the knobs of each family, which of them a workload has, and good first choices.

A schedule is a flat mapping `family.knob -> value`. Search spaces (TOML) give the values that are tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod

from autofuse.device.target import Target
from autofuse.kernels.band import Band, band_rows, banded
from autofuse.kernels.block import Chain, chained
from autofuse.kernels.contraction import NARROW, copies_rows, reads_rows
from autofuse.kernels.contraction_form import (
    CONVOLUTIONS,
    Contraction,
    Convolution,
    contraction_form,
    convolution_windows,
)
from autofuse.kernels.dot import dot_refusal
from autofuse.kernels.evaluate import in_rows
from autofuse.kernels.families import KNOB_FAMILY, WINOGRAD, family_of, is_own
from autofuse.kernels.families import anchor_types as _anchor_types
from autofuse.kernels.nest import Nest, cut
from autofuse.kernels.row import row_count
from autofuse.kernels.scalar import SCALAR
from autofuse.kernels.tiles import divisor_near, longest_row
from autofuse.kernels.winograd import winograd_refusal
from autofuse.kernels.workload import Workload, WorkloadOperator

FEW_ROWS, PART_CHANNELS = 16, 64
"""Results a column up to which a product is bound by its weights; channels that a part of a sum has a multiple of."""


STREAMED = 4
"""Vectors side by side in a panel of weights that is streamed from memory (measured on Zen 3: 4 best, 8 slower)."""
LEAST_ROW = 8
"""Pixels that a row of a 1x1 contraction has at least when its pixels are cut into rows."""
PAGE_BYTES, LINE_BYTES, WAYS = 4096, 64, 8
"""Addresses a page apart share a set of the first cache, which holds so many of their lines."""
LEAST_TILES = 4
"""4x4 tiles of an image below which Winograd only makes its weights larger."""

IDLE_IN_BANDS = frozenset(
    f"contraction.{knob}"
    for knob in ("algorithm", "parts", "panels_per_job", "rows_per_job", "split", "stage", "tiles")
) | {"windowed.rows_per_job"}
"""Knobs without a meaning where windows are computed by bands of rows: convolutions are direct, and a band is a job."""

Schedule = Mapping[str, int | str]
Values = tuple[int | str, ...]

# family -> knob -> (values tried where the search space names none, meaning)
DECLARED: Mapping[str, Mapping[str, tuple[Values, str]]] = {
    "contraction": {
        "algorithm": (
            ("direct", "winograd4", "winograd2", "dot"),
            "directly, by Winograd's transforms (3x3 of stride 1), or with the lanes over channels (few columns)",
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
        "operand": (("packed", "direct"), "a computed right-hand side: copied into panels first, or read as it lies"),
        "tiles": ((14, 28, 7, 49, 4), "Winograd tiles transformed together"),
        "stage": (("chunk", "root"), "where Winograd transforms its input: where it is used, or all ahead"),
    },
    "windowed": {
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
    lanes = vector_lanes(workload, target)
    winograd = isinstance(form, Convolution) and winograd_refusal(workload, anchor, form, lanes) is None
    width = longest_row(form.windows)
    flat = getattr(form, "flat", False)
    stored = {value for nest in nests_of(workload) for value in nest.stores}
    stored |= {value for value in workload.of_kind("input") if not workload.values[value].block}

    def lies(value: int) -> bool:
        return in_rows(workload, value, stored.__contains__)

    if knob in ("order", "rows_per_job") and prod(form.rows) == 1 and not (flat and width >= 2 * LEAST_ROW):
        yield values[0]  # there is one row of results
    elif knob == "order":
        copied = copies_rows(form) and any(value.block for value in workload.values)
        yield from (value for value in values if copied or value != "copied")
    elif knob == "algorithm":
        dot = dot_refusal(workload, form, lanes, lies) is None
        able = {"direct", *(WINOGRAD if winograd else ()), *(("dot",) if dot else ())}
        yield from (value for value in values if value in able)
    elif knob in ("tiles", "stage"):
        yield from values if winograd else ()
    elif knob == "operand":
        yield from (value for value in values if reads_rows(form, lies) or value == "packed")
    elif knob == "vectors":
        yield from _up_to(values, -(-form.columns // lanes))
    elif knob == "pixels":
        yield from _up_to(values, width)
    elif knob == "parts":
        yield from (v for v in values if isinstance(v, int) and (v == 1 or _worth_parting(form, v)))
    elif knob == "split":
        whole = len(form.windows) == 1 and flat
        yield from (v for v in values if isinstance(v, int) and (v == 1 or (whole and width // v >= LEAST_ROW)))
    elif knob == "rows_per_job":
        yield from _up_to(values, width if flat else prod(form.rows))
    else:
        yield from values


def _worth_parting(form: Contraction, parts: int) -> bool:
    """Whether a sum divides into so many long parts, and its results are so few that it only streams weights."""
    return _results_a_column(form) <= FEW_ROWS and form.depth % (parts * PART_CHANNELS) == 0


def _results_a_column(form: Contraction) -> int:
    return prod(form.batch) * prod(window.outputs for window in form.windows)


def _up_to(values: Values, limit: int) -> Iterator[int | str]:
    """Values that do not exceed `limit`; at least the smallest."""
    numbers = [value for value in values if isinstance(value, int)]
    fitting = [value for value in numbers if value <= limit]
    yield from fitting or [min(numbers)]


def vector_lanes(workload: Workload, target: Target) -> int:
    """Lanes of the vectors of a workload: a full register, or the smaller block of its feature maps."""
    return min([target.lanes, *(value.block for value in workload.values if value.block)])


def canonical(schedule: Schedule, knobs: Mapping[str, Values]) -> dict[str, int | str]:
    """`schedule` without knobs that the workload lacks or that its other choices make idle."""
    kept = {name: value for name, value in sorted(schedule.items()) if name in knobs}
    if kept.get("band.rows"):
        return {name: value for name, value in kept.items() if name not in IDLE_IN_BANDS}
    winograd = kept.get("contraction.algorithm") in WINOGRAD
    if kept.get("contraction.algorithm") == "dot":
        kept.pop("contraction.parts", None)
    idle: tuple[str, ...] = ("rows_per_job", "order", "split", "parts") if winograd else ("tiles", "stage")
    if kept.get("contraction.parts", 1) != 1:
        idle = (*idle, "rows_per_job", "order", "split")
    elif kept.get("contraction.split") == 1:  # then all pixels are one row
        idle = (*idle, "rows_per_job", "order")
    for knob in idle:
        kept.pop(f"contraction.{knob}", None)
    if winograd and kept.get("contraction.stage", "chunk") == "chunk":
        kept.pop("contraction.panels_per_job", None)
    return kept


def fits_registers(schedule: Schedule, target: Target) -> bool:
    """Whether the accumulators, a row of weights and one broadcast fit the vector registers."""
    vectors, pixels = schedule.get("contraction.vectors"), schedule.get("contraction.pixels")
    if not isinstance(vectors, int) or not isinstance(pixels, int):
        return True
    return vectors * pixels + vectors + 1 <= target.registers


def first_schedules(workload: Workload, knobs: Mapping[str, Values], target: Target) -> list[dict[str, int | str]]:
    """Schedules worth trying before any search, best guess first; all within `knobs`.

    Winograd where the image fills its tiles, all of it transformed ahead where its chunks are too few for the threads;
    in products and 1x1 convolutions as many accumulators as the registers hold, then the next smaller tile and the
    default (narrow vectors: the default first, since their many loads need registers too). Where few rows only stream
    their weights, the widest panel that is streamed well; where what a row reads crowds the cache, a copy of it.
    """
    default = {name: values[0] for name, values in knobs.items()}
    guesses = [default]
    algorithms = knobs.get("contraction.algorithm", ())
    if not WINOGRAD.keys().isdisjoint(algorithms):
        guesses = [default | guess for guess in _winograd_guesses(workload, default, target)]
    elif target.lanes > NARROW and (rows := _few_rows(workload)):
        guesses = [default | _streaming_tile(rows, knobs, target), default]
    elif "contraction.order" in knobs or "contraction.pixels" in knobs:
        widest = _widest_tiles(default, knobs.get("contraction.pixels", ()), target)
        products = all(operator.op_type not in CONVOLUTIONS for operator in workload.operators)
        wide = target.lanes > NARROW and (products or "contraction.split" in knobs)
        guesses = [*widest, default] if wide else [default, *widest[:1]]
        if _crowded(workload):
            copied: dict[str, int | str] = {"contraction.order": "copied", "contraction.panels_per_job": 0}
            guesses = [guess | copied for guess in (*widest[:1], default)] + guesses
    if "dot" in algorithms:
        guesses.insert(0, default | {"contraction.algorithm": "dot"})
    bands = [rows for rows in knobs.get("band.rows", ()) if rows]
    guesses += [guesses[0] | {"band.rows": rows} for rows in bands[:2]]
    unique: dict[str, dict[str, int | str]] = {}
    for guess in guesses:
        if all(value in knobs[name] for name, value in guess.items() if name in knobs):
            kept = canonical(guess, knobs)
            unique.setdefault(str(sorted(kept.items())), kept)
    return list(unique.values())


def _widest_tiles(default: Mapping[str, int | str], pixels: Values, target: Target) -> list[dict[str, int | str]]:
    """`default` with the most pixels whose accumulators fit the registers, and with the next number below."""
    fitting = [p for p in pixels if isinstance(p, int) and fits_registers({**default, "contraction.pixels": p}, target)]
    return [{**default, "contraction.pixels": count} for count in sorted(fitting, reverse=True)[:2]]


def _crowded(workload: Workload) -> bool:
    """Whether a row of results of a convolution reads more lines of one set than the first cache holds.

    So in maps whose size is a multiple of a page: all channels and outer taps of a position meet in a few sets.
    """
    for operator in workload.operators:
        block = workload.values[operator.inputs[0]].block if operator.op_type == "Conv" else 0
        form = contraction_form(workload, operator) if block else None
        if form is None or not copies_rows(form):
            continue
        starts = [0]
        row_bytes = form.windows[-1].size * block * 4
        for window in reversed(form.windows[:-1]):
            starts = [s + tap * window.dilation * row_bytes for s in starts for tap in range(window.taps)]
            row_bytes *= window.size
        starts = [s + number * row_bytes for s in starts for number in range(-(-form.depth // block))]
        lines = Counter(start % PAGE_BYTES // LINE_BYTES for start in starts)
        if max(lines.values()) > WAYS:
            return True
    return False


def _few_rows(workload: Workload) -> int:
    """Results a column of a workload's only contraction, where it does little but stream its weights; else 0."""
    anchors = [nest.anchor for nest in nests_of(workload) if family_of(workload, nest.anchor) == "contraction"]
    if len(anchors) != 1 or anchors[0] is None:
        return 0
    rows = _results_a_column(contraction_form(workload, anchors[0]))
    return rows if rows <= FEW_ROWS else 0


def _streaming_tile(rows: int, knobs: Mapping[str, Values], target: Target) -> dict[str, int | str]:
    """The tile with most accumulators, of a panel no wider than `STREAMED` vectors: wider ones are read slower."""
    best = (0, 0)
    chosen: dict[str, int | str] = {}
    for vectors, pixels in product(knobs.get("contraction.vectors", (1,)), knobs.get("contraction.pixels", (rows,))):
        here = {"contraction.vectors": vectors, "contraction.pixels": pixels}
        width = -(-rows // -(-rows // int(pixels)))
        size = int(vectors) * width, int(vectors)
        if int(vectors) <= STREAMED and fits_registers(here, target) and size > best:
            best, chosen = size, {name: value for name, value in here.items() if name in knobs}
    return chosen


def _winograd_guesses(
    workload: Workload, default: Mapping[str, int | str], target: Target
) -> list[dict[str, int | str]]:
    """Choices of algorithm and stage for a convolution that has them, best guess first."""
    names = ("winograd4", "winograd2", "direct")
    kinds: list[dict[str, int | str]] = [{"contraction.algorithm": name} for name in names]
    (four, two, direct), root = kinds, {"contraction.stage": "root"}
    tiles = _image_tiles(workload)
    if tiles < LEAST_TILES:
        return [direct, two, four]
    if tiles // divisor_near(tiles, int(default.get("contraction.tiles", 1))) < 2 * target.cores:
        return [four | root, two | root, four, direct, two]
    return [four, direct, four | root, two]


def _image_tiles(workload: Workload) -> int:
    """4x4 tiles of the results (of a layer, where they have several) of a workload's first convolution."""
    for operator in workload.operators:
        if operator.op_type in CONVOLUTIONS:
            batch, _, *image = workload.values[operator.outputs[0]].shape
            return batch * prod(-(-extent // 4) for extent in image[-2:])
    return 0
