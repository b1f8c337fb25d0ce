"""Libraries with a plan for each part of a range: right on both sides of each end, equal kernels and weights once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from typer.testing import CliRunner

from autofuse import api
from autofuse.api import Session
from autofuse.backend.container.metadata import Metadata
from autofuse.backend.container.open_spec import part_text
from autofuse.backend.library.compiled import Library
from autofuse.cli.main import app
from autofuse.compiler.open_sizes.plans import RangedPlan, within
from autofuse.compiler.plan_ladder import FoundPlan
from autofuse.environment.named_plans import plans_of_ranges
from autofuse.errors import InputError
from autofuse.fusion.plan import FusionPlan
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.values.names import numpy_dtype
from tests.backend.forging import forged
from tests.compiler.open_sizes import images
from tests.compiler.open_sizes.decoders import Decoder, step_inputs
from tests.compiler.open_sizes.decoders import written as decoder
from tests.compiler.open_sizes.models import (
    PERCEPTRON,
    PERCEPTRON_WEIGHTS,
    TOLERANCE,
    built,
    built_over,
    check,
    check_over,
    inputs_at,
    write,
)
from tests.compiler.open_sizes.sequences import MERGED, MERGED_WEIGHTS
from tests.compiler.open_sizes.tokens import Form
from tests.compiler.open_sizes.tokens import written as tokens

THREE = "none@5,always@20,default"
"""Three plans whose kernels are others."""
AROUND = (1, 4, 5, 6, 7, 19, 20, 21, 22, 40)
"""Sizes on both sides of each end, and the ends themselves."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("ranges") / "rows.onnx", PERCEPTRON, PERCEPTRON_WEIGHTS)


@pytest.fixture(scope="module")
def library(model: Path) -> Library:
    return built(model, "batch", 1, 40, plan=THREE)


def test_each_size_is_right_on_both_sides_of_each_end(model: Path, library: Library) -> None:
    check(model, library, "batch", AROUND)
    check(model, library, "batch", reversed(AROUND))


def test_each_part_of_the_range_runs_the_kernels_of_its_plan(model: Path, library: Library) -> None:
    programs = library.metadata.programs
    assert [one.most for one in programs] == [5, 20, None]
    counts = [len(one.kernel_rows) for one in programs]
    assert counts[1] < counts[0]
    wanted = [counts[0] if size <= 5 else counts[1] if size <= 20 else counts[2] for size in AROUND]
    assert [library.count_kernels(inputs_at(model, "batch", size)) for size in AROUND] == wanted


def weight_bytes(metadata: Metadata) -> int:
    return sum(prod(one.shape) * numpy_dtype(one.dtype).itemsize for one in metadata.weights)


@pytest.mark.long
def test_plans_share_their_weights_and_equal_kernels(model: Path, tmp_path: Path) -> None:
    alone = {}
    for plan in ("none", "default"):
        path = tmp_path / f"{plan}.so"
        api.compile(model, path, database=str(tmp_path / "a.db"), threads=1, sizes={"batch": (1, 40)}, plan=plan)
        alone[plan] = api.load(path).metadata
    path = tmp_path / "both.so"
    api.compile(
        model, path, database=str(tmp_path / "a.db"), threads=1, sizes={"batch": (1, 40)}, plan="none@9,default"
    )
    both = api.load(path).metadata
    most = max(map(weight_bytes, alone.values()))
    assert weight_bytes(both) <= 1.05 * most
    rows = [{row.symbol for row in one.kernel_rows} for one in both.programs]
    keys = [{row.workload_key for row in one.kernel_rows} for one in both.programs]
    assert len(rows[0] & rows[1]) == len(keys[0] & keys[1]) > 0


