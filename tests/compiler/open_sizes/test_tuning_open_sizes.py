"""`tune --sizes`: the tiles of a model with an open size are measured, and `compile --sizes` hits them."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest
from typer.testing import CliRunner

from autofuse import api
from autofuse.cli.main import app
from autofuse.errors import StrictMissError
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.kernels.open_sizes.open_rows import TILES, tile_counts
from autofuse.search.progress import Forecast
from autofuse.values.arguments import micros
from autofuse.views.frames.standing import run_command
from autofuse.views.report.tables import open_tiles, ranges_text
from tests.compiler.open_sizes.models import PERCEPTRON, PERCEPTRON_WEIGHTS, write
from tests.compiler.open_sizes.sequences import MERGED, MERGED_WEIGHTS
from tests.compiler.open_sizes.tokens import Form, written

SIZES = {"batch": (1, 5)}
TRIALS_OF_ONE = 12
"""Measurements that the search at one size is given."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("tuned") / "rows.onnx", PERCEPTRON, PERCEPTRON_WEIGHTS)


@pytest.fixture(scope="module")
def tuned(model: Path) -> Any:
    told: list[str] = []
    result = api.tune(
        model, sizes=SIZES, trials=2 * TRIALS_OF_ONE, threads=1, database=str(model.with_suffix(".db")),
        progress=lambda one: told.append(one.phase),
    )  # fmt: skip
    assert told[0] == "opening"
    assert set(told[1:]) <= {"search", "confirming"}
    return result


def test_every_tile_is_measured(tuned: Any) -> None:
    assert {tile.rows for tile in tuned.tiles} == {4, 1}
    assert all(tile.tried for tile in tuned.tiles)
    assert any(tile.us is not None for tile in tuned.tiles)
    assert len(tuned.tiles) <= tuned.measured <= 2 * TRIALS_OF_ONE, "twice what one size is given reaches every tile"


def test_what_was_tuned_is_a_hit(model: Path, tuned: Any) -> None:
    """For a longer range, too: noise may have given a part of this one a plan of its own."""
    report = api.compile(
        model, database=str(model.with_suffix(".db")), threads=1, dry_run=True, sizes={"batch": (1, 30)}
    )
    found = {(group.group, group.tier) for group in report.groups}
    assert {(tile.label, "hit (tile)") for tile in tuned.tiles if tile.us is not None} <= found
    assert len(report.groups) > len(tuned.tiles)  # tiles of 16 rows are new


def test_a_strict_compile_takes_what_was_tuned_and_refuses_what_was_not(
    model: Path, tuned: Any, tmp_path: Path
) -> None:
    """What must be measured are the tiles, and a search over these sizes must have chosen the plan."""
    base = str(model.with_suffix(".db"))
    assert all(tile.us is not None for tile in tuned.tiles)
    for policy in ({"strict": True}, {"require_complete": True}, {"on_miss": "fail"}):
        report = api.compile(model, database=base, threads=1, dry_run=True, sizes=SIZES, **policy)
        assert {group.tier for group in report.groups} == {"hit (tile)"}
        assert report.plan_tier == "hit"
        other = "no search of plans over" if "require_complete" in policy else "tiles have no measured schedule"
        with pytest.raises(StrictMissError, match=f"{other}.*`autofuse tune` with the same"):
            api.compile(model, database=base, threads=1, dry_run=True, sizes={"batch": (2, 30)}, **policy)
    with pytest.raises(StrictMissError, match="without --strict"):
        api.compile(model, database=str(tmp_path / "a.db"), threads=1, dry_run=True, sizes=SIZES, strict=True)


@pytest.mark.long
def test_a_fixed_size_and_an_open_one_know_each_others_times(model: Path, tuned: Any, tmp_path: Path) -> None:
    report = api.compile(
        model, database=str(model.with_suffix(".db")), threads=1, dry_run=True, shapes={"x": (4, 24)}, plan="none"
    )
    alone = {group.group for group in report.groups if group.tier == "hit"}
    assert {tile.label for tile in tuned.tiles if tile.rows == 4 and "+" not in tile.label} <= alone
    near = api.compile(model, database=str(model.with_suffix(".db")), threads=1, dry_run=True, shapes={"x": (6, 24)})
    assert any(group.tier == "nearest shape" for group in near.groups)
    base = str(tmp_path / "fixed.db")
    api.tune(model, shapes={"x": (4, 24)}, trials=TRIALS_OF_ONE, threads=1, database=base)
    opened = api.compile(model, database=base, threads=1, dry_run=True, sizes=SIZES)
    tiers = {(group.tier, group.source.split(";")[0]) for group in opened.groups}
    assert ("hit (tile)", "tile of 4 rows") in tiers
    assert ("nearest shape", "tile of 1 row") in tiers


