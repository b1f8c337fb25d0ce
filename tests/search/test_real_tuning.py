"""Tune, compile, load, run and bench small networks for real, with budgets too small to find anything good."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from typer.testing import CliRunner, Result

import autofuse
from autofuse.backend.library.compiled import Library
from autofuse.cli.main import app
from autofuse.compiler import CompileReport
from autofuse.measure.timing.race import InterleavingPolicy
from autofuse.measure.timing.sampling import SamplingPolicy
from autofuse.search.progress import TuneResult

pytestmark = pytest.mark.slow

LIMIT = 1e-4


@dataclass(frozen=True)
class Tuned:
    """A network after `tune` and `compile`."""

    model: Path
    database: Path
    result: TuneResult
    report: CompileReport
    library: Library


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Short timings, and a measuring lock of our own: no number of this module is looked at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autofuse.search.tune.SamplingPolicy", partial(SamplingPolicy, cap_s=0.05, settle_probes=2))
        rounds = InterleavingPolicy(max_rounds=8, settle_probes=2, deciding=True)
        patch.setattr("autofuse.search.tune.DECIDING", rounds)
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
        yield


def tuned(model: Path, trials: int) -> Tuned:
    database, output = model.with_suffix(".db"), model.with_suffix(".so")
    result = autofuse.tune(model, database=str(database), trials=trials, threads=1)
    report = autofuse.compile(model, output, database=str(database), threads=1, strict=True)
    return Tuned(model, database, result, report, autofuse.load(output))


@pytest.fixture(scope="module")
def cnn(hurried: None, onnx_builder: Any, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """Convolution, BatchNorm, ReLU, a depthwise one, a residual Add, both poolings and a Gemm."""
    b = onnx_builder()
    x = b.op("Relu", "stem_relu", b.conv_bn("stem", "x", (3, 16), stride=2))
    y = b.op("Relu", "deep_relu", b.conv_bn("deep", x, (16, 16), group=16))
    x = b.op("Add", "add", b.conv_bn("point", y, (16, 16), kernel=1), x)
    x = b.op("MaxPool", "pool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = b.op("Flatten", "flatten", b.op("GlobalAveragePool", "average", x))
    x = b.op("Gemm", "classes", x, b.weights(10, 16), b.weights(10), transB=1)
    path = tmp_path_factory.mktemp("cnn") / "cnn.onnx"
    return tuned(b.save(path, {"x": [1, 3, 32, 32]}, [x]), trials=12)


@pytest.fixture(scope="module")
def transformer(hurried: None, onnx_builder: Any, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """One encoder layer: two heads, a masked softmax, GELU written out, two residuals with LayerNorm."""
    b = onnx_builder()
    heads = {}
    for part, perm in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
        y = b.op("Reshape", f"{part}_split", b.dense(part, "x", (32, 32)), b.constant(np.array([1, 16, 2, 16])))
        heads[part] = b.op("Transpose", f"{part}_heads", y, perm=perm)
    y = b.op("Mul", "scale", b.op("MatMul", "scores", heads["q"], heads["k"]), b.constant(np.float32(0.25)))
    y = b.op("Softmax", "softmax", b.op("Add", "masked", y, "mask"), axis=-1)
    y = b.op("Transpose", "joined", b.op("MatMul", "mix", y, heads["v"]), perm=(0, 2, 1, 3))
    y = b.op("Reshape", "merged", y, b.constant(np.array([1, 16, 32])))
    y = b.op("Add", "residual", b.dense("out", y, (32, 32)), "x")
    y = b.op("LayerNormalization", "norm", y, b.weights(32, positive=True), b.weights(32), axis=-1)
    h = b.dense("up", y, (32, 64))
    e = b.op("Erf", "erf", b.op("Div", "div", h, b.constant(np.float32(1.41421356))))
    e = b.op("Mul", "gelu", h, b.op("Add", "one", e, b.constant(np.float32(1))))
    h = b.dense("down", b.op("Mul", "half", e, b.constant(np.float32(0.5))), (64, 32))
    y = b.op("Add", "residual2", h, y)
    y = b.op("LayerNormalization", "norm2", y, b.weights(32, positive=True), b.weights(32), axis=-1)
    path = tmp_path_factory.mktemp("transformer") / "transformer.onnx"
    return tuned(b.save(path, {"x": [1, 16, 32], "mask": [1, 1, 1, 16]}, [y]), trials=1)


@pytest.fixture(params=["cnn", pytest.param("transformer", marks=pytest.mark.long)])
def network(request: pytest.FixtureRequest) -> Tuned:
    found: Tuned = request.getfixturevalue(request.param)
    return found


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_outputs_are_those_of_onnx_runtime(network: Tuned) -> None:
    session = onnxruntime.InferenceSession(str(network.model), providers=["CPUExecutionProvider"])
    for seed in range(3):
        inputs = network.library.example_inputs(seed)
        for mine, reference in zip(network.library(inputs), session.run(None, inputs), strict=True):
            assert mine.shape == reference.shape
            assert float(np.abs(mine - reference).max()) <= LIMIT * float(np.ptp(reference))


def test_exactly_one_kernel_a_group_is_launched(network: Tuned) -> None:
    launched = network.library.launched(network.library.example_inputs())
    assert set(launched.values()) == {1} or sum(launched.values()) == network.report.kernels
    assert sum(launched.values()) == network.report.kernels == network.result.kernels


def test_fused_plans_have_fewer_kernels_than_the_network_has_operators(network: Tuned) -> None:
    operators = len(autofuse.inspect(network.model).operators)
    assert network.result.plans["default"].kernels < operators


def test_the_fixed_plans_are_measured_whole(cnn: Tuned) -> None:
    plans = cnn.result.plans
    assert {"none", "tvm-partition"} <= set(plans)
    assert plans["none"].kernels > plans["default"].kernels
    for time in plans.values():
        assert time.median_us is not None and time.median_us > 0
        assert time.max_rel_error is not None and time.max_rel_error <= LIMIT


def test_every_group_of_the_chosen_plan_is_a_hit(network: Tuned) -> None:
    assert network.report.hits == network.report.kernels
    assert {group.tier for group in network.report.groups} == {"hit"}
    assert network.report.plan_key == network.result.plan_key
    assert all(group.us is not None and group.us > 0 for group in network.report.groups)


def test_compiling_twice_gives_the_same_kernels(network: Tuned, tmp_path: Path) -> None:
    again = autofuse.compile(network.model, tmp_path / "b.so", database=str(network.database), threads=1)
    assert (again.plan_key, again.groups) == (network.report.plan_key, network.report.groups)
    other = autofuse.load(tmp_path / "b.so")
    assert other.metadata.kernel_rows == network.library.metadata.kernel_rows
    inputs = network.library.example_inputs(5)
    for mine, theirs in zip(network.library(inputs), other(inputs), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_everything_measured_was_checked_and_is_in_the_database(network: Tuned) -> None:
    with autofuse.open(str(network.database)) as opened:
        candidates, runs = opened.candidates, opened.runs
    assert len(candidates) == network.result.measured
    good = candidates[candidates["state"] == "ok"]
    assert len(good) == network.result.measured - network.result.failed > 0
    assert (good["max_rel_error"] <= LIMIT).all()
    assert list(runs["state"]) == ["finished"]


def test_trials_are_kept_once_a_plan_is_complete(cnn: Tuned) -> None:
    """The groups of a plan that wins with schedules of others are measured once more on top."""
    assert 12 <= cnn.result.measured <= 12 + cnn.result.kernels


def test_bench_says_that_it_is_right_and_what_the_rivals_take(cnn: Tuned, counted_rounds: None) -> None:
    result = call(
        "bench", cnn.model, "--library", cnn.model.with_suffix(".so"), "--db", cnn.database, "--threads", 1,
        "--against", "onnxruntime", "--budget", "5s", "--format", "json",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    body = json.loads(result.stdout)
    assert body["kernels"] == cnn.report.kernels
    assert body["max_rel_error"] <= LIMIT
    assert body["autofuse_us"] > 0
    rival = body["rivals"]["onnxruntime"]
    assert rival["median_us"] > 0
    assert rival["ci_lo"] <= rival["ratio"] <= rival["ci_hi"]


def test_strict_on_an_empty_database_exits_with_three_and_writes_nothing(cnn: Tuned, tmp_path: Path) -> None:
    for flags in (["--strict"], ["--on-miss", "fail"], ["--strict", "--plan", "none"]):
        result = call("compile", cnn.model, "-o", tmp_path / "x.so", "--db", tmp_path / "empty.db", *flags)
        assert result.exit_code == 3, flags
        assert "autofuse tune" in result.stderr
        assert "Traceback" not in result.stderr
        assert not (tmp_path / "x.so").exists()


@pytest.mark.parametrize(("policy", "plan"), [("rule", "default rule"), ("none", "none")])
def test_a_miss_is_answered_by_the_policy(policy: str, plan: str, cnn: Tuned, tmp_path: Path) -> None:
    report = autofuse.compile(
        cnn.model, tmp_path / "x.so", database=str(tmp_path / "empty.db"), threads=1, on_miss=policy
    )
    assert (report.plan, report.hits) == (plan, 0)
    assert {group.tier for group in report.groups} == {"rule"}
    library = autofuse.load(tmp_path / "x.so")
    inputs = library.example_inputs(1)
    assert library.count_kernels(inputs) == report.kernels
    (mine,), (theirs,) = library(inputs), cnn.library(inputs)
    assert float(np.abs(mine - theirs).max()) <= LIMIT * float(np.ptp(theirs))


def test_another_number_of_threads_is_a_miss(cnn: Tuned, tmp_path: Path) -> None:
    report = autofuse.compile(cnn.model, tmp_path / "x.so", database=str(cnn.database), threads=2)
    assert report.hits == 0