def test_callers_in_different_parts_run_side_by_side(model: Path, library: Library) -> None:
    def call(size: int) -> list[Any]:
        return library(inputs_at(model, "batch", size))

    sizes = [1, 40, 5, 6, 20, 21, 2, 33] * 4
    alone = {size: call(size) for size in set(sizes)}
    with ThreadPoolExecutor(3) as threads:
        for size, found in zip(sizes, threads.map(call, sizes), strict=True):
            for array, expected in zip(found, alone[size], strict=True):
                np.testing.assert_array_equal(array, expected)


def test_a_session_sees_one_model(model: Path, library: Library) -> None:
    assert library.metadata.programs
    session = Session(model.with_suffix(".so"))
    assert [one.shape for one in session.get_inputs()] == [("batch", 24)]
    assert [one.shape for one in session.get_outputs()] == [("batch", 40), ("batch", 1)]
    assert session.run(None, {"x": np.zeros((40, 24), np.float32)})[0].shape == (40, 40)
    with pytest.raises(InputError, match="batch is 41, the library takes 1 to 40"):
        session.run(None, {"x": np.zeros((41, 24), np.float32)})


@pytest.mark.long
def test_the_largest_size_may_belong_to_an_early_plan(model: Path, tmp_path: Path) -> None:
    """An end that no size is beyond leaves one plan."""
    path = tmp_path / "one.so"
    base = str(tmp_path / "a.db")
    report = api.compile(model, path, database=base, threads=1, sizes={"batch": (1, 9)}, plan="none@9,default")
    assert [one.plan for one in report.plans] == ["none"]
    assert len(api.load(path).metadata.programs) == 1


@pytest.mark.long
def test_two_sizes_part_by_the_rows_of_all_sequences(tmp_path: Path) -> None:
    model = write(tmp_path / "merged.onnx", MERGED, MERGED_WEIGHTS)
    merged = built_over(model, {"batch": (1, 5), "tokens": (1, 40)}, plan="none@30,default")
    points = [(1, 1), (1, 30), (2, 15), (5, 6), (1, 31), (3, 11), (5, 40), (5, 1), (1, 40)]
    check_over(model, merged, [{"batch": batch, "tokens": length} for batch, length in points])
    first, second = (len(one.kernel_rows) for one in merged.metadata.programs)
    assert first != second


@pytest.mark.long
def test_tokens_with_attention_part_their_range(tmp_path: Path) -> None:
    model = write(tmp_path / "tokens.onnx", *tokens(Form(masks=("padding", "causal"), layers=1)))
    check(model, built(model, "tokens", 1, 37, plan="none@8,default"), "tokens", (1, 7, 8, 9, 20, 37))


@pytest.mark.long
def test_images_part_by_their_pixels(tmp_path: Path) -> None:
    model = write(tmp_path / "small.onnx", images.SMALL, images.SMALL_WEIGHTS)
    library = built_over(model, images.FEW_RANGES, plan="none@256,default")  # type: ignore[arg-type]
    check_over(model, library, [*images.FEW_POINTS, {"height": 8, "width": 34}])
    assert [one.most for one in library.metadata.programs] == [256, None]


def test_caches_that_a_library_keeps_go_on_from_plan_to_plan(tmp_path: Path) -> None:
    model = decoder(tmp_path / "decoder.onnx", Decoder(layers=1))
    built(model, "past", 0, 12, caches={"present*": "past*"}, plan="none@4,default")
    session, theirs = Session(model.with_suffix(".so")), onnxruntime.InferenceSession(str(model))
    assert session.caches is not None and len(session.metadata.programs) == 2
    own = [one.name for one in session.get_inputs()]
    feeds = step_inputs(model, 0)
    for step in range(13):
        feeds |= {given: step_inputs(model, step)[given] for given in own}
        wanted = dict(zip([one.name for one in theirs.get_outputs()], theirs.run(None, feeds), strict=True))
        (found,) = session.run(None, {given: feeds[given] for given in own})
        np.testing.assert_allclose(found, wanted["logits"], rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"step {step}")
        feeds |= {given: wanted[given.replace("past", "present")] for given in session.caches.names}