@pytest.mark.long
def test_a_second_search_knows_what_the_first_measured(model: Path, tuned: Any) -> None:
    again = api.tune(model, sizes=SIZES, trials=1, threads=1, database=str(model.with_suffix(".db")))
    assert 0 < again.hits <= tuned.measured
    assert again.measured <= 1
    assert all(tile.us is not None for tile in again.tiles)


@pytest.mark.long
def test_the_screen_lists_tiles(model: Path, tuned: Any) -> None:
    words = ["tune", model, "--sizes", "batch=1:5", "--trials", 1, "-n", 1, "--db", model.with_suffix(".db")]
    shown = CliRunner().invoke(app, [str(word) for word in words])
    assert shown.exit_code == 0
    assert re.search(r"\b\d+ tiles of", shown.output)
    assert "--sizes batch=1:5" in shown.output.split("next", 1)[1]


@pytest.mark.long
def test_rows_of_all_sequences_weigh_together(tmp_path: Path) -> None:
    """3 sequences of 7 tokens are 21 rows: a tile of 16, one of 4 and a single one; a classifier runs for each."""
    model, base = write(tmp_path / "merged.onnx", MERGED, MERGED_WEIGHTS), str(tmp_path / "a.db")
    trace = tmp_path / "sizes.csv"
    trace.write_text("batch,tokens,calls\n3,7,1\n")
    sizes = {"batch": (1, 5), "tokens": (1, 40)}
    tuned: Any = api.tune(model, sizes=sizes, trials=3, threads=1, database=base, trace=trace)
    products = {tile.rows: tile.runs for tile in tuned.tiles if tile.label.startswith("Gemm")}
    assert products == {16: 1.0, 4: 1.0, 1: 1.0}
    assert {tile.runs for tile in tuned.tiles if not tile.rows} == {3.0}
    report = api.compile(model, dry_run=True, sizes=sizes, threads=1, database=base)
    assert any(group.tier == "hit (tile)" for group in report.groups)


@pytest.mark.long
def test_attention_is_left_alone(tmp_path: Path) -> None:
    model = write(tmp_path / "tokens.onnx", *written(Form(masks=("causal",))))
    result = api.tune(model, sizes={"tokens": (1, 3)}, trials=1, threads=1, database=str(tmp_path / "a.db"))
    assert not any("Softmax" in tile.label for tile in result.tiles)
    assert result.warning.endswith("the budget ended before, or every schedule failed")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"pareto": True}, "--sizes: --pareto is for searches at fixed sizes"),
        ({"trained": "default"}, "--sizes: --model is for searches at fixed sizes"),
        ({"sizes": {"length": (1, 4)}}, "has no open size 'length'"),
    ],
)
def test_what_only_fixed_sizes_have_is_refused(model: Path, tmp_path: Path, more: dict[str, Any], reason: str) -> None:
    with pytest.raises(Exception, match=reason):
        api.tune(model, **{"sizes": SIZES, "trials": 1, "threads": 1, "database": str(tmp_path / "a.db"), **more})


