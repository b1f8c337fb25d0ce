"""Models in parts on a device that is reached by --rpc: it runs our segments, and its own ONNX Runtime the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import autofuse
from autofuse.compiler.parts.rest import SEGMENTS
from autofuse.errors import DeviceError
from autofuse.values.names import ONNX_RUNTIME
from tests.measure.test_remote_runner import KEY, ONLY_HERE, Served
from tests.segments.models import pooled, written

pytestmark = [pytest.mark.usefixtures("any_size", "counted_rounds")]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A device that has ONNX Runtime."""
    made = Served(tmp_path_factory.mktemp("served"), missing=[name for name in ONLY_HERE if name != "onnxruntime"])
    yield made
    made.kill()


@pytest.mark.long
def test_bench_times_both_sides_there(served: Served, tmp_path: Path) -> None:
    path = written(pooled(), tmp_path)
    report = autofuse.bench(
        path, database=str(tmp_path / "no.db"), threads=1, budget=3, against="onnxruntime",
        rpc=f"127.0.0.1:{served.port}", rpc_key=KEY,
    )  # fmt: skip
    assert report.kernels == 2 and report.max_rel_error < 1e-5
    assert report.rivals[ONNX_RUNTIME].median_us is not None


@pytest.mark.slow
@pytest.mark.long
def test_tune_searches_its_segments_there_and_races_whole_models(served: Served, tmp_path: Path) -> None:
    path = written(pooled(), tmp_path)
    result = autofuse.tune(
        path, database=str(tmp_path / "times.db"), threads=1, trials=1, rpc=f"127.0.0.1:{served.port}", rpc_key=KEY
    )
    assert set(result.plans) == {SEGMENTS, ONNX_RUNTIME} and result.measured >= 2
    assert all(one.median_us is not None for one in result.plans.values()), result.plans
    assert "raced whole" in result.warning


@pytest.mark.long
def test_a_device_without_onnx_runtime_says_that_it_misses_it(tmp_path: Path) -> None:
    bare = Served(tmp_path)
    try:
        with pytest.raises(DeviceError, match="install onnxruntime where it is to run"):
            autofuse.bench(
                written(pooled(), tmp_path), database=str(tmp_path / "no.db"), threads=1, budget=3,
                against="onnxruntime", rpc=f"127.0.0.1:{bare.port}", rpc_key=KEY,
            )  # fmt: skip
    finally:
        bare.kill()
