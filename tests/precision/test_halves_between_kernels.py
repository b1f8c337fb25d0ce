"""Models in bfloat16 as whole libraries: maps between kernels are bfloat16 for all that reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import autofuse
from autofuse.fusion.planner.baselines import default_plan
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.graph.own.rounding import is_rounded
from autofuse.graph.submodel import to_model
from autofuse.graph.transform.quantize.sites import BF16, find_sites, prepared
from autofuse.graph.transform.quantize.write import quantised_graph
from autofuse.kernels.lowering.lower import Lowering
from autofuse.measure.checking.reference import run_reference
from tests.conftest import OnnxBuilder
from tests.kernels.kernel_sample import TARGETS

IMAGE = (1, 16, 9, 9)


def network(folder: Path) -> Graph:
    """An inverted bottleneck with its residual, a pool, and a product."""
    builder = OnnxBuilder()
    first = builder.op("Relu", "first", builder.conv_bn("stem", "image", (16, 16), kernel=1))
    wide = builder.op("Relu", "wide", builder.conv_bn("expand", first, (16, 32), kernel=1))
    deep = builder.op("Relu", "deep", builder.conv_bn("depthwise", wide, (32, 32), group=32))
    added = builder.op("Add", "added", builder.conv_bn("project", deep, (32, 16), kernel=1), first)
    last = builder.op("Relu", "last", builder.conv_bn("head", added, (16, 24), kernel=1))
    flat = builder.op("Flatten", "flat", builder.op("GlobalAveragePool", "pool", last))
    builder.save(folder / "real.onnx", {"image": IMAGE}, [builder.dense("scores", flat, (24, 10))])
    sites = find_sites(prepared(load(folder / "real.onnx")), (BF16,))
    chosen = quantised_graph(sites, {site.name: BF16 for site in sites.usable}, {})
    onnx.save(to_model(chosen), folder / "half.onnx")
    return load(folder / "half.onnx")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Graph]:
    folder = tmp_path_factory.mktemp("halves")
    return folder, network(folder)


def test_every_map_between_convolutions_is_bfloat16_for_all_that_reads_it(made: tuple[Path, Graph]) -> None:
    _, graph = made
    lowered = Lowering(graph, TARGETS["avx512"]).lower(default_plan(graph))
    maps = [value.layout for group in lowered.groups for value in group.workload.values
            if value.kind == "output" and len(value.shape) == 4]  # fmt: skip
    assert maps == ["c16-bf16"] * 4, "the head and its pool are one kernel"


def test_the_library_computes_what_the_casts_of_the_file_say(made: tuple[Path, Graph]) -> None:
    folder, graph = made
    autofuse.compile(folder / "half.onnx", folder / "half.so", database=str(folder / "p.db"), threads=1)
    image = np.random.default_rng(2).standard_normal(IMAGE).astype("float32")
    wanted = next(iter(run_reference(graph, {"image": image}).values()))
    (found,) = autofuse.Session(folder / "half.so").run(None, {"image": image})
    assert np.abs(found - wanted).max() <= 2e-3 * np.abs(wanted).max(), "a level of bfloat16 here and there"
    real = next(iter(run_reference(load(folder / "real.onnx"), {"image": image}).values()))
    assert 0 < np.abs(real - wanted).max() <= 0.05 * np.abs(real).max()
    assert not is_rounded(np.asarray(found))
