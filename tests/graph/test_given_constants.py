"""Inputs that are given a value: constants of the model from then on, and refused where they do not fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from autofuse.device.target import Target
from autofuse.errors import InputError
from autofuse.graph.loading.given.constants import model_sha256
from autofuse.graph.loading.load import load
from autofuse.job.settings import JobSettings
from autofuse.kernels.lowering.coverage import require_kernels
from autofuse.measure.children.messages import decode, encode, known
from autofuse.measure.networks.requests import LoadModel
from autofuse.values.arguments import Constant, given_inputs, parse_constants

Save = Callable[..., Path]
SUM = "f (float[2,3,4] x, int64[n] axes) => (y) { y = ReduceSum <keepdims=0> (x, axes) }"


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """A file of a model in ONNX's text format."""

    def made(text: str, ir: int = 8, opset: int = 18) -> Path:
        path = tmp_path / "model.onnx"
        onnx.save(parser.parse_model(f'<ir_version: {ir}, opset_import: ["": {opset}]> {text}'), path)
        return path

    return made


def test_a_value_takes_the_input_out_of_the_model(save: Save) -> None:
    graph = load(save(SUM), given_inputs(None, {"axes": [0, 2]}))
    assert graph.inputs == ("x",)
    assert graph.tensors["y"].shape == (3,)
    other = load(save(SUM), given_inputs(None, {"axes": [1]}))
    assert other.tensors["y"].shape == (2, 4)


@pytest.mark.parametrize("ir", [3, 8])
def test_a_value_takes_the_place_of_a_default(save: Save, ir: int) -> None:
    model = onnx.load(save(SUM, ir=ir))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0]), "axes"))
    onnx.save(model, save(SUM))
    path = save(SUM)
    onnx.save(model, path)
    assert load(path).tensors["y"].shape == (3, 4)
    assert load(path, given_inputs(None, {"axes": "[0,1]"})).tensors["y"].shape == (4,)


def test_a_named_size_of_a_constant_is_known_for_the_other_inputs(save: Save) -> None:
    path = save("f (float[n,3] x, float[n,3] shift) => (y) { y = Add (x, shift) }")
    graph = load(path, given_inputs(None, {"shift": np.ones((5, 3), np.float32)}))
    assert graph.tensors["x"].shape == (5, 3)


@pytest.mark.parametrize(
    ("value", "shape", "numbers"),
    [
        ("[0,2]", (2,), (0, 2)),
        ("3", (), (3,)),
        ("true", (), (True,)),
        ("[[1, 2.5], [3, 4]]", (2, 2), (1, 2.5, 3, 4)),
        ("[]", (0,), ()),
        ("[[],[]]", (2, 0), ()),
        ([1, 2], (2,), (1, 2)),
        (7, (), (7,)),
    ],
)
def test_numbers_are_taken_as_they_are_written(value: Any, shape: tuple[int, ...], numbers: tuple[Any, ...]) -> None:
    found = given_inputs(None, {"a": value})["a"]
    assert found == Constant(shape, numbers)
    assert [type(number) for number in found.numbers] == [type(number) for number in numbers]
    assert given_inputs(None, {"a": found.text})["a"] == found or 0 in shape


def test_an_array_and_a_file_keep_their_type(tmp_path: Path) -> None:
    np.save(tmp_path / "a=b.npy", np.array([1.5, math.inf], np.float16))
    texts = parse_constants([f"x=@{tmp_path}/a=b.npy", "y:0=2"])
    assert texts == {"x": f"@{tmp_path}/a=b.npy", "y:0": "2"}
    found = given_inputs({"z": (1, 2)}, texts)
    assert found == {"z": (1, 2), "x": Constant((2,), (1.5, math.inf), "float16"), "y:0": Constant((), (2,))}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("[0", "allowed: a number, true, false, lists of these such as [0,2], or @FILE.npy"),
        ('"a"', "allowed: a number"),
        ("null", "allowed: a number"),
        ("[[1,2],[3]]", "allowed: rows of one length"),
        ("@nowhere.npy", "nowhere.npy: not a readable .npy file: no such file"),
        ({"a": 1}, "allowed: a number"),
        (np.array(["a"]), "allowed: a number"),
        (np.array([1j]), "allowed: a number"),
    ],
)
def test_what_is_no_value_is_refused(value: Any, words: str) -> None:
    with pytest.raises(InputError, match="--constant x") as caught:
        given_inputs(None, {"x": value})
    assert words in str(caught.value)