def test_a_dry_run_says_which_part_has_which_plan(model: Path) -> None:
    base = str(model.with_suffix(".db"))
    report = api.compile(model, database=base, threads=1, dry_run=True, sizes={"batch": (1, 40)}, plan=THREE)
    assert [one.part for one in report.plans] == ["batch up to 5", "batch 6 to 20", "batch above 20"]
    assert [one.plan for one in report.plans] == ["none", "always", "default"]
    assert {one.program for one in report.groups} == {0, 1, 2}
    words = ["compile", model, "--sizes", "batch=1:40", "--plan", THREE, "-n", 1, "--db", base, "--dry-run"]
    shown = CliRunner().invoke(app, [str(word) for word in words])
    assert shown.exit_code == 0, shown.stderr
    assert "batch 6 to 20" in shown.output and "calls" in shown.output


def test_a_library_that_is_checked_shows_its_plans(model: Path, library: Library) -> None:
    path = str(model.with_suffix(".so"))
    counts = [len(one.kernel_rows) for one in library.metadata.programs]
    parts = ("batch up to 5", "batch 6 to 20", "batch above 20")
    assert api.library_check(path).plans == dict(zip(parts, counts, strict=True))
    shown = CliRunner().invoke(app, ["library", "check", path])
    assert f"batch up to 5: {counts[0]} kernels" in " ".join(shown.output.split())


@pytest.mark.parametrize("asked", ["none@5,default@9", "none@9,always@5,default", "none,always@5,default", "none@5,"])
def test_parts_that_are_not_one_behind_the_other_are_refused(model: Path, asked: str) -> None:
    with pytest.raises(InputError, match="--plan"):
        api.compile(model, database=str(model.with_suffix(".db")), dry_run=True, sizes={"batch": (1, 40)}, plan=asked)


def test_more_plans_than_three_are_refused(model: Path) -> None:
    with pytest.raises(InputError, match="got 4 plans, allowed: up to 3"):
        api.compile(model, dry_run=True, sizes={"batch": (1, 40)}, plan="none@1,none@2,none@3,default")


def test_a_text_asks_for_plans_with_ends() -> None:
    assert plans_of_ranges("none@64,a b.json@512,default") == [("none", 64), ("a b.json", 512), ("default", None)]
    assert plans_of_ranges("default") == [("default", None)]
    assert plans_of_ranges("one,two.json") == [("one,two.json", None)]


def test_only_plans_of_a_range_are_taken() -> None:
    found = FoundPlan(FusionPlan(()), "hit", "")
    plans = (RangedPlan(found, 4), RangedPlan(found, 64), RangedPlan(found))
    ends = {
        (1, 100): [4, 64, None], (5, 100): [64, None], (1, 4): [None], (1, 64): [4, None], (65, 100): [None],
    }  # fmt: skip
    for (low, high), wanted in ends.items():
        assert [one.most for one in within(plans, (OpenSize("n", low, high),))] == wanted


def test_parts_are_said_by_their_ends() -> None:
    names = ("batch", "tokens")
    said = [part_text(names, *ends) for ends in ((None, None), (None, 4), (4, 64), (64, None))]
    assert said == ["", "batch x tokens up to 4", "batch x tokens 5 to 64", "batch x tokens above 64"]


def ends(body: dict[str, Any], values: list[int | None]) -> None:
    for program, value in zip(body["programs"], values, strict=True):
        program.pop("most", None)
        program |= {} if value is None else {"most": value}


@pytest.mark.parametrize("values", [[20, 5, None], [5, 5, None], [5, 20, 60], [None, 20, None]])
def test_a_description_whose_parts_do_not_follow_is_refused(
    model: Path, library: Library, tmp_path: Path, values: list[int | None]
) -> None:
    assert library.metadata.programs
    wrong = forged(model.with_suffix(".so"), tmp_path / "wrong.so", body=lambda body: ends(body, values))
    with pytest.raises(InputError, match="the parts of the range are not one behind the other"):
        api.load(wrong)
