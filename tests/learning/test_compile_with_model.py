"""`compile --on-miss model`: a network that was never tuned gets the plan that a model expects to be fast."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import autofuse
from autofuse.backend.library.session import Session
from autofuse.compiler import Context, Policy
from autofuse.errors import InputError
from autofuse.learning.model import ProfitabilityModel
from autofuse.learning.stored import find_model, save


@pytest.fixture
def file(sure_model: ProfitabilityModel, tmp_path: Path) -> str:
    save(sure_model, tmp_path / "own.model")
    return str(tmp_path / "own.model")


def test_the_plan_of_an_unseen_network_comes_from_the_model(
    networks: Mapping[str, Path], file: str, tmp_path: Path
) -> None:
    database, library = str(tmp_path / "none.db"), tmp_path / "net.so"
    path = networks["dense64"]
    report = autofuse.compile(path, library, database=database, threads=1, on_miss="model", trained=file)
    assert report.plan_tier == "model" and "over the rule expected" in report.plan
    assert {group.tier for group in report.groups} == {"rule"}
    session = Session(library)
    assert session.metadata.programs[0].plan_tier == "model"
    x = np.random.default_rng(0).standard_normal((32, 64)).astype("float32")
    expected = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected[0], rtol=1e-4, atol=1e-5)


def test_what_was_measured_comes_before_the_model(networks: Mapping[str, Path], file: str, recorder: Any) -> None:
    recorder.record(networks["dense16"])
    options: Any = {"database": str(recorder.path), "threads": 1, "trained": file}
    report = autofuse.compile(networks["dense16"], dry_run=True, on_miss="model", **options)
    assert "stale code" in {group.tier for group in report.groups}  # nobody recorded what was built


def test_a_model_that_abstains_leaves_the_rule(networks: Mapping[str, Path], file: str, tmp_path: Path) -> None:
    policy = Policy(on_miss="model", model=file)
    with Context(database=str(tmp_path / "none.db"), device="raspberry-pi-4", threads=1, policy=policy) as context:
        report = autofuse.compile(networks["dense64"], dry_run=True, context=context)
    assert report.plan_tier == "rule" and "the model abstains, it was trained on" in report.plan


def test_without_any_model_the_message_says_what_to_do(networks: Mapping[str, Path], tmp_path: Path) -> None:
    for trained in ("none", str(tmp_path / "missing.model")):
        with pytest.raises(InputError, match="--model"):
            autofuse.compile(
                networks["dense64"], dry_run=True, database=str(tmp_path / "none.db"), threads=1,
                on_miss="model", trained=trained,
            )  # fmt: skip
    if find_model(None) is None:
        with pytest.raises(InputError, match="there is no model"):
            autofuse.compile(
                networks["dense64"], dry_run=True, database=str(tmp_path / "x.db"), threads=1, on_miss="model"
            )
