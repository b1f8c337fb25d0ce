"""Six networks compiled here and run on an emulated ARM core; one of them tuned; a core that dies under the search."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import autofuse
from autofuse.backend.library.library import read_metadata
from autofuse.cli.main import app
from autofuse.environment.device import RunnerOptions, ask_device, open_runner
from autofuse.errors import DeviceError
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import load
from autofuse.measure.checking.reference import run_reference
from autofuse.measure.checking.tolerance import compare
from autofuse.measure.measurement import Limits
from autofuse.measure.remote.link import LinkLimits
from autofuse.measure.timing.race import InterleavingPolicy
from autofuse.measure.timing.sampling import SamplingPolicy
from experiments.architectures import bert, efficientnet_b0, mobilenet_v2, resnet50, squeezenet1_1, weenet
from experiments.arm_emulator.device import EmulatedDevice
from experiments.arm_emulator.recipe import Emulator

LIMIT = 1e-4
LINK = LinkLimits(connect_s=60, start_s=120, recover_s=10)
NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet50": partial(resnet50.build, size=64),
    "mobilenet_v2": partial(mobilenet_v2.build, size=64),
    "efficientnet_b0": partial(efficientnet_b0.build, size=64),
    "squeezenet1_1": partial(squeezenet1_1.build, size=64),
    "tinybert": bert.tinybert,
    "weenet": partial(weenet.build, channels=16, size=32),
}
"""Whole networks with small images: an emulated core does some 100 MFLOP/s."""


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_runs_there_as_in_onnx_runtime(name: str, emulated: EmulatedDevice, tmp_path: Path) -> None:
    model, library = tmp_path / f"{name}.onnx", tmp_path / f"{name}.so"
    onnx.save(NETWORKS[name](), model)
    report = autofuse.compile(model, library, database=str(tmp_path / "p.db"), device="raspberry-pi-5", threads=1)
    assert report.kernels == read_metadata(library).kernels > 0
    assert read_metadata(library).architecture == "aarch64"
    graph = load(model)
    inputs = generate_inputs(graph, 0)
    expected = run_reference(graph, inputs)
    device = ask_device(emulated.address)
    with open_runner(device, 1, RunnerOptions(link=LINK)) as runner:
        results = runner.outputs(library, inputs)
    for wanted, got in zip(graph.outputs, results, strict=True):
        verdict = compare(np.asarray(got), expected[wanted], LIMIT)
        assert verdict.ok, verdict.reason


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short timings: an emulated core's mean nothing."""
    policy = SamplingPolicy(cap_s=0.02, settle_probes=1, good_slices=1)
    rounds = InterleavingPolicy(max_rounds=2, min_rounds=1, settle_probes=1)
    options = RunnerOptions(policy, rounds, LINK)
    monkeypatch.setattr("autofuse.search.tune.RunnerOptions", lambda *_, **_named: options)
    monkeypatch.setattr("autofuse.benchmark.RunnerOptions", lambda: options)
    monkeypatch.setattr("autofuse.environment.device.RemoteRunner", _patient)


def _patient(*arguments: Any, **named: Any) -> Any:
    from autofuse.measure.remote.remote_runner import RemoteRunner

    return RemoteRunner(*arguments, **named, limits=Limits(run_s=60))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "weenet.onnx"
    onnx.save(NETWORKS["weenet"](), path)
    return path


def test_a_network_is_tuned_compiled_and_compared_there(
    hurried: None, counted_rounds: None, emulated: EmulatedDevice, model: Path, tmp_path: Path
) -> None:
    there = {"rpc": f"127.0.0.1:{emulated.port}", "rpc_key": emulated.address.key, "database": str(tmp_path / "p.db")}
    result = autofuse.tune(model, trials=3, threads=1, **there)
    assert (result.state, result.device, result.failed) == ("finished", "cortex-a76", 0)
    report = autofuse.compile(model, tmp_path / "model.so", threads=1, strict=True, **there)
    assert report.hits == report.kernels
    bench = autofuse.bench(model, threads=1, budget=2, against="none,onnxruntime,tvm", **there)
    assert bench.max_rel_error < LIMIT
    assert bench.rivals["none"].ratio is not None
    assert "install onnxruntime where it is to run" in bench.rivals["onnxruntime"].error
    assert "no compiler" in bench.rivals["tvm-untuned"].error


def test_what_was_measured_there_is_not_taken_for_this_machines(
    hurried: None, emulated: EmulatedDevice, model: Path, tmp_path: Path
) -> None:
    database = str(tmp_path / "p.db")
    autofuse.tune(
        model, trials=1, threads=1, database=database, rpc=f"127.0.0.1:{emulated.port}", rpc_key=emulated.address.key
    )
    assert autofuse.compile(model, tmp_path / "here.so", threads=1, database=database).hits == 0


def test_a_core_that_dies_under_the_search_ends_it_with_75_and_it_goes_on_later(
    hurried: None, emulator: Emulator, model: Path, tmp_path: Path
) -> None:
    device = EmulatedDevice(emulator, tmp_path / "serve.log")
    device.start()
    there: dict[str, Any] = {"rpc": f"127.0.0.1:{device.port}", "rpc_key": device.address.key}
    there |= {"database": str(tmp_path / "p.db"), "threads": 1}

    def progress(state: Any) -> None:
        if state.ok == 2:
            device.kill()

    with pytest.raises(DeviceError, match=r"nothing can be measured any more: 127\.0\.0\.1") as caught:
        autofuse.tune(model, trials=8, progress=progress, **there)
    assert caught.value.exit_code == 75
    with autofuse.open(there["database"]) as opened:
        assert "device_lost" in set(opened.failures["state"])
    device.start()
    try:
        result = autofuse.tune(model, trials=2, **there)
    finally:
        device.kill()
    assert (result.state, result.failed) == ("finished", 0)
    assert result.hits >= 1, "what was measured before the loss is known"


def test_a_core_that_freezes_is_left_after_the_time_limit(
    hurried: None, emulator: Emulator, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmulatedDevice(emulator, tmp_path / "serve.log") as device:
        found = ask_device(device.address)
        options = RunnerOptions(link=LinkLimits(connect_s=30, recover_s=4))
        with open_runner(found, 1, options) as runner:
            runner.describe()
            device.freeze()
            thaw = threading.Timer(200, device.thaw)
            thaw.start()
            start = time.monotonic()
            with pytest.raises(DeviceError):
                runner.describe()
            assert time.monotonic() - start < 90
            device.thaw()
            thaw.cancel()
            assert runner.describe().host.mcpu == "cortex-a76"


def test_doctor_looks_at_the_device_too(emulated: EmulatedDevice, tmp_path: Path) -> None:
    options = ["--rpc", f"127.0.0.1:{emulated.port}", "--rpc-key", emulated.address.key, "--db", str(tmp_path / "p.db")]
    done = CliRunner().invoke(app, ["doctor", *options, "--format", "json"])
    assert done.exit_code in (0, 1), done.output
    for hop in ("rpc address", "rpc session", "rpc device", "rpc linker", "rpc kernel"):
        assert f'"{hop}"' in done.output
