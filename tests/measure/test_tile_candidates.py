"""Candidates by tile registers (AMX) are measured in children, like others: one that ends its child is a failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autofuse.backend.compile.host_cpu import llvm_host_cpu
from autofuse.device.cpu_features import gives_tiles
from autofuse.device.target import Target
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import from_model
from autofuse.kernels.families.narrow.tiles import INT8, TILES, tiles_refusal
from autofuse.kernels.workload.workload import bind_workload
from autofuse.measure.checking.reference import capture
from autofuse.measure.local_runner import LocalRunner
from autofuse.measure.measurement import Measurement, MeasureRequest
from autofuse.measure.timing.sampling import SamplingPolicy
from tests.kernels.test_integer import levels, product

pytestmark = pytest.mark.slow

QUICK = SamplingPolicy(cap_s=0.3)
BROKEN: dict[str, Any] = {"builder": "tile_builders:unasked", "import_paths": [Path(__file__).parent]}


def measured(folder: Path, **builder: Any) -> Measurement:
    """A product by tiles on this machine, as a runner finds it."""
    target = Target(llvm_host_cpu().mcpu, 16, 32, 1, 32768, 1 << 20, mattr=("+amx-tile", "+amx-int8", "+avx512vnni"))
    if tiles_refusal(target, INT8) is not None or "avx512vnni" not in llvm_host_cpu().features:
        pytest.skip("this machine has no VNNI")
    small = product(levels("uint8", 24, 64), levels("int8", 64, 48), {})
    graph = from_model(small.model(), "small")
    bound = bind_workload(graph, [operator.name for operator in graph.operators], {})
    tensors = [output for operator in graph.operators for output in operator.outputs]
    reference = capture(graph, generate_inputs(graph, 0), folder, tensors)
    case, constants = (reference.case(bound),), reference.constants(graph, bound)
    request = MeasureRequest(bound.workload, {"integer.algorithm": TILES}, case, constants)
    with LocalRunner(target, workers=1, policy=QUICK, lock=folder / "lock", **builder) as runner:
        return runner.measure([request])[0]


def test_a_kernel_asks_before_it_takes_tiles(tmp_path: Path) -> None:
    found = measured(tmp_path)
    assert found.failure is None
    assert found.max_rel_error == 0.0


@pytest.mark.skipif(gives_tiles(), reason="this machine has tiles")
def test_a_candidate_that_runs_tiles_unasked_is_a_failure_that_names_the_signal(tmp_path: Path) -> None:
    failure = measured(tmp_path, **BROKEN).failure
    assert failure is not None
    assert failure.kind == "run_error" and "SIGILL" in failure.message
