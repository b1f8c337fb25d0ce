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
from autofuse.fusion.evidence import GroupTime
from autofuse.fusion.planner.baselines import default_plan
from autofuse.graph.loading.load import load
from autofuse.graph.transform.quantize.sites import find_sites, prepared
from autofuse.kernels.emission import Emission
from autofuse.kernels.lowering.lower import lower
from autofuse.precision.choices import Cast
from autofuse.precision.cost import MEASURED, ContractionTime
from autofuse.precision.gain import no_gain
from tests.compiler.known import GOOD
from tests.conftest import OnnxBuilder
from tests.precision.trained import images, save, trained

DEVICE = "icelake"
"""One with instructions for bytes, whatever this machine has: nothing is run."""
DATA = "neither more data nor a larger --max-drop changes that, but "


def record(model: Path, path: Path, us: float, trusted: bool = True, spread: float = 0.001) -> None:
    """Every kernel of the model's default plan takes `us` on the device, up to `spread` of it less or more."""
    base = open_database(path)
    environment = environment_of(base, DEVICE, 1, measuring=False)
    graph = load(model)
    plan = default_plan(graph)
    for bound in lower(graph, plan, environment.target, [group.operators for group in plan.groups]).kernels:
        workload = bound.workload
        code = Emission(environment.target).code(workload, GOOD)
        candidate = Candidate(workload.key, workload.text, workload.label, json.dumps(GOOD), code)
        ends = {"ci_lo_us": us * (1 - spread), "ci_hi_us": us * (1 + spread)}
        outcome = CandidateOutcome(state="ok", median_us=us, **ends, trusted=trusted, candidate=candidate)
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
        (9.99, True, "no contraction is faster in int8 beyond noise: ", "tuning both models"),
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


@pytest.mark.parametrize(("spread", "chosen"), [(0.01, "int8"), (0.1, "")])
def test_a_gain_within_the_noise_of_its_times_is_none(spread: float, chosen: str, folder: Path, tmp_path: Path) -> None:
    """Kernels of 10 and of 9.2 µs: known to 1 % they differ, known to 10 % they may be equal."""
    record(folder / "plain.onnx", tmp_path / "p.db", 10.0, spread=spread)
    record(folder / "int8.onnx", tmp_path / "p.db", 9.2, spread=spread)
    done = quantize(folder, tmp_path / "p.db", tmp_path / "q.onnx", "--format", "json")
    if chosen:
        assert {row["precision"] for row in json.loads(done.stdout)["contractions"]} == {chosen}
    else:
        assert done.exit_code == 2 and "no contraction is faster in int8 beyond noise" in done.stderr


def times_of(**spans: tuple[float, float]) -> ContractionTime:
    """Microseconds of each precision, each with its half interval."""
    found = {kind: GroupTime(us, us - half, us + half) for kind, (us, half) in spans.items()}
    return ContractionTime(found, dict.fromkeys(found, MEASURED))


def test_what_takes_less_than_the_least_gain_or_the_noise_off_counts_as_no_gain() -> None:
    clear = times_of(float32=(100.0, 3.0), int8=(90.0, 4.0), bf16=(98.5, 0.0))
    assert clear.is_faster("int8") and clear.counted_us("int8") == pytest.approx(10.0)
    assert not clear.is_faster("bf16") and clear.counted_us("bf16") == pytest.approx(1.5 - 3.0)
    assert clear.nearest == "int8"
    noisy = times_of(float32=(100.0, 6.0), int8=(90.0, 9.0), bf16=(92.0, 1.0))
    assert not noisy.is_faster("int8") and noisy.counted_us("int8") == pytest.approx(10 - np.hypot(6, 9))
    assert noisy.is_faster("bf16") and noisy.nearest == "bf16", "the slower one, which is known to be faster"
    exact = times_of(float32=(100.0, 0.0), int8=(98.1, 0.0), bf16=(97.9, 0.0))
    assert (exact.is_faster("int8"), exact.is_faster("bf16")) == (False, True), "less than 2 % is worth no loss"


def test_what_is_faster_but_does_not_pay_for_making_bytes_says_so(folder: Path) -> None:
    sites = find_sites(prepared(load(folder / "plain.onnx")))
    times = {name: times_of(float32=(10.0, 0.1), int8=(9.5, 0.1)) for name in sites.by_name}
    said = no_gain(sites, times, [Cast(name, 0.6) for name in sites.tensors])
    assert (
        "does not pay for making bytes of what is read: 1.5 µs at 3 of its contractions (measured), against 1.8 µs"
        in said
    )
    assert DATA + "tuning both models" in said


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
