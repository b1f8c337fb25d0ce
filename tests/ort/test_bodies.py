"""Bodies of If, Loop and Scan: what pays in them is a segment, and ONNX Runtime goes on doing the control flow."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

import autofuse
from autofuse.errors import DeviceError
from autofuse.graph.nodes import subgraphs_of
from tests.ort.compiled import agree, changed, compiled, session
from tests.segments.bodies import branches, growing, loop, scan
from tests.segments.models import assert_same, expected, normal, written

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
    pytest.mark.usefixtures("every_size"),
]


@pytest.fixture
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every segment pays, however small it is."""
    monkeypatch.setattr("autofuse.segments.worth.LEAST_US", 0.0)


CONDITIONS = (np.array(True), np.array(False))
CASES = {
    "If": (branches, [{"x": normal(6, 24, seed=5), "c": c} for c in CONDITIONS], 1, 2),
    "Loop": (loop, [{"x": normal(6, 24, seed=5), "n": np.array(n)} for n in (0, 1, 3)], 0, 1),
    "growing Loop": (growing, [{"x": normal(1, 24, seed=5), "n": np.array(n)} for n in (0, 1, 3)], 0, 1),
    "Scan": (
        scan,
        [{"h": normal(6, 24, seed=5), "x": normal(6, 5, 24, seed=6), "c": c} for c in CONDITIONS],
        0,
        4,
    ),
}


def segments(graph: onnx.GraphProto) -> tuple[int, int]:
    """Segments of a graph, and of the bodies in it."""
    own = sum(node.op_type == "EPContext" for node in graph.node)
    inside = [sum(segments(body)) for node in graph.node for body in subgraphs_of(node)]
    return own, sum(inside)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_products_in_bodies_are_ours_and_control_flow_is_not(name: str, tmp_path: Path) -> None:
    make, feeds, own, inside = CASES[name]
    model = written(make(), tmp_path)
    report = compiled(model, tmp_path / "tuned.onnx")
    assert segments(onnx.load(tmp_path / "tuned.onnx").graph) == (own, inside)
    assert any("in which" in row.reason for row in report.rest)
    assert any(part.kinds.startswith("inside of") and part.flops for part in report.parts)
    for given in feeds:
        agree(model, tmp_path / "tuned.onnx", given)


def test_a_body_whose_code_is_nowhere_says_so(tmp_path: Path) -> None:
    compiled(written(loop(), tmp_path), tmp_path / "tuned.onnx")

    def without_code(model: onnx.ModelProto) -> None:
        for node in (node for outer in model.graph.node for body in subgraphs_of(outer) for node in body.node):
            kept = [one for one in node.attribute if one.name != "ep_cache_context"]
            del node.attribute[:]
            node.attribute.extend(kept)

    damaged = changed(tmp_path / "tuned.onnx", tmp_path / "damaged.onnx", without_code)
    opened = session(damaged)
    opened.disable_fallback()  # else ONNX Runtime tries again without the provider
    with pytest.raises(Exception, match="the model is damaged: no node of it has its code"):
        opened.run(None, CASES["Loop"][1][2])


@pytest.mark.parametrize("name", ["If", "growing Loop"])
def test_a_library_takes_its_bodies_along(name: str, tmp_path: Path) -> None:
    make, feeds, own, inside = CASES[name]
    model = written(make(), tmp_path)
    report = autofuse.compile(model, tmp_path / "net.so", database=str(tmp_path / "p.db"), threads=1)
    assert len(report.plans) == own + inside
    session = autofuse.Session(tmp_path / "net.so")
    for given in feeds:
        assert_same(session.run(None, given), expected(onnx.load(model), given))


def test_without_a_c_compiler_bodies_are_onnx_runtimes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(architecture: str) -> None:
        raise DeviceError(f"no C compiler for {architecture}")

    monkeypatch.setattr("autofuse.compiler.parts.bodies.c_compiler", refused)
    model, given = written(loop(), tmp_path), CASES["Loop"][1][2]
    report = autofuse.compile(model, tmp_path / "net.so", database=str(tmp_path / "p.db"), threads=1)
    assert not report.plan_key and any("no C compiler" in row.reason for row in report.rest)
    assert_same(autofuse.Session(tmp_path / "net.so").run(None, given), expected(onnx.load(model), given))
