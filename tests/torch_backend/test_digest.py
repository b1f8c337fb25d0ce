"""What a graph of torch is known by on the disk; the graphs are stand-ins with the fields that torch.fx gives, so that
none of it needs torch (`test_torch_compile.py` has the real ones).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autofuse.torch_backend.digest import UnknownGraphError, digest, graph_text


class Node:
    """A node of torch.fx."""

    def __init__(self, op: str, target: object, *args: object, **kwargs: object) -> None:
        self.op, self.target, self.args, self.kwargs = op, target, args, kwargs


def module(*nodes: Node, **attributes: object) -> Any:
    return SimpleNamespace(graph=SimpleNamespace(nodes=list(nodes)), **attributes)


def product(name: str = "x", function: Callable[..., object] = operator.mul, factor: object = 2) -> Any:
    x = Node("placeholder", name)
    y = Node("call_function", function, x, factor)
    return module(x, y, Node("output", "output", (y,)))


def test_names_of_values_do_not_matter() -> None:
    assert (
        graph_text(product("l_x_"))
        == graph_text(product("l_self_y_"))
        == ("placeholder\ncall_function _operator.mul [%0, 2] {}\noutput [[%1]] {}")
    )


@pytest.mark.parametrize(
    "other",
    [product(function=operator.add), product(function=math.pow), product(factor=2.0), product(factor=True),
     product(factor="2"), product(factor=slice(None, 2)), product(factor=(2,)), product(factor={"a": 2})],
)  # fmt: skip
def test_whatever_changes_the_result_changes_the_text(other: Any) -> None:
    assert graph_text(other) != graph_text(product())


def test_methods_and_keywords_count() -> None:
    x = Node("placeholder", "x")
    texts = {
        graph_text(module(x, Node("call_method", name, x, **named)))
        for name in ("sum", "mean")
        for named in ({}, {"dim": 1}, {"dim": 2})
    }
    assert len(texts) == 6


def test_a_graph_inside_a_graph_is_read_too() -> None:
    texts = {graph_text(module(Node("get_attr", "body_0"), body_0=product(factor=factor))) for factor in (1, 2)}
    assert len(texts) == 2


def test_what_nobody_can_tell_apart_is_not_kept() -> None:
    def own(x: float) -> float:
        return x

    with pytest.raises(UnknownGraphError, match="it calls tests"):
        graph_text(product(function=own))
    with pytest.raises(UnknownGraphError, match="it holds a object"):
        graph_text(product(factor=object()))
    with pytest.raises(UnknownGraphError, match="it calls the module layer"):
        graph_text(module(Node("call_module", "layer")))


def test_the_key_changes_with_everything_that_goes_into_a_library() -> None:
    weights = [("w float32[2]", memoryview(np.ones(2, np.float32)).cast("B"))]
    others = [
        ("other", {"threads": 1}, weights),
        ("text", {"threads": 2}, weights),
        ("text", {"threads": 1}, []),
        ("text", {"threads": 1}, [("w float32[1, 2]", weights[0][1])]),
        ("text", {"threads": 1}, [(weights[0][0], memoryview(np.zeros(2, np.float32)).cast("B"))]),
    ]
    first = digest("text", {"threads": 1}, weights)
    assert first == digest("text", {"threads": 1}, weights)
    assert len({first, *(digest(*other) for other in others)}) == 6
