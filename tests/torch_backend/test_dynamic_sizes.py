"""`torch.compile(model, backend="autofuse", dynamic=True)`: one library takes the sizes of a range."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from autofuse.errors import InputError
from autofuse.torch_backend import graph, library
from autofuse.torch_backend.options import parse_options

if TYPE_CHECKING:
    import torch

Compiled = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("no_warning")


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Grows with each library that is compiled: the ranges of its open sizes, none for one of fixed sizes."""
    counted: list[tuple[Any, ...]] = []
    fixed, opened = library.compile_in, library.compile_open

    def compile_fixed(*given: Any) -> Any:
        counted.append(())
        return fixed(*given)

    def compile_opened(context: Any, model: Path, output: Path | None, given: Any, sizes: Any, plan: Any) -> Any:
        report = opened(context, model, output, given, sizes, plan)
        counted.append(tuple((size.low, size.high) for size in sizes))
        return report

    monkeypatch.setattr(library, "compile_in", compile_fixed)
    monkeypatch.setattr(library, "compile_open", compile_opened)
    return counted


def perceptron() -> torch.nn.Module:
    from torch import nn

    return nn.Sequential(nn.Linear(24, 40), nn.GELU(), nn.LayerNorm(40), nn.Linear(40, 8), nn.Softmax(-1)).eval()


def convolutions() -> torch.nn.Module:
    from torch import nn

    pool = nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), pool, nn.Flatten(), nn.Linear(8, 4)).eval()


def encoder() -> torch.nn.Module:
    from torch import nn

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.norm, self.out = nn.Embedding(50, 16), nn.LayerNorm(16), nn.Linear(16, 16)

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            x = self.norm(self.table(ids)).unflatten(-1, (2, 8)).transpose(1, 2)
            y = nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask[:, None, None, :])
            return nn.functional.gelu(self.out(y.transpose(1, 2).flatten(2)))

    return Encoder().eval()


def tokens(count: int, batch: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    generator = torch.Generator().manual_seed(count)
    mask = torch.rand(batch, count, generator=generator) < 0.7
    mask[:, 0] = True
    return torch.randint(0, 50, (batch, count), generator=generator), mask


def agree(found: Any, wanted: Any) -> None:
    import torch

    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def check(fast: Any, model: Any, *args: Any) -> None:
    import torch

    with torch.no_grad():
        agree(fast(*args), model(*args))


def test_one_library_takes_every_batch(compiled: Compiled, compiles: list[Any]) -> None:
    import torch

    model = perceptron()
    fast = compiled(model, dynamic=True)
    for rows in (3, 2, 7, 16, 33, 511, 512, 3):
        check(fast, model, torch.randn(rows, 24))
    assert compiles == [((2, 512),)]
    check(fast, model, torch.randn(513, 24))  # beyond the range: a library of its own
    assert compiles == [((2, 512),), ((2, 1024),)]


def test_batches_of_images(compiled: Compiled, compiles: list[Any]) -> None:
    import torch

    model = convolutions()
    fast = compiled(model, dynamic=True, sizes="2:16")
    for rows in (2, 5, 16, 9):
        check(fast, model, torch.randn(rows, 3, 12, 12))
    assert compiles == [((2, 16),)]


def test_one_library_takes_every_number_of_tokens(compiled: Compiled, compiles: list[Any]) -> None:
    model = encoder()
    fast = compiled(model, dynamic=True, sizes="2:40")
    for count in (6, 2, 7, 40, 17, 33):
        check(fast, model, *tokens(count))
    assert compiles == [((2, 40),)]


def test_one_library_takes_every_number_of_sequences_and_tokens(compiled: Compiled, compiles: list[Any]) -> None:
    model = encoder()
    fast = compiled(model, dynamic=True, sizes="2:40")
    for batch, count in ((2, 6), (3, 6), (40, 40), (2, 2), (5, 17), (2, 40), (40, 2)):
        check(fast, model, *tokens(count, batch))
    assert compiles == [((2, 40), (2, 40))]


def test_the_disk_keeps_a_library_of_two_sizes(compiled: Compiled, compiles: list[Any]) -> None:
    import torch

    model = encoder()
    for batch, count in ((3, 6), (5, 9)):  # another size comes first in the next process
        torch._dynamo.reset()
        fast = compiled(model, dynamic=True, sizes="2:40")
        check(fast, model, *tokens(count, batch))
        check(fast, model, *tokens(11, 2))
    assert compiles == [((2, 40), (2, 40))]


def test_of_sizes_that_cannot_all_be_open_together_two_stay_open(compiled: Compiled, compiles: list[Any]) -> None:
    import torch

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ y.transpose(0, 1), -1)

    fast = compiled(function, dynamic=True, sizes="2:40")
    y = torch.randn(9, 16)
    for rows in (3, 40, 7):
        check(fast, function, torch.randn(rows, 16), y)
    check(fast, function, torch.randn(5, 16), torch.randn(8, 16))
    assert compiles == [((2, 40), (2, 40))] * 2  # for each number of rows of y, one of any rows and columns of x