def test_an_input_has_a_shape_or_a_value() -> None:
    with pytest.raises(InputError, match="--constant x: the input is given a shape, too"):
        given_inputs({"x": (1,)}, {"x": 1})
    for texts in (["x"], ["=1"], ["x="]):
        with pytest.raises(InputError, match=r"allowed: NAME=VALUE such as axes=\[0,2\] or axes=@axes.npy"):
            parse_constants(texts)
    with pytest.raises(InputError, match="input 'x' is given twice"):
        parse_constants(["x=1", "x=2"])


@pytest.mark.parametrize(
    ("constants", "words"),
    [
        ({"axis": 1}, "--constant axis: the model has no such input; its inputs: x, axes, small, flag, rate, words"),
        ({"axes": [[0]]}, "--constant axes: a value of shape [1,1] is given, the input takes [2]"),
        ({"axes": [0]}, "a value of shape [1] is given, the input takes [2]"),
        ({"axes": 0}, "a value of shape [] is given, the input takes [2]"),
        ({"axes": [0.5, 1]}, "got 0.5, the input takes integers (int64)"),
        ({"axes": [True, 1.0]}, "got true, the input takes integers (int64)"),
        ({"axes": np.array([0, 1], np.int32)}, "the array is of int32, the input takes int64; convert the array"),
        ({"axes": [0, 1 << 70]}, "is no int64"),
        ({"small": 128}, "128 is no int8 (-128 to 127)"),
        ({"flag": 1}, "got 1, the input takes true or false (bool)"),
        ({"rate": 1e40}, "1e+40 is too large for float32"),
        ({"words": "[1]"}, "the input takes tensors of string; only tensors of numbers can be given"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(save: Save, constants: dict[str, Any], words: str) -> None:
    text = "(float[2] x, int64[2] axes, int8 small, bool flag, float rate, string[1] words) => (y) { y = Relu (x) }"
    with pytest.raises(InputError) as caught:
        load(save(f"f {text}"), given_inputs(None, constants))
    assert words in str(caught.value)


def test_a_number_alone_fits_an_input_of_one_element(save: Save) -> None:
    path = save("f (float[2,3] x, int64[1] k) => (v, i) { v, i = TopK (x, k) }")
    for constants in ({"k": 2}, {"k": [2]}, {"k": "2"}, {"k": np.array([2])}):
        assert load(path, given_inputs(None, constants)).tensors["v"].shape == (2, 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            SUM,
            "'axes' (int64[?]) is an input that decides what is computed: give its value, e.g. --constant 'axes=[0]'",
        ),
        (
            "f (float[2,3] x, int64 k) => (v, i) { one = Constant <value_ints=[0]> () n = Unsqueeze (k, one) "
            "v, i = TopK (x, n) }",
            "'k' (int64[]) is an input that decides what is computed: give its value, e.g. --constant k=1",
        ),
        (
            "f (float[2,3] x, int64[2] begin, int64[2] end) => (y) { y = Slice (x, begin, end) }",
            "'begin' (int64[2]), 'end' (int64[2]) are inputs that decide what is computed: give its value, e.g. "
            "--constant 'begin=[0,0]' --constant 'end=[1,1]'",
        ),
        (
            "f (float[2,3] x, bool which) => (y) { y = If (which) <then_branch = t () => (a) { a = Relu (x) }, "
            "else_branch = e () => (b) { b = Tanh (x) }> }",
            "--constant which=true",
        ),
    ],
)
def test_a_refusal_names_the_input_that_needs_a_value(save: Save, text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        require_kernels(load(save(text)))
    assert words in str(caught.value)


def test_what_depends_on_data_is_no_missing_constant(save: Save) -> None:
    path = save("f (float[2,3] x) => (y) { s = NonZero (x) y = Transpose (s) }")
    with pytest.raises(InputError) as caught:
        load(path)
    assert "--constant" not in str(caught.value)


def test_a_model_with_another_constant_is_another_model(save: Save) -> None:
    content = save(SUM).read_bytes()
    values: list[Any] = [[0, 2], "[0, 2]", "[0.0,2]", np.array([0, 2]), [0, 1], [[0, 2]]]
    found = [model_sha256(content, given_inputs(None, {"axes": value})) for value in values]
    assert len(set(found)) == 3
    assert len(set(found[:4])) == 1
    assert model_sha256(content, {"x": (1, 2)}) == model_sha256(content, None) not in found


def test_constants_cross_pipes_and_stand_in_the_settings_of_a_job(tmp_path: Path) -> None:
    given = given_inputs({"x": (1, 2)}, {"a": [True, False], "b": np.array([-math.inf, 0.1]), "c": "[[1, 2.0]]"})
    request = LoadModel(tmp_path, given, _target(), 1)
    assert decode(encode(request), known([LoadModel])) == request
    settings = JobSettings(None, given=given)
    assert JobSettings.from_json(settings.to_json()) == settings


def _target() -> Target:
    return Target("znver4", 16, 32, 2, 32768, 1 << 20)
