"""Groups that cannot be built, crash the builder or are wrong, with real worker processes."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from typer.testing import CliRunner

import autofuse
from autofuse.cli.main import app
from autofuse.measure.local_runner import LocalRunner
from autofuse.measure.timing.race import InterleavingPolicy
from autofuse.measure.timing.sampling import SamplingPolicy

pytestmark = pytest.mark.slow


@pytest.fixture
def build_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """`build_with(name)`: worker processes build with that function of `sabotaged_builder`."""

    def choose(name: str) -> None:
        def runner(device: Any, threads: int, _options: Any) -> LocalRunner:
            builder, here = f"sabotaged_builder:{name}", [Path(__file__).parent]
            policy = SamplingPolicy(cap_s=0.05, settle_probes=2)
            rounds, target = InterleavingPolicy(max_rounds=5, settle_probes=2), device.profile.target()
            return LocalRunner(target, threads, policy=policy, rounds=rounds, builder=builder, import_paths=here)

        monkeypatch.setattr("autofuse.search.tune.open_runner", runner)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    return choose


@pytest.mark.long
def test_they_become_recorded_failures_and_the_job_goes_on_without_them(
    build_with: Callable[[str], None], one_layer: Path, space: Path, tmp_path: Path
) -> None:
    build_with("some")
    database = str(tmp_path / "profile.db")
    result = autofuse.tune(one_layer, database=database, trials=160, threads=1, space=str(space))
    assert result.state == "finished"
    with autofuse.open(database) as opened:
        failures, measured = opened.failures, opened.candidates
    assert Counter(failures["state"]).keys() == {"build_error", "wrong"}
    texts = " | ".join(failures["failure"])
    assert "no tile fits" in texts
    assert "SIGSEGV" in texts
    assert len(failures) == result.failed
    assert (measured["state"] == "ok").sum() == result.measured - result.failed >= 4

    report = autofuse.compile(one_layer, tmp_path / "model.so", database=database, threads=1, strict=True)
    assert max(len(group.operators) for group in report.groups) <= 2
    library = autofuse.load(tmp_path / "model.so")
    inputs = library.example_inputs()
    (expected,) = onnxruntime.InferenceSession(str(one_layer)).run(None, inputs)
    np.testing.assert_allclose(library(inputs)[0], expected, atol=1e-5)


def test_when_nothing_can_be_built_the_job_ends_with_code_six_and_one_message(
    build_with: Callable[[str], None], one_layer: Path, space: Path, tmp_path: Path
) -> None:
    build_with("none")
    database = tmp_path / "profile.db"
    arguments = ["tune", one_layer, "--db", database, "--threads", "1", "--space", space, "--trials", "50"]
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 6
    (message,) = [line for line in result.stderr.splitlines() if line.startswith("autofuse: ")]
    assert "no group of the model could be built and checked" in message
    assert "the code generator is broken" in message
    assert "Traceback" not in result.stderr
    with autofuse.open(str(database)) as opened:
        assert set(opened.candidates["state"]) == {"build_error"}
        assert list(opened.runs["state"]) == ["failed"]
