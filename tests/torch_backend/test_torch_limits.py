"""Graphs of `torch.compile(model, backend="autofuse")` that run in eager: with one warning that says why, and right."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from autofuse.torch_backend import graph, refusals
from autofuse.torch_backend.refusals import EagerWarning

if TYPE_CHECKING:
    import torch

Compiled = Callable[..., Any]


def warned(call: Callable[[], Any]) -> tuple[Any, list[str]]:
    """What a call gives, and what it warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    return result, [str(one.message) for one in caught if issubclass(one.category, EagerWarning)]


def refused(compiled: Compiled, function: Callable[..., Any], *args: Any, again: int = 2, **options: object) -> str:
    """The one reason for which a function runs in eager at its first call; further calls are silent."""
    fast = compiled(function, **options)
    _, reasons = warned(lambda: fast(*args))
    assert len(reasons) == 1, reasons
    for _ in range(again):
        assert warned(lambda: fast(*args))[1] == []
    return reasons[0]


def test_a_training_runs_in_eager_and_trains(compiled: Compiled) -> None:
    import torch

    model = torch.nn.Linear(8, 8)
    fast = compiled(model)
    x = torch.randn(4, 8)
    result, reasons = warned(lambda: fast(x))
    assert len(reasons) == 1
    assert "part of a training (1 operators whose results require gradients)" in reasons[0]
    assert "torch.no_grad()" in reasons[0]
    result.sum().backward()
    assert model.weight.grad is not None
    with torch.no_grad():
        assert warned(lambda: fast(x))[1] == []  # another graph, which is compiled


def test_a_graph_that_draws_random_numbers(compiled: Compiled) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5))
    with torch.no_grad():
        assert "draws random numbers (aten.dropout.default); switch the model to eval()" in refused(
            compiled, model, torch.randn(4, 8)
        )


def test_dropout_is_nothing_outside_of_training(compiled: Compiled) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.ReLU()).eval()
    fast = compiled(model)
    x = torch.randn(4, 8)
    with torch.no_grad():
        assert warned(lambda: fast(x))[1] == []
        torch.testing.assert_close(fast(x), model(x))


def test_a_buffer_that_is_written_is_written_once_a_call(compiled: Compiled) -> None:
    import torch

    model = torch.nn.BatchNorm1d(8).train()
    with torch.no_grad():
        reason = refused(compiled, model, torch.randn(4, 8))
    assert "it writes into its input" in reason and "eval()" in reason
    assert int(model.num_batches_tracked) == 3


def test_an_argument_that_is_written(compiled: Compiled) -> None:
    import torch

    def add(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    for mode in (torch.no_grad, torch.inference_mode):
        torch._dynamo.reset()
        with mode():
            x = torch.zeros(4)
            assert "it writes into its input 0" in refused(compiled, add, x)
            assert x.tolist() == [3.0] * 4


def test_a_view_of_an_input_stays_one(compiled: Compiled) -> None:
    import torch

    def view(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.reshape(-1), x * 2

    x = torch.zeros(2, 2)
    assert "output 0 shares its memory with input 0" in refused(compiled, view, x)
    compiled(view)(x)[0].add_(1)
    assert x.tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda torch: (torch.zeros(4, dtype=torch.bfloat16),), "input 0 has elements of bfloat16"),
        (lambda torch: (torch.zeros(4, dtype=torch.complex64),), "input 0 has elements of complex64"),
    ],
    ids=["bfloat16", "complex"],
)
def test_types_of_elements_that_no_library_has(compiled: Compiled, make: Callable[[Any], Any], reason: str) -> None:
    import torch

    assert reason in refused(compiled, lambda x: x + x, *make(torch))


def test_an_operator_without_onnx_form(compiled: Compiled) -> None:
    import torch

    def solve(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.solve(x, x) + 1

    reason = refused(compiled, solve, torch.eye(4) + 1)
    assert "a graph of 2 operators runs in eager: torch.onnx.export has no ONNX form of it" in reason


def test_a_device_that_is_not_there(compiled: Compiled) -> None:
    import torch

    assert "it cannot be compiled: " in refused(compiled, lambda x: x * 2 + 1, torch.ones(4), device="toaster")


def test_a_wrong_library_is_not_used(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    original = graph.Form.run
    monkeypatch.setattr(graph.Form, "run", lambda form, args: [one + 1 for one in original(form, args)])
    assert "the compiled graph differs from eager in output 0" in refused(
        compiled, lambda x: x * 2 + 1, torch.ones(4), again=1
    )


def test_sizes_beyond_the_limit_run_in_eager(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(refusals, "MOST_SIZES", 2)
    fast = compiled(lambda x: torch.relu(x) * 2, sizes="fixed")
    reasons = []
    for rows in (2, 3, 4, 5, 6, 6):  # the first has a graph of its own, dynamo leaves the others' sizes open
        result, more = warned(lambda rows=rows: fast(torch.ones(rows, 3)))  # type: ignore[misc]
        assert result.shape == (rows, 3) and float(result.sum()) == 6 * rows
        reasons += more
    assert len(reasons) == 1
    assert "compiled for 2 sizes of its inputs already" in reasons[0]


def test_weights_that_keep_changing_run_in_eager(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(refusals, "MOST_WEIGHTS", 1)
    model = torch.nn.Linear(4, 4)
    fast, x = compiled(model), torch.ones(2, 4)
    reasons = []
    with torch.no_grad():
        for _ in range(4):
            model.weight.add_(1)
            for _ in range(2):
                result, more = warned(lambda: fast(x))
                torch.testing.assert_close(result, model(x))
                reasons += more
    assert len(reasons) == 1
    assert "its weights changed more than 1 times" in reasons[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"num_threads": 2}, "did you mean 'threads'"), ({"cache": "yes"}, "cache: got 'yes', allowed: True or False")],
)
def test_options_that_there_are_not_end_the_call(compiled: Compiled, options: dict[str, object], message: str) -> None:
    import torch

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=message):
        compiled(lambda x: x + 1, **options)(torch.ones(2))


def test_a_defect_of_ours_does_not_end_the_program(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(graph, "open_session", lambda *_: [][0])
    assert "a defect of autofuse, to be reported (IndexError: " in refused(compiled, lambda x: x * 2, torch.ones(4))
