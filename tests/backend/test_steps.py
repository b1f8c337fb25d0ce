"""A segment is run on nothing but what its program says it takes: its kernels do not look at their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from autofuse.backend.container.metadata import InputSpec, PartSpec, Program
from autofuse.backend.library.arrays import tensor_over
from autofuse.backend.library.steps import Held, Made, Segment
from autofuse.errors import InputError
from autofuse.ort.bound import value_over


class Results:
    """A library whose segments make what is given."""

    @staticmethod
    def item(results: Sequence[Any], place: int) -> Any:
        return results[place]


def segment(dtype: str = "float32") -> Segment:
    program = Program("main", "", (InputSpec("m", (4, 8), dtype),), (), (), (), ())
    return Segment(PartSpec(0, None, ("m",), ()), program, Results())  # type: ignore[arg-type]


def made(shape: tuple[int, ...], dtype: str) -> Made:
    return Made(Results(), 0, 0, [tensor_over(np.zeros(shape, dtype))])  # type: ignore[arg-type]


def held(shape: tuple[int, ...], dtype: str) -> Held:
    array = np.zeros(shape, dtype)
    return Held(array, tensor_over(array), value_over(array))


def ran(one: Segment, value: object) -> list[Any]:
    given: list[Any] = []
    one.run({"m": value}, lambda _number, tensors: given.extend(tensors))
    return given


@pytest.mark.parametrize("kind", [made, held])
def test_what_fits_is_taken_as_it_lies(kind: Any) -> None:
    value = kind((4, 8), "float32")
    assert ran(segment(), value)[0] is value.tensor


@pytest.mark.parametrize("kind", [made, held])
@pytest.mark.parametrize(("shape", "dtype"), [((4, 7), "float32"), ((32,), "float32"), ((4, 8), "int32")])
def test_another_shape_or_type_is_refused_before_anything_runs(kind: Any, shape: tuple[int, ...], dtype: str) -> None:
    with pytest.raises(InputError, match="'m': .*(its segment|the model) takes"):
        ran(segment(), kind(shape, dtype))


def test_memory_that_changes_is_looked_at_in_every_run() -> None:
    one = segment()
    ran(one, held((4, 8), "float32"))
    with pytest.raises(InputError, match=r"'m': shape \(3, 8\), its segment takes \(4, 8\)"):
        ran(one, held((3, 8), "float32"))
