"""Models that cannot be used: each one error that names the file and what to change."""

from __future__ import annotations

import contextlib
import os

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper

from autofuse.errors import InputError
from autofuse.graph.loading.load import from_model, load

RELU = "f (float[2] x) => (float[2] y) { y = Relu(x) }"


@pytest.fixture
def path(tmp_path):
    """Where the bad model goes."""
    return tmp_path / "bad.onnx"


def refusal(path, shapes=None) -> str:
    with pytest.raises(InputError) as caught:
        load(path, shapes)
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text
    return text


def test_a_missing_file(path):
    assert "No such file" in refusal(path)


def test_a_folder(path):
    path.mkdir()
    assert "not a file" in refusal(path)


def test_an_empty_file(path):
    path.write_bytes(b"")
    assert "not an ONNX model" in refusal(path)


def test_a_text_file(path):
    path.write_text("hello, this is no model at all\n" * 10)
    assert "not a readable ONNX file" in refusal(path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_a_truncated_file(path, model, share):
    weights = {"w": np.arange(1000, dtype=np.float32)}
    data = model("f (float[1000] x) => (float[1000] y) { y = Add(x, w) }", weights=weights).SerializeToString()
    path.write_bytes(data[: int(len(data) * share)])
    refusal(path)


def test_every_truncation_of_a_small_model_is_refused_or_loads(path, model):
    data = model("f (float[2] x) => (float[2] y) { a = Exp(x) y = Relu(a) }").SerializeToString()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(InputError):
            load(path)


def test_a_file_over_two_gigabytes(path):
    with path.open("wb") as stream:
        stream.truncate(2**31 + 10)  # sparse: takes no disk
    assert "2 GB" in refusal(path)


def external(path, location, data=b"\0" * 8, **extra):
    """A model whose weight of two floats claims to lie in `location`."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **extra}.items():
        tensor.external_data.add(key=key, value=str(value))
    values = [helper.make_tensor_value_info(name, 1, [2]) for name in ("x", "y")]
    body = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", values[:1], values[1:], [tensor])
    onnx.save_model(helper.make_model(body, opset_imports=[helper.make_opsetid("", 18)]), path)
    return data


def test_external_data_at_an_absolute_path(path, tmp_path):
    (tmp_path / "w.bin").write_bytes(b"\0" * 8)
    external(path, str(tmp_path / "w.bin"))
    assert "absolute" in refusal(path)


@pytest.mark.parametrize(
    "location", ["../w.bin", "a/../../w.bin", "..\\w.bin", "C:\\w.bin", "\\\\host\\w.bin", "C:w.bin"]
)
def test_external_data_that_leaves_the_folder(tmp_path, location):
    folder = tmp_path / "net"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(b"\0" * 8)
    external(folder / "bad.onnx", location)
    text = refusal(folder / "bad.onnx")
    assert "'..'" in text or "absolute" in text


def test_external_data_behind_a_symbolic_link_that_leaves_the_folder(tmp_path):
    folder = tmp_path / "net"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(b"\0" * 8)
    (folder / "w.bin").symlink_to(tmp_path / "secret")
    external(folder / "bad.onnx", "w.bin")
    assert "symbolic link" in refusal(folder / "bad.onnx")


def test_external_data_behind_a_link_of_a_folder(tmp_path):
    folder = tmp_path / "net"
    folder.mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "w.bin").write_bytes(b"\0" * 8)
    (folder / "sub").symlink_to(tmp_path / "other")
    external(folder / "bad.onnx", "sub/w.bin")
    assert "symbolic link" in refusal(folder / "bad.onnx")


def test_a_link_that_stays_inside_the_folder_is_fine(tmp_path):
    (tmp_path / "real.bin").write_bytes(np.array([1, 2], np.float32).tobytes())
    (tmp_path / "w.bin").symlink_to("real.bin")
    external(tmp_path / "good.onnx", "w.bin")
    assert load(tmp_path / "good.onnx").constants["w"].tolist() == [1, 2]


@pytest.mark.parametrize("location", ["", "missing.bin", "with\0zero"])
def test_external_data_that_is_not_there(path, location):
    external(path, location)
    text = refusal(path)
    assert "missing" in text or "no file" in text


def test_external_data_that_is_no_regular_file(path, tmp_path):
    os.mkfifo(tmp_path / "w.bin")
    external(path, "w.bin")
    assert "missing" in refusal(path)


@pytest.mark.parametrize("extra", [{"offset": 4}, {"length": 4}, {"offset": -4}, {"length": "many"}, {"offset": 2**62}])
def test_external_data_that_does_not_fit(path, tmp_path, extra):
    (tmp_path / "w.bin").write_bytes(external(path, "w.bin", **extra))
    refusal(path)


def test_external_data_of_an_absurd_size(path, tmp_path):
    (tmp_path / "w.bin").write_bytes(b"\0" * 8)
    external(path, "w.bin")
    proto = onnx.load(path, load_external_data=False)
    proto.graph.initializer[0].dims[:] = [2**20, 2**20]
    path.write_bytes(proto.SerializeToString())
    assert "2 GB" in refusal(path)


def write(path, proto):
    path.write_bytes(proto.SerializeToString())
    return path


def test_a_cycle_is_named(path, model):
    proto = model("f (float[2] x) => (float[2] y) { a = Add(x, c) b = Exp(a) c = Neg(b) y = Relu(c) }")
    for node, name in zip(proto.graph.node, ("add", "exp", "neg", "relu"), strict=True):
        node.name = name
    text = refusal(write(path, proto))
    assert "cycle" in text
    assert all(f"'{name}'" in text for name in ("add", "exp", "neg"))
    assert "'relu'" not in text


def test_an_unknown_operator(path, model):
    proto = model(RELU)
    proto.graph.node[0].op_type = "Frobnicate"
    assert "unknown operator 'Frobnicate' in opset 18" in refusal(write(path, proto))


def test_an_operator_of_another_domain(path, model):
    proto = model(RELU)
    proto.graph.node[0].domain = "com.acme"
    proto.opset_import.append(helper.make_opsetid("com.acme", 1))
    assert "domain 'com.acme'" in refusal(write(path, proto))


def test_an_operator_newer_than_the_opset(path, model):
    proto = model("f (float[2] x) => (float[2] y) { y = Relu(x) }", 13)
    proto.graph.node[0].op_type = "Gelu"
    assert "unknown operator 'Gelu' in opset 13" in refusal(write(path, proto))


def test_a_symbolic_shape_names_the_inputs_and_the_flag(path, model):
    proto = model(
        "f (float[batch,3,224,224] image, float[2] fixed, int64[batch,n] ids) => (float[2] y) { y = Relu(fixed) }"
    )
    text = refusal(write(path, proto))
    assert "'image' (batch, 3, 224, 224)" in text
    assert "'ids' (batch, n)" in text
    assert "--shape image=1,3,224,224 --shape ids=1,1" in text
    assert "'fixed'" not in text


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"z": (1, 2)}, "no such input; its inputs: x"),
        ({"x": (1, 2, 3)}, "has 2 dimensions (n, 3), 3 are given"),
        ({"x": (1, 4)}, "fixes dimension 1 to 3"),
        ({"x": (0, 3)}, "at least 1"),
        ({"x": (-1, 3)}, "at least 1"),
    ],
)
def test_a_wrong_shape_argument(path, model, shapes, words):
    proto = model("f (float[n,3] x) => (float[n,3] y) { y = Relu(x) }")
    assert words in refusal(write(path, proto), shapes)


def test_two_shapes_that_contradict_each_other(path, model):
    proto = model("f (float[n] x, float[n] z) => (float[n] y) { y = Add(x, z) }")
    assert "another --shape sets to 2" in refusal(write(path, proto), {"x": (2,), "z": (3,)})


def test_an_input_without_any_shape(path, model):
    proto = model(RELU)
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    assert "--shape x=" in refusal(write(path, proto))
    assert load(path, {"x": (7,)}).tensors["y"].shape == (7,)


@pytest.mark.parametrize("kind", ["string", "float8e4m3fn", "complex64"])
def test_an_input_of_an_unsupported_type(path, model, kind):
    proto = model(f"f ({kind}[2] x) => ({kind}[2] y) {{ y = Identity(x) }}", 19)
    assert "'x' has element type" in refusal(write(path, proto))


def test_a_weight_of_an_unsupported_type(path, model):
    proto = model("f (float[2] x) => (float[2] y) { b = Cast<to=1>(w) y = Add(x, b) }", 19)
    proto.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT8E4M3FN, [2], [1.0, 2.0]))
    assert "'w' has element type float8_e4m3fn" in refusal(write(path, proto))


def test_a_result_of_an_unsupported_type(path, model):
    proto = model("f (float[2] x) => (float[2] y) { b = Cast<to=17>(x) y = Cast<to=1>(b) }", 19)
    assert "element type float8_e4m3fn" in refusal(write(path, proto))


def test_a_sequence_input(path):
    value = helper.make_tensor_sequence_value_info("x", 1, None)
    out = helper.make_tensor_value_info("y", 1, None)
    node = helper.make_node("ConcatFromSequence", ["x"], ["y"], axis=0)
    proto = helper.make_model(
        helper.make_graph([node], "g", [value], [out]), opset_imports=[helper.make_opsetid("", 18)]
    )
    assert "no tensor" in refusal(write(path, proto))


def test_a_shape_that_depends_on_data(path, model):
    proto = model("f (float[4] x) => (int64[1,n] y) { y = NonZero(x) }")
    text = refusal(write(path, proto))
    assert "NonZero_0" in text
    assert "depends on data" in text


def test_shapes_that_do_not_fit_say_why(path, model):
    proto = model("f (float[2,3] x, float[4,5] z) => (float[2,5] y) { y = MatMul(x, z) }")
    text = refusal(write(path, proto))
    assert "MatMul_0" in text
    assert "Incompatible dimensions" in text


def test_an_empty_result(path, model):
    proto = model(
        """f (float[4] x) => (float[n] y) { s = Constant<value_ints=[3]>() e = Constant<value_ints=[2]>()
        y = Slice(x, s, e) }"""
    )
    assert "is empty (shape 0)" in refusal(write(path, proto))


def test_a_tensor_that_nothing_writes(path, model):
    assert "reads 'ghost'" in refusal(write(path, model("f (float[2] x) => (float[2] y) { y = Add(x, ghost) }")))


def test_an_output_that_nothing_writes(path, model):
    assert "nothing writes the output 'y'" in refusal(
        write(path, model("f (float[2] x) => (float[2] y) { z = Relu(x) }"))
    )


def test_a_tensor_written_twice(path, model):
    text = refusal(write(path, model("f (float[2] x) => (float[2] y) { y = Relu(x) y = Exp(x) }")))
    assert "'y' is written twice" in text


def test_an_output_that_is_an_input(path, model):
    assert "is an input" in refusal(write(path, model("f (float[2] x) => (float[2] x, float[2] y) { y = Relu(x) }")))


def test_a_model_without_outputs(path, model):
    proto = model(RELU)
    del proto.graph.output[:]
    assert "no outputs" in refusal(write(path, proto))


def test_a_wrong_attribute(path, model):
    proto = model("f (float[2,2] x) => (float[2,2] y) { y = Softmax<axis=1>(x) }")
    proto.graph.node[0].attribute[0].name = "axes"
    assert "Unrecognized attribute: axes" in refusal(write(path, proto))


def test_an_opset_from_the_future(path, model):
    proto = model(RELU)
    proto.opset_import[0].version = 999
    assert "opset 999 is unknown" in refusal(write(path, proto))


def test_an_opset_from_the_past(path, model):
    proto = model(RELU)
    proto.opset_import[0].version = 6
    assert "opset 6 is too old" in refusal(write(path, proto))


def test_a_model_without_an_opset(path, model):
    proto = model(RELU)
    del proto.opset_import[:]
    assert "no ONNX opset" in refusal(write(path, proto))


def test_a_damaged_weight(path, model):
    proto = model("f (float[2] x) => (float[2] y) { y = Add(x, w) }", weights={"w": np.ones(2, np.float32)})
    proto.graph.initializer[0].raw_data = b"abc"
    assert "'w' is damaged" in refusal(write(path, proto))


def test_random_damage_never_raises_anything_but_an_input_error(model):
    weights = {"w": np.ones((4, 3, 3, 3), np.float32)}
    text = """f (float[1,3,8,8] x) => (float[1,4] y) { a = Conv<pads=[1,1,1,1]>(x, w) b = Relu(a)
        c = GlobalAveragePool(b) y = Flatten(c) }"""
    data = bytearray(model(text, weights=weights).SerializeToString())
    head = data.index(b"\x00\x00\x80?")  # damage the description, not only the weights
    generator = np.random.default_rng(0)
    loaded = 0
    for _ in range(400):
        broken = bytearray(data)
        for _ in range(int(generator.integers(1, 4))):
            place = int(generator.integers(0, len(data)))
            place = place if generator.random() < 0.2 else place % head
            broken[place] = int(generator.integers(0, 256))
        proto = onnx.ModelProto()
        try:
            proto.ParseFromString(bytes(broken))
        except DecodeError:
            continue
        with contextlib.suppress(InputError):
            from_model(proto, "damaged")
            loaded += 1
    assert 0 < loaded < 400
