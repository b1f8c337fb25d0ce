"""`tune --sizes` of images: the tiles of a range are measured, and `compile --sizes` hits them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from autofuse import api
from autofuse.cli.main import app
from autofuse.errors import StrictMissError
from tests.compiler.open_sizes.models import weight, write

HALVED = """
halved (float[1, 4, height, width] x) => (float[1, 4, h, w] y, float[1, 4, 1, 1] z) {
  a = Conv <kernel_shape = [1, 1]> (x, w1)
  r = Relu (a)
  y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
  z = GlobalAveragePool (y)
}"""
pytestmark = pytest.mark.long

SIZES = {"height": (16, 48, 16), "width": (16, 48, 16)}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("tuned") / "halved.onnx", HALVED, {"w1": weight(4, 4, 1, 1)})


@pytest.fixture(scope="module")
def tuned(model: Path) -> Any:
    trace = model.with_name("sizes.csv")
    trace.write_text("height,width,calls\n32,48,1\n")
    return api.tune(model, sizes=SIZES, trials=8, threads=1, database=str(model.with_suffix(".db")), trace=trace)


def test_every_tile_is_measured_and_weighs_as_often_as_calls_run_it(tuned: Any) -> None:
    """Of 32x48 places: 4 tiles of 8 rows, and along 48 columns one of 32 and one of 16."""
    runs = {(tile.label.split()[0], tile.places): tile.runs for tile in tuned.tiles}
    convolutions = {places: count for (label, places), count in runs.items() if label.startswith("Conv")}
    assert sum(int(p.split("x")[0]) * int(p.split("x")[1]) * n for p, n in convolutions.items()) == 32 * 48
    pooled = {places: count for (label, places), count in runs.items() if label.startswith("MaxPool")}
    assert sum(int(p.split("x")[0]) * int(p.split("x")[1]) * n for p, n in pooled.items()) == 16 * 24
    assert all(tile.us is not None and tile.tried for tile in tuned.tiles)


def test_what_was_tuned_is_a_hit_for_another_range(model: Path, tuned: Any) -> None:
    base = str(model.with_suffix(".db"))
    for sizes in (SIZES, {"height": (16, 96, 16), "width": (16, 48, 16)}):
        report = api.compile(model, database=base, threads=1, dry_run=True, sizes=sizes)
        tiers = {group.group: group.tier for group in report.groups if "Global" not in group.group}
        assert {tile.label for tile in tuned.tiles} <= {label for label, tier in tiers.items() if tier == "hit (tile)"}


def test_a_strict_compile_takes_what_was_tuned(model: Path, tuned: Any) -> None:
    report = api.compile(
        model, database=str(model.with_suffix(".db")), threads=1, dry_run=True, sizes=SIZES, strict=True
    )
    assert {group.tier for group in report.groups if "Global" not in group.group} == {"hit (tile)"}


def test_a_second_search_knows_what_the_first_measured(model: Path, tuned: Any) -> None:
    again: Any = api.tune(model, sizes=SIZES, trials=1, threads=1, database=str(model.with_suffix(".db")))
    assert 0 < again.hits <= tuned.measured
    assert again.measured <= 1


def test_the_screen_says_which_places_a_tile_has(model: Path, tuned: Any) -> None:
    words = ["tune", model, "--sizes", "height=16:48:16,width=16:48:16", "--trials", 1, "-n", 1]
    shown = CliRunner().invoke(app, [str(word) for word in (*words, "--db", model.with_suffix(".db"))])
    assert shown.exit_code == 0
    assert all(tile.places in shown.output for tile in tuned.tiles)
    assert "--sizes height=16:48:16,width=16:48:16" in shown.output.split("next", 1)[1]


def test_without_measured_tiles_a_strict_compile_says_what_to_do(model: Path, tmp_path: Path) -> None:
    with pytest.raises(StrictMissError, match="tune` with the same --sizes"):
        api.compile(model, database=str(tmp_path / "a.db"), threads=1, dry_run=True, sizes=SIZES, strict=True)