def test_a_dry_run_says_how_many_tiles_are_known_and_what_the_budget_reaches(model: Path, tmp_path: Path) -> None:
    database = tmp_path / "absent.db"
    given: dict[str, Any] = {"sizes": SIZES, "threads": 1, "database": str(database), "dry_run": True}
    short, long = (api.tune(model, budget=budget, **given).forecast for budget in ("60s", "30m"))
    assert isinstance(short, Forecast) and isinstance(long, Forecast)
    assert (long.sizes, long.known) == (("batch=1:5",), 0)
    assert long.kernels < long.workloads, "a kernel has several tiles"
    assert long.first_s == pytest.approx(long.workloads / long.candidates_per_s)
    assert long.opening_s + long.first_s + long.search_s + long.finals_s == pytest.approx(1800.0, abs=1.0)
    assert short.finals_s <= 30.0 and short.candidates < long.candidates
    assert long.changes.count == long.changes.reached > 0
    words = ["tune", str(model), "--sizes", "batch=1:5", "--dry-run", "--db", str(database), "-n", "1"]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.stderr
    text = " ".join(shown.stdout.split())
    assert f"batch=1:5 open: {long.workloads} tiles of {long.kernels} kernels, 0 of them known already" in text
    assert "--sizes batch=1:5" in text.partition("next")[2]
    assert not database.exists()


@pytest.mark.long
def test_a_dry_run_knows_what_was_tuned(model: Path, tuned: Any) -> None:
    found = api.tune(model, sizes=SIZES, threads=1, database=str(model.with_suffix(".db")), dry_run=True).forecast
    assert isinstance(found, Forecast) and found.known == found.workloads >= found.kernels
    assert found.first_s == 0.0


@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        (1, [0, 0, 1]),
        (3, [0, 0, 3]),
        (7, [0, 2, 0]),
        (15, [0, 4, 0]),
        (16, [1, 0, 0]),
        (21, [1, 1, 1]),
        (24, [2, 0, 0]),
    ],
)
def test_tiles_are_counted_as_kernels_run_them(rows: int, counts: list[int]) -> None:
    assert tile_counts(TILES, rows) == counts


def test_sizes_are_drawn_from_the_smallest_to_the_largest() -> None:
    assert OpenSize("n", 1, 256).drawn(9) == (1, 2, 4, 8, 16, 32, 64, 128, 256)
    assert OpenSize("n", 3, 5).drawn(9) == (3, 4, 5)


def test_the_report_of_a_search_lists_its_sizes_and_tiles(model: Path, tuned: Any, tmp_path: Path) -> None:
    """As the screen of `tune` does: as often as a call runs them, with the same times."""
    database, page = str(model.with_suffix(".db")), tmp_path / "page.html"
    run = ["report", "--run", tuned.run, "--db", database]
    text = CliRunner().invoke(app, run).output
    assert f"tuned for batch 1 to 5, {len(tuned.tiles)} tiles" in text
    timed = sum(tile.us is not None for tile in tuned.tiles)
    assert f"{timed} of {len(tuned.tiles)} tiles of kernels over open sizes have a time" in text
    assert "No choice was recorded" not in text
    table = text.partition("## Groups")[2].partition("##")[0]
    for tile in tuned.tiles:
        assert f"| {tile.label} | {tile.rows or ''} | {tile.runs:.1f} |" in table
        assert tile.us is None or f"| {micros(tile.us)} |" in table
    assert CliRunner().invoke(app, [*run, "--html", str(page)]).exit_code == 0
    assert '"sizes": "batch 1 to 5"' in page.read_text(encoding="utf-8")


def test_tiles_of_a_foreign_database_are_shown_as_far_as_they_are_tiles() -> None:
    good = {"label": "Gemm", "rows": 4, "places": "", "runs": 1.5, "us": 2.0, "rule_us": None, "tried": 3}
    stored = [good, {**good, "us": "fast"}, {"label": "Gemm"}, 7]
    choices = pd.DataFrame({"details": [{"tiles": stored, "sizes": {"n": [1, 8, 1], "m": "all"}}]})
    assert open_tiles(choices) == [{**good, "share": 1.0}]
    assert ranges_text(choices) == "n 1 to 8"
    assert open_tiles(pd.DataFrame({"details": [{"tiles": "many"}]})) == []


def test_an_interrupted_search_goes_on_with_its_sizes() -> None:
    place = SimpleNamespace(location=SimpleNamespace(path=None, text="times.db"))
    told = {"model": "rows.onnx", "sizes": ["batch=1:5", "height=16:64:16"]}
    run: Any = SimpleNamespace(model_name="rows", arguments=told, budget={}, setting=SimpleNamespace(threads=1))
    command = "autofuse tune rows.onnx --threads 1 --sizes batch=1:5 --sizes height=16:64:16 --db times.db"
    assert run_command(run, cast(Any, place)) == command