def test_dynamo_opens_a_size_by_itself_at_the_second_one(compiled: Compiled, compiles: list[Any]) -> None:
    import torch

    model = perceptron()
    fast = compiled(model)
    for rows in (3, 4, 5, 6, 7):
        check(fast, model, torch.randn(rows, 24))
    assert compiles == [(), ((2, 512),)]


def test_a_range_that_is_marked_counts(compiled: Compiled, compiles: list[Any]) -> None:
    import torch

    model = perceptron()
    fast = compiled(model)
    for rows in (5, 9, 30):
        x = torch.randn(rows, 24)
        torch._dynamo.mark_dynamic(x, 0, min=2, max=30)
        check(fast, model, x)
    assert compiles == [((2, 30),)]


def test_results_that_are_the_size(compiled: Compiled, compiles: list[Any]) -> None:
    import torch

    def function(x: torch.Tensor) -> tuple[torch.Tensor, int, int]:
        return torch.exp(x) + 1, x.shape[0], x.shape[1] + 2

    fast = compiled(function, dynamic=True)
    for rows, columns in ((3, 4), (5, 4), (9, 7)):
        x = torch.randn(rows, columns)
        found = fast(x)
        agree(found[0], function(x)[0])
        assert found[1:] == (rows, columns + 2)
    assert compiles == [((2, 512), (2, 512))]


def test_changed_weights_are_seen_at_every_size(compiled: Compiled, compiles: list[Any]) -> None:
    import torch

    model = perceptron()
    fast = compiled(model, dynamic=True)
    for rows in (3, 5, 9):
        check(fast, model, torch.randn(rows, 24))
    with torch.no_grad():
        model[0].bias.add_(1)
    for rows in (5, 9, 3, 4):
        check(fast, model, torch.randn(rows, 24))
    assert compiles == [((2, 512),)] * 2


def test_what_cannot_stay_open_is_compiled_for_each_size_and_said_once(
    compiled: Compiled, compiles: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    import torch

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.flip(torch.exp(x), [0, 1])

    fast = compiled(function, dynamic=True)
    with caplog.at_level(logging.WARNING, logger=graph.__name__):
        for rows in (3, 5, 9, 3):
            check(fast, function, torch.randn(rows, 4))
    assert compiles == [(), (), ()]
    said = [record.getMessage() for record in caplog.records if "for each size of argument" in record.getMessage()]
    assert "cannot stay open at Slice" in said[0] and "--" not in said[0]
    assert "is not the leading axis" in said[1] and len(said) == 2


def test_fixed_sizes_may_be_wished(compiled: Compiled, compiles: list[Any]) -> None:
    import torch

    model = perceptron()
    fast = compiled(model, dynamic=True, sizes="fixed")
    for rows in (3, 5, 3):
        check(fast, model, torch.randn(rows, 24))
    assert compiles == [(), ()]


def test_the_library_of_a_range_is_kept(compiled: Compiled, compiles: list[Any]) -> None:
    import torch

    model = perceptron()
    check(compiled(model, dynamic=True), model, torch.randn(3, 24))
    torch._dynamo.reset()
    fast = compiled(model, dynamic=True)
    for rows in (9, 3, 100):
        check(fast, model, torch.randn(rows, 24))
    assert compiles == [((2, 512),)]


@pytest.mark.parametrize("wrong", ["2", "5:5", "9:2", 4, "all", "0:4"])
def test_a_range_that_is_none_is_refused(wrong: object) -> None:
    with pytest.raises(InputError, match=r"options: sizes: got .* allowed: a range such as '2:512'"):
        parse_options({"sizes": wrong})
