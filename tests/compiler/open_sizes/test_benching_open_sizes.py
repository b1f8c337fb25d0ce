"""`bench --sizes`: one library of an open size is checked and raced at sizes of the whole range."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from autofuse import api
from autofuse.api.results import SizesReport
from autofuse.cli.main import app
from autofuse.errors import InputError
from autofuse.values.names import NO_FUSION, ONNX_RUNTIME, TVM_UNTUNED
from tests.compiler.open_sizes.models import PERCEPTRON, PERCEPTRON_WEIGHTS, built, write

RANGE = {"batch": (1, 3)}
EACH = [1, 2, 3]
"""Nine sizes are drawn of a range; this one has three."""

pytestmark = pytest.mark.usefixtures("counted_rounds")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("benched") / "rows.onnx", PERCEPTRON, PERCEPTRON_WEIGHTS)


def benched(model: Path, **more: Any) -> SizesReport:
    named = {"sizes": RANGE, "threads": 1, "budget": "5s", "database": str(model.with_suffix(".none.db")), **more}
    report = api.bench(model, **named)
    assert isinstance(report, SizesReport)
    return report


@pytest.mark.slow
@pytest.mark.long
def test_every_size_is_checked_and_raced_against_every_rival(model: Path) -> None:
    report = benched(model)
    assert list(report.sizes) == EACH
    assert all(one.max_rel_error < 1e-5 and one.autofuse_us > 0 for one in report.sizes.values())
    assert all(set(one.rivals) == {ONNX_RUNTIME, NO_FUSION} for one in report.sizes.values())
    assert report.mix[TVM_UNTUNED].error == "it compiles one size at a time"
    for rival in (ONNX_RUNTIME, NO_FUSION):
        ratios = {size: one.rivals[rival].ratio for size, one in report.sizes.items()}
        known = {size: ratio for size, ratio in ratios.items() if ratio is not None}
        mix = report.mix[rival]
        if len(known) < len(ratios):  # too noisy a machine
            assert mix.ratio is None
            continue
        assert mix.ratio is not None and min(known.values()) <= mix.ratio <= max(known.values())
        assert mix.least_size is not None and known[mix.least_size] == mix.least == min(known.values())
        assert mix.p50_us is not None and mix.p90_us is not None and mix.p50_us <= mix.p90_us


@pytest.mark.slow
@pytest.mark.long
def test_the_screen_and_its_json_show_each_size_and_the_mix(model: Path) -> None:
    words = ["bench", model, "--sizes", "batch=1:2", "-n", 1, "--against", "onnxruntime", "--budget", "2s", "--db"]
    words.append(model.with_suffix(".none.db"))
    shown = CliRunner().invoke(app, [str(word) for word in words])
    assert shown.exit_code == 0, shown.output
    assert "one library for batch 1 to 2" in shown.output and "over all sizes" in shown.output
    body = json.loads(CliRunner().invoke(app, [str(word) for word in [*words, "--format", "json"]]).stdout)
    assert [one["size"] for one in body["sizes"]] == [1, 2]
    assert set(body["mix"]) == {ONNX_RUNTIME} == set(body["sizes"][0]["rivals"])
    assert (body["open_size"], body["low"], body["high"]) == ("batch", 1, 2)


def test_a_library_must_take_the_whole_range(model: Path, tmp_path: Path) -> None:
    built(model, "batch", 2, 4)
    with pytest.raises(InputError, match="takes batch 2 to 4, asked was batch 1 to 3"):
        benched(model, library=model.with_suffix(".so"))
    fixed = tmp_path / "fixed.so"
    api.compile(model, fixed, database=str(tmp_path / "a.db"), threads=1, shapes={"x": (3, 24)})
    with pytest.raises(InputError, match="has fixed sizes; leave --sizes out"):
        benched(model, library=fixed)


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [({"batch": 3}, "no size has a range"), ({"length": (1, 4)}, "has no open size 'length'")],
)
def test_what_is_no_range_of_the_model_is_refused(model: Path, sizes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        benched(model, sizes=sizes)
