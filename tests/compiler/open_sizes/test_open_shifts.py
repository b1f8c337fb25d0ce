"""Tokens beside their neighbours, of an open number of tokens: right at each size, alone and of several sequences."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofuse.errors import InputError
from tests.compiler.open_sizes.models import built_over, check_over, weight, write


def model_of(path: Path, first: int, last: int, pads: tuple[int, int], outputs: str = "", beside: str = "x") -> Path:
    """Each token beside itself moved: `first` tokens are cut off in front, `last` behind, and `pads` put there."""
    text = f"""
    joined (float[batch, tokens, 12] x) => (float[batch, tokens, 8] y{outputs}) {{
        axis = Constant <value = int64[1] {{1}}> ()
        two = Constant <value = int64[1] {{2}}> ()
        start = Constant <value = int64[1] {{{first}}}> ()
        less = Constant <value = int64[1] {{{last}}}> ()
        pads = Constant <value = int64[6] {{0, {pads[0]}, 0, 0, {pads[1]}, 0}}> ()
        value = Constant <value = float {{0.5}}> ()
        sizes = Shape (x)
        tokens = Slice (sizes, axis, two)
        end = Sub (tokens, less)
        cut = Slice (x, start, end, axis)
        moved = Pad (cut, pads, value)
        both = Concat <axis = 2> (moved, {beside})
        product = MatMul (both, w)
        y = Relu (product)
    }}"""
    return write(path / "joined.onnx", text, {"w": weight(24, 8)})


POINTS = [(1, 3), (2, 7), (3, 16), (1, 33), (4, 40)]


@pytest.mark.parametrize(
    ("first", "last", "pads"), [(1, 0, (0, 1)), (0, 1, (1, 0)), (2, 0, (0, 2)), (1, 1, (2, 0)), (1, 0, (1, 0))]
)
def test_tokens_are_joined_with_their_neighbours(tmp_path: Path, first: int, last: int, pads: tuple[int, int]) -> None:
    model = model_of(tmp_path, first, last, pads)
    library = built_over(model, {"batch": (1, 4), "tokens": (3, 40)})
    check_over(model, library, [{"batch": batch, "tokens": tokens} for batch, tokens in POINTS])


def test_a_single_token_has_the_padding_beside_it(tmp_path: Path) -> None:
    model = model_of(tmp_path, 1, 0, (0, 1))
    library = built_over(model, {"batch": (1, 1), "tokens": (1, 20)})
    check_over(model, library, [{"batch": 1, "tokens": tokens} for tokens in (1, 2, 19, 20)])


def test_fewer_tokens_than_are_cut_off_are_refused(tmp_path: Path) -> None:
    model = model_of(tmp_path, 2, 0, (0, 2))
    with pytest.raises(InputError, match="no static shape|tokens"):
        built_over(model, {"batch": (1, 1), "tokens": (1, 20)})


def test_a_cut_that_is_an_output_is_refused(tmp_path: Path) -> None:
    model = model_of(tmp_path, 1, 0, (0, 1), ", float[batch, less_tokens, 12] cut")
    with pytest.raises(InputError, match="tokens cannot stay open|cannot stay open together"):
        built_over(model, {"batch": (1, 4), "tokens": (3, 20)})


def test_a_cut_that_is_padded_to_another_length_is_refused(tmp_path: Path) -> None:
    model = model_of(tmp_path, 1, 0, (0, 2), beside="moved")
    with pytest.raises(InputError, match="tokens cannot stay open|cannot stay open together"):
        built_over(model, {"batch": (1, 4), "tokens": (3, 20)})
