"""A library that ONNX Runtime runs whole, on inputs that are bound once: as right as a call, and without new memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto

import autofuse
from autofuse.backend.library.parted import PartedLibrary
from autofuse.errors import InputError
from autofuse.ort.bound import Prebound
from tests.segments.models import assert_same, expected, model_of, normal, written

MODELS = {
    "fixed and open": "net (float[2,4] x) => (float[2,4] r, int64[2,n] y, int64[3] s)"
    " { r = Relu (x) y = NonZero (x) s = Constant <value_ints = [1, 2, 3]> () }",
    "the input": "net (float[2,4] x) => (int64[2,n] y, float[2,4] x) { y = NonZero (x) }",
    "a scalar": "net (float[2,4] x) => (int64 n, int64[2,m] y) { n = Size (x) y = NonZero (x) }",
}


def library_of(model: ModelProto, folder: Path) -> PartedLibrary:
    path = folder / "model.so"
    report = autofuse.compile(written(model, folder), path, database=str(folder / "no.db"), threads=1)
    assert [part.side for part in report.parts] == ["ONNX Runtime"]
    library = autofuse.load(path)
    assert isinstance(library, PartedLibrary)
    return library


@pytest.mark.parametrize("name", MODELS)
def test_results_are_those_of_the_last_run_whatever_stands_in_the_input_by_then(name: str, tmp_path: Path) -> None:
    model = model_of(MODELS[name])
    x = normal(2, 4)
    prepared = library_of(model, tmp_path).prepared({"x": x})
    with pytest.raises(InputError, match="has not run yet"):
        prepared.outputs()
    kept = []
    for seed in range(3):
        x[...] = normal(2, 4, seed=seed) * (normal(2, 4, seed=seed) > 0)
        prepared.run()
        kept.append((prepared.outputs(), expected(model, {"x": x})))
    for found, wanted in kept:  # and they belong to the caller
        assert_same(found, wanted)


def test_an_output_of_fixed_size_is_written_to_the_same_memory_at_each_run(tmp_path: Path) -> None:
    library = library_of(model_of(MODELS["fixed and open"]), tmp_path)
    assert library._alone is not None
    bound = library._alone.prebound({"x": np.ascontiguousarray(normal(2, 4))})
    assert isinstance(bound, Prebound)
    places = set()
    for _ in range(3):
        bound.run()
        places.add((bound.outputs() or {})["r"].data_ptr())
    assert len(places) == 1


@pytest.mark.long
def test_what_is_no_tensor_of_numbers_is_not_bound_ahead(tmp_path: Path) -> None:
    model = model_of("net (string[2] x) => (string[2] y) { y = Identity (x) }")
    prepared = library_of(model, tmp_path).prepared({"x": np.array(["a", "b"], dtype=object)})
    prepared.run()
    assert list(prepared.outputs()[0]) == ["a", "b"]
