"""Winograd's algorithm over images whose height and width are open, compared with ONNX Runtime."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from autofuse import api
from autofuse.compiler.context import Context
from autofuse.compiler.open_sizes.plans import find_open_plans
from autofuse.database.database import open_database
from autofuse.database.records import Candidate, CandidateOutcome
from autofuse.environment.environment import environment_of
from autofuse.errors import StrictMissError
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.kernels.families.contraction.family import CONTRACTION
from autofuse.kernels.open_sizes.images.grid_tiles import Range, widths
from autofuse.kernels.open_sizes.images.whole_grid import Costs, algorithm, sample_for, winograd_samples
from autofuse.kernels.schedule.covers import cheapest
from autofuse.kernels.workload.workload import Workload
from autofuse.opened.grid_job import form_of_images, grid_plan
from autofuse.opened.kinds import read_images
from tests.compiler.open_sizes.images import built_images, check_images
from tests.compiler.open_sizes.models import weight, write

BLOCK = """
block (float[N, 16, height, width] x) => (float[N, 32, height, width] y) {
  a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w1, b16)
  s = Add (a, x)
  r = Relu (s)
  y = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (r, w2)
}"""
WEIGHTS = {"w1": weight(16, 16, 3, 3), "b16": weight(16), "w2": weight(32, 16, 3, 3)}
"""Two convolutions in blocks of channels, the first with a sum of the image behind it."""
ONE = """
one (float[1, 16, height, width] x) => (float[1, 16, height, width] y) {
  y = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w1)
}"""
JOINED = """
joined (float[1, 16, height, width] x) => (float[1, 48, height, width] y) {
  a = Conv (x, w2)
  ar = Relu (a)
  c = Conv (x, w3)
  cr = Relu (c)
  b = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (cr, w1)
  y = Concat <axis = 1> (ar, b, c)
}"""
BORDERS = """
borders (float[1, 16, height, width] x) => (float[1, 16, h, w] y, float[1, 16, k, l] z) {
  y = Conv <kernel_shape = [3, 3], pads = [0, 2, 1, 0]> (x, w1)
  z = Conv <kernel_shape = [3, 3]> (x, w1)
}"""
"""A convolution with other padding on each side, and one without."""


def algorithms(model: Path, sizes: dict[str, tuple[int, ...]]) -> list[tuple[str, int]]:
    """Which sample of each convolution has which tiles."""
    found = api.compile(model, database=str(model.with_suffix(".db")), threads=1, dry_run=True, sizes=sizes)
    convolutions = [group for group in found.groups if group.group.startswith("Conv")]
    return [(group.source.split()[2], algorithm(json.loads(group.schedule))) for group in convolutions]


@pytest.mark.parametrize(("images", "threads"), [("1", 1), ("1", 2), pytest.param("2", 1, marks=pytest.mark.long)])
def test_images_of_any_size_are_right(tmp_path: Path, images: str, threads: int) -> None:
    """One tile and its parts, few tiles, rests of every length, and enough tiles for each thread to have chunks."""
    model = write(tmp_path / "block.onnx", BLOCK.replace("N", images), WEIGHTS)
    sizes = {"height": (1, 90), "width": (1, 120)}
    library = built_images(model, sizes, threads=threads)
    shapes = [(1, 1), (4, 4), (8, 8), (3, 9), (9, 8), (1, 120), (90, 1), (17, 23), (30, 30), (37, 64), (90, 120)]
    check_images(model, library, [{"height": high, "width": wide} for high, wide in shapes])
    assert {places for places, m in algorithms(model, sizes) if m} == {"64x112", "8x8"}


@pytest.mark.long
def test_borders_of_every_kind_are_right(tmp_path: Path) -> None:
    model = write(tmp_path / "borders.onnx", BORDERS, {"w1": WEIGHTS["w1"]})
    library = built_images(model, {"height": (3, 50), "width": (3, 50)}, threads=1)
    check_images(model, library, [{"height": high, "width": wide} for high, wide in ((3, 3), (6, 50), (21, 18))])


@pytest.mark.long
def test_a_batch_of_images_is_right(tmp_path: Path) -> None:
    model = write(tmp_path / "batch.onnx", BLOCK.replace("N", "batch"), WEIGHTS)
    library = built_images(model, {"batch": (1, 4), "height": (4, 64, 4), "width": (4, 64, 4)}, threads=2)
    points = [(1, 4, 4), (3, 8, 8), (4, 64, 64), (2, 20, 36)]
    check_images(model, library, [{"batch": n, "height": high, "width": wide} for n, high, wide in points])


def test_samples_are_within_the_range_and_small_ones_stand_for_small_images() -> None:
    high, wide = winograd_samples([Range(1, 500), Range(16, 40)])
    assert (high.lengths, wide.lengths) == ((64, 8), (40, 8))
    assert [one.lengths for one in winograd_samples([Range(16, 500), Range(16, 500)])] == [(64,), (112,)]
    assert [one.lengths for one in winograd_samples([Range(1, 6), Range(1, 7)])] == [(8,), (8,)]
    both, form = [(1, 64, 40), (1, 8, 8)], SimpleNamespace(fixed=())
    assert [sample_for(form, both, (1, *extents)) for extents in ((8, 8), (2, 20), (4, 40), (40, 40))] == [
        both[1], both[1], both[0], both[0],
    ]  # fmt: skip


def test_maps_of_few_places_are_computed_by_what_reads_least() -> None:
    """Rows of one map are computed directly, which reads each weight once; tiles of 2x2 and of 4x4 pay later."""

    def cheapest_way(high: int, wide: int) -> int:
        costs = Costs(high, wide)
        return min((0, 2, 4), key=lambda side: costs.winograd(side) if side else costs.direct)

    ways = {(1, 1): 0, (1, 10): 0, (2, 2): 0, (3, 3): 2, (8, 8): 2, (2, 20): 2, (4, 40): 4, (32, 32): 4}
    assert {at: cheapest_way(*at) for at in ways} == ways


def test_convolutions_side_by_side_have_kernels_of_their_own(tmp_path: Path) -> None:
    """Joined, they would be cut into tiles, of which each reads the weights of all."""
    model = write(
        tmp_path / "joined.onnx", JOINED, {"w1": WEIGHTS["w1"], "w2": weight(16, 16, 1, 1), "w3": -weight(16, 16, 1, 1)}
    )
    sizes = {"height": (8, 40), "width": (8, 40)}
    found = api.compile(model, database=str(tmp_path / "no.db"), threads=1, dry_run=True, sizes=sizes)
    convolutions = {group.group.split()[0] for group in found.groups if "Conv" in group.group}
    assert convolutions and all(one.count("Conv") == 1 for one in convolutions)
    library = built_images(model, sizes, threads=1)
    check_images(model, library, [{"height": high, "width": wide} for high, wide in ((8, 8), (17, 9), (40, 40))])


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.long)])
def test_maps_of_few_rows_or_columns_are_right(tmp_path: Path, threads: int) -> None:
    """Rows so short that a window looks beyond both borders among them."""
    model = write(tmp_path / "one.onnx", ONE, {"w1": WEIGHTS["w1"]})
    library = built_images(model, {"height": (1, 40), "width": (1, 40)}, threads=threads)
    shapes = [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (5, 1), (1, 9), (1, 40), (40, 1), (2, 20), (3, 5), (8, 12)]
    check_images(model, library, [{"height": high, "width": wide} for high, wide in shapes])


@pytest.mark.parametrize("pixels", [1, 2, 6, 14])
def test_widths_of_sums_waste_little(pixels: int) -> None:
    """What is left of a chunk has at most as many sums in vain as half of the widest."""
    found = widths(pixels, 56)
    for tiles in range(1, 57):
        taken = cheapest(tiles, {one: one + 0.5 for one in found})
        assert tiles <= sum(taken) <= tiles + max(found[-1] - 1, 0)
    assert np.all(np.diff(found) < 0)


def measured(base: str, samples: Sequence[Workload], algorithm: str, us: float) -> None:
    """The same time of every sample, by such an algorithm."""
    times = {"median_us": us, "ci_lo_us": us, "ci_hi_us": us}
    with open_database(base) as database:
        environment = environment_of(database, "local", 1, measuring=False)
        for one in samples:
            schedule = {CONTRACTION.full("algorithm"): algorithm}
            code = environment.codes.now(one, schedule)
            candidate = Candidate(one.key, one.text, one.label, json.dumps(schedule), code)
            outcome = CandidateOutcome(state="ok", trusted=True, candidate=candidate, **times)
            database.record_candidate(environment.setting, outcome)


def test_a_strict_compile_refuses_a_measured_schedule_that_no_kernel_of_whole_images_has(tmp_path: Path) -> None:
    """The rules' guess stands in its place, which was not measured."""
    model = write(tmp_path / "one.onnx", ONE, {"w1": WEIGHTS["w1"]})
    database, ranges = str(tmp_path / "known.db"), {"height": (16, 48), "width": (16, 48)}
    strict = {"plan": "none", "strict": True, "dry_run": True}
    compiled = partial(api.compile, model, database=database, threads=1, sizes=ranges, **strict)
    with Context(database=database, threads=1) as context:
        read = read_images(model, {}, [OpenSize(name, *ends) for name, ends in ranges.items()])
        (ranged,) = find_open_plans(context, form_of_images(context, read), "none")
        (group,) = grid_plan(context, read, ranged.found).groups
        assert group.form is not None and group.form.winograd
        samples = [tile.bound.workload for tile in group.tiles.values()]
    measured(database, samples, "winograd2", 20.0)
    assert {one.tier for one in compiled().groups} == {"hit (tile)"}
    measured(database, samples, "direct", 10.0)
    with pytest.raises(StrictMissError, match="no measured schedule"):
        compiled()
