"""An operator that widens what it reads stands with its reader: between kernels is what is narrow."""

from __future__ import annotations

from typing import Any

import pytest

from autofuse.fusion.legality import check_plan
from autofuse.fusion.planner.planner import plan_from
from autofuse.fusion.space import FusionSpace
from autofuse.graph.model import Graph


def residual(builder: Any, widen: str = "DequantizeLinear", narrow: str = "uint8", returned: bool = False) -> Graph:
    """conv -> narrow -> wide, which a residual Add behind another convolution reads; that one reads what is narrow."""
    b = builder()
    x = b.conv("conv", b.input("x", 1, 16, 8, 8), 16)
    level = (b.constant(value=1), b.constant(dtype=narrow)) if "Quantize" in widen else ()
    low = b.op("QuantizeLinear" if level else "Cast", "narrow", (x, *level), dtype=narrow)
    wide = b.op(widen, "wide", (low, *level))
    other = b.conv("other", b.op("Cast", "again", (low,)), 16)
    result = b.op("Add", "add", (other, wide))
    graph: Graph = b.build(result, *([wide] if returned else []))
    return graph


def group_of(graph: Graph, name: str, space: FusionSpace | None = None) -> set[str]:
    plan = plan_from(graph, {}, space)
    check_plan(graph, plan)
    return next(set(group.operators) for group in plan.groups if name in group.operators)


def test_bytes_are_dequantised_by_the_kernel_that_adds_them(builder: Any) -> None:
    graph = residual(builder)
    assert group_of(graph, "wide") >= {"wide", "other", "add"}
    assert "wide" not in group_of(graph, "conv")


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_so_are_other_narrow_numbers(builder: Any, dtype: str) -> None:
    assert "add" in group_of(residual(builder, "Cast", dtype), "wide")


def test_what_is_as_wide_as_what_it_reads_stays_with_what_makes_it(builder: Any) -> None:
    assert "add" not in group_of(residual(builder, "Cast", "float32"), "wide")


def test_a_result_of_the_model_stays(builder: Any) -> None:
    assert "add" not in group_of(residual(builder, returned=True), "wide")


def test_a_group_does_not_outgrow_its_limit(builder: Any) -> None:
    graph = residual(builder)
    size = len(group_of(graph, "add"))
    assert size > 2
    assert all(len(group_of(graph, "add", FusionSpace(max_group_operators=most))) <= most for most in range(1, size))
