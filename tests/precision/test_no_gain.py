"""Where nothing is faster in int8, the reason says so: neither noise nor the data are blamed; nothing is written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import autofuse
from autofuse.cli.main import app
from autofuse.database.database import open_database
from autofuse.database.records import Candidate, CandidateOutcome
from autofuse.environment.environment import environment_of
from autofuse.errors import InputError
from autofuse.fusion.planner.baselines import default_plan
from autofuse.graph.loading.load import load
from autofuse.kernels.emission import Emission
from autofuse.kernels.lowering.lower import lower
from tests.compiler.known import GOOD
from tests.conftest import OnnxBuilder
from tests.precision.trained import images, save, trained

DEVICE = "icelake"
"""One with instructions for bytes, whatever this machine has: nothing is run."""
DATA = "neither more data nor a larger --max-drop changes that, but "


def record(model: Path, path: Path, us: float, trusted: bool = True) -> None:
    """Every kernel of the model's default plan takes `us` on the device."""
    base = open_database(path)
    environment = environment_of(base, DEVICE, 1, measuring=False)
    graph = load(model)
    plan = default_plan(graph)
    for bound in lower(graph, plan, environment.target, [group.operators for group in plan.groups]).kernels:
        workload = bound.workload
        code = Emission(environment.target).code(workload, GOOD)
        candidate = Candidate(workload.key, workload.text, workload.label, json.dumps(GOOD), code)
        outcome = CandidateOutcome(
            state="ok", median_us=us, ci_lo_us=us * 0.9, ci_hi_us=us * 1.1, trusted=trusted, candidate=candidate
        )
        base.record_candidate(environment.setting, outcome)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A float model, one of it in int8, and data."""
    made = tmp_path_factory.mktemp("no_gain")
    save(trained(), made / "plain.onnx")
    (made / "data").mkdir()
    np.save(made / "data" / "images.npy", images(40, 5)[0][:, None])
    found = autofuse.quantize(
        made / "plain.onnx", made / "int8.onnx", calibration=made / "data", database=str(made / "none.db"),
        device=DEVICE, threads=1,
    )  # fmt: skip
    assert found.int8 == 3 and {one.times for one in found.contractions} == {"estimated"}
    return made


def quantize(folder: Path, database: Path, output: Path, *more: str) -> Result:
    arguments = ["quantize", folder / "plain.onnx", "-o", output, "--calibration", folder / "data", "--db", database,
                 "--device", DEVICE, "--threads", 1, *more]  # fmt: skip
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("int8_us", "trusted", "reason", "what_helps"),
    [
        (12.0, True, "no contraction is faster in int8: ", "tuning both models for longer may"),
        (12.0, False, "in float32 (measured, not trusted)", "times that are trusted may: measure on a machine that"),
        (9.9999, True, "does not pay for making bytes of what is read: 0.0003 µs at 3 of its", "tuning both models"),
    ],
)
def test_what_is_no_faster_is_not_called_noisy(
    int8_us: float, trusted: bool, reason: str, what_helps: str, folder: Path, tmp_path: Path
) -> None:
    record(folder / "plain.onnx", tmp_path / "p.db", 10.0)
    record(folder / "int8.onnx", tmp_path / "p.db", int8_us, trusted)
    done = quantize(folder, tmp_path / "p.db", tmp_path / "q.onnx")
    said = " ".join(done.stderr.split())
    assert done.exit_code == 2 and reason in said and DATA + what_helps in said, done.stderr
    assert "cosine" not in said and "give more data" not in said and said.endswith("nothing was written")
    assert not (tmp_path / "q.onnx").exists()


def test_what_is_faster_is_chosen_by_measured_times_and_doubt_of_them_is_said(folder: Path, tmp_path: Path) -> None:
    record(folder / "plain.onnx", tmp_path / "p.db", 10.0)
    record(folder / "int8.onnx", tmp_path / "p.db", 5.0, trusted=False)
    done = quantize(folder, tmp_path / "p.db", tmp_path / "q.onnx", "--format", "json")
    rows = json.loads(done.stdout)["contractions"]
    assert {row["precision"] for row in rows} == {"int8"}
    assert {row["times"] for row in rows} == {"measured, not trusted"}
    done = quantize(folder, tmp_path / "p.db", tmp_path / "q.onnx")
    assert "Some times are not trusted" in done.stdout and "Some times are estimates" not in done.stdout


def test_estimates_that_promise_nothing_are_called_estimates(tmp_path: Path) -> None:
    """A core without any instruction for bytes multiplies them one by one."""
    builder = OnnxBuilder()
    builder.save(tmp_path / "m.onnx", {"x": (1, 16, 16, 16)}, [builder.conv_bn("conv", "x", (16, 16))])
    data = [{"x": np.ones((1, 16, 16, 16), "f") * number} for number in range(16)]
    with pytest.raises(InputError) as refused:
        autofuse.quantize(
            tmp_path / "m.onnx", tmp_path / "q.onnx", calibration=data, database=str(tmp_path / "p.db"),
            device="raspberry-pi-3",
        )  # fmt: skip
    assert "conv comes nearest" in str(refused.value) and "in float32 (estimated)" in str(refused.value)
    assert DATA + "a device that multiplies bytes faster may (--device)" in str(refused.value)


def test_a_drop_that_no_set_keeps_is_still_told_as_a_drop(folder: Path, tmp_path: Path) -> None:
    done = quantize(folder, tmp_path / "p.db", tmp_path / "q.onnx", "--max-drop", "0.0000001")
    said = " ".join(done.stderr.split())
    assert done.exit_code == 2 and "with a drop of cosine of at most 0.000% (the calibration data lose" in said
    assert said.endswith("with the fewest); allow a larger --max-drop; nothing was written")
