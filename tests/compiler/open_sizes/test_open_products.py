"""Products of open rows read large weights once a call: what follows one in a kernel must not keep it from that."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofuse import api
from autofuse.compiler.open_sizes.groups import behind_products
from autofuse.compiler.report import CompileReport
from autofuse.graph.loading.load import load
from tests.compiler.open_sizes.models import built, check, weight, write

SPLIT = """
rows (float[batch, 512] x) => (float[batch, 1024] y, float[batch, 1024] z) {
  p = MatMul (x, w)
  s = Add (p, b)
  u, v = Split <axis = 1, num_outputs = 2> (s)
  y = Relu (u)
  z = Tanh (v)
}"""
SIBLINGS = """
rows (float[batch, 512] x) => (float[batch, 1024] y, float[batch, 1024] z) {
  p = MatMul (x, v)
  q = MatMul (x, w)
  y = Relu (p)
  z = Tanh (q)
}"""


def report(model: Path) -> CompileReport:
    base = str(model.with_suffix(".db"))
    return api.compile(model, None, dry_run=True, database=base, sizes={"batch": (1, 64)}, device="emeraldrapids")


@pytest.mark.long
@pytest.mark.parametrize(("columns", "kernels"), [(1024, 2), (128, 1)])
def test_siblings_of_large_weights_stay_apart(tmp_path: Path, columns: int, kernels: int) -> None:
    text = SIBLINGS.replace("1024", str(columns))
    weights = {name: weight(512, columns, seed=seed) for seed, name in enumerate("vw")}
    model = write(tmp_path / "siblings.onnx", text, weights)
    assert report(model).kernels == kernels
    check(model, built(model, "batch", 1, 64), "batch", (1, 2, 3, 7, 8, 33))


def test_a_split_behind_a_product_of_large_weights_begins_a_group(tmp_path: Path) -> None:
    weights = {"w": weight(512, 2048), "b": weight(2048)}
    graph = load(write(tmp_path / "split.onnx", SPLIT, weights), {"x": (19, 512)})
    names = tuple(operator.name for operator in graph.operators)
    kinds = [
        [[graph.by_name[name].op_type for name in group] for group in behind_products(graph, [names], least)]
        for least in (4 * 512 * 2048, 4 * 512 * 2048 + 1)
    ]
    assert kinds == [[["MatMul", "Add"], ["Split", "Relu", "Tanh"]], [["MatMul", "Add", "Split", "Relu", "Tanh"]]]


def test_an_einsum_of_each_row_is_a_product(tmp_path: Path) -> None:
    """As splines of a KAN and experts of a mixture are exported."""
    text = 'rows (float[batch, 6, 8] x) => (float[batch, 5] y) { y = Einsum <equation = "big,oig->bo"> (x, w) }'
    model = write(tmp_path / "einsum.onnx", text, {"w": weight(5, 6, 8)})
    check(model, built(model, "batch", 1, 33), "batch", (1, 2, 3, 17, 33))
