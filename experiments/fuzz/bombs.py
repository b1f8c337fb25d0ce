"""Small files that ask for everything: each is to be refused with a message, or read, in seconds and little memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

node = helper.make_node
Shape = Sequence[int]
HUGE = 2**40


def model(
    nodes: Sequence[NodeProto], inputs: dict[str, Shape], output: str, *, opset: int = 18,
    functions: Sequence[FunctionProto] = (), **constants: Any,
) -> ModelProto:  # fmt: skip
    """A model with inputs of float32 and one output of unknown shape."""
    graph = helper.make_graph(
        list(nodes),
        "bomb",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9, functions=functions)


def padded(pads: Sequence[int]) -> ModelProto:
    """A Pad beyond all bounds."""
    return model([node("Pad", ["x", "p"], ["y"])], {"x": [4, 4]}, "y", p=np.array(pads, np.int64))


def padded_window(
    kind: str, taps: int, pads: int, stride: int = 1, dilation: int = 1, size: int = 16, opset: int = 18
) -> ModelProto:
    """A convolution or pooling of one dimension."""
    extra: dict[str, Any] = {} if kind == "MaxPool" and dilation == 1 else {"dilations": [dilation]}
    inputs = ["x", "w"] if kind.startswith("Conv") else ["x"]
    made = node(kind, inputs, ["y"], kernel_shape=[taps], pads=[pads, pads], strides=[stride], **extra)
    weights: dict[str, Any] = {"w": np.ones((4, 4, taps), np.float32)} if kind.startswith("Conv") else {}
    return model([made], {"x": [1, 4, size]}, "y", opset=opset, **weights)


def repeated(op_type: str, count: int, **constants: Any) -> ModelProto:
    """One operator again and again, on a constant: `constants` are its further inputs."""
    names = [f"t{i}" for i in range(count + 1)]
    nodes = [node(op_type, [names[i], *constants], [names[i + 1]], name=f"n{i}") for i in range(count)]
    nodes.append(node("Add", ["x", names[-1]], ["y"]))
    return model(nodes, {"x": [1]}, "y", t0=np.ones(4096, np.float32), **constants)


def doubled(count: int) -> ModelProto:
    """Concat(t, t) of a constant, again and again."""
    nodes = [node("Concat", [f"t{i}", f"t{i}"], [f"t{i + 1}"], name=f"n{i}", axis=0) for i in range(count)]
    nodes.append(node("Add", ["x", f"t{count}"], ["y"]))
    return model(nodes, {"x": [1]}, "y", t0=np.ones(1024, np.float32))


def many_folds(count: int) -> ModelProto:
    """Many constants that are folded, each to a MiB, and all kept."""
    nodes = [node("ConstantOfShape", ["shape"], [f"c{i}"], name=f"n{i}") for i in range(count)]
    nodes += [node("Add", [f"a{i - 1}" if i else "x", f"c{i}"], [f"a{i}"], name=f"m{i}") for i in range(count)]
    return model(nodes, {"x": [1]}, f"a{count - 1}", shape=np.array([1 << 18], np.int64))


def nested_functions(depth: int, calls: int) -> ModelProto:
    """Each function calls the one before it several times."""
    opset = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    functions = [helper.make_function("own", "f0", ["a"], ["b"], [node("Relu", ["a"], ["b"])], opset)]
    for level in range(1, depth):
        names = ["a", *(f"t{i}" for i in range(calls - 1)), "b"]
        body = [node(f"f{level - 1}", [names[i]], [names[i + 1]], domain="own") for i in range(calls)]
        functions.append(helper.make_function("own", f"f{level}", ["a"], ["b"], body, opset))
    return model([node(f"f{depth - 1}", ["x"], ["y"], domain="own")], {"x": [2]}, "y", functions=functions)


def calling_itself() -> ModelProto:
    """A function that calls itself."""
    opset = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "f", ["a"], ["b"], [node("f", ["a"], ["b"], domain="own")], opset)
    return model([node("f", ["x"], ["y"], domain="own")], {"x": [2]}, "y", functions=[function])


def deep_branches(depth: int) -> ModelProto:
    """An If in an If in an If, all decided by the input."""
    value = helper.make_tensor_value_info
    inner = helper.make_graph([node("Relu", ["x"], ["b0"])], "g0", [], [value("b0", TensorProto.FLOAT, [2])])
    for level in range(1, depth):
        made = node("If", ["c"], [f"b{level}"], then_branch=inner, else_branch=inner if level < 8 else None)
        if level >= 8:
            plain = helper.make_graph([node("Exp", ["x"], ["p"])], "p", [], [value("p", TensorProto.FLOAT, [2])])
            made.attribute.append(helper.make_attribute("else_branch", plain))
        inner = helper.make_graph([made], f"g{level}", [], [value(f"b{level}", TensorProto.FLOAT, [2])])
    last = node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    return model([node("Cast", ["s"], ["c"], to=TensorProto.BOOL), last], {"x": [2], "s": [1]}, "y")


def texts(count: int) -> ModelProto:
    """A constant of very many empty texts."""
    made = model([node("Relu", ["x"], ["y"])], {"x": [2]}, "y")
    tensor = TensorProto(name="t", data_type=TensorProto.STRING, dims=[count])
    tensor.string_data.extend([b""] * count)
    made.graph.initializer.append(tensor)
    return made


def claimed(dims: Sequence[int]) -> ModelProto:
    """A weight that claims a size and holds nothing."""
    made = model([node("Add", ["x", "w"], ["y"])], {"x": [1]}, "y")
    made.graph.initializer.append(TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims))
    return made


def einsum(equation: str, shapes: Sequence[Shape]) -> ModelProto:
    """One Einsum of inputs."""
    names = [f"x{i}" for i in range(len(shapes))]
    return model([node("Einsum", names, ["y"], equation=equation)], dict(zip(names, shapes, strict=True)), "y")


def resized(opset: int, scale: float) -> ModelProto:
    """Upsample, or Resize."""
    scales = np.array([1, 1, scale, scale], np.float32)
    inputs = ["x", "s"] if opset < 10 else ["x", "", "s"]
    return model(
        [node("Upsample" if opset < 10 else "Resize", inputs, ["y"])], {"x": [1, 1, 8, 8]}, "y", opset=opset, s=scales
    )


def ranges(limit: float) -> ModelProto:
    """A Range of constants."""
    numbers: dict[str, Any] = {"start": np.float32(0), "limit": np.float32(limit), "delta": np.float32(1e-3)}
    nodes = [
        node("Range", [*numbers], ["r"]),
        node("ReduceSum", ["r"], ["t"], keepdims=0),
        node("Add", ["x", "t"], ["y"]),
    ]
    return model(nodes, {"x": [1]}, "y", **numbers)


def one_hot(depth: int) -> ModelProto:
    """OneHot of constants."""
    constants: dict[str, Any] = {"i": np.arange(4096), "d": np.int64(depth), "v": np.array([0, 1], np.float32)}
    nodes = [node("OneHot", [*constants], ["o"]), node("Add", ["x", "o"], ["y"])]
    return model(nodes, {"x": [1]}, "y", **constants)


def shaped(op_type: str, dims: Sequence[int]) -> ModelProto:
    """ConstantOfShape, or Expand and Tile of a constant."""
    constants: dict[str, Any] = {} if op_type == "ConstantOfShape" else {"t": np.ones((1,) * len(dims), np.float32)}
    constants["d"] = np.array(dims, np.int64)
    return model([node(op_type, [*constants], ["o"]), node("Add", ["x", "o"], ["y"])], {"x": [1]}, "y", **constants)


def long_signal(elements: int) -> ModelProto:
    """A convolution over a signal that a tensor just holds."""
    made = node("Conv", ["x", "w"], ["y"], kernel_shape=[3], pads=[1, 1])
    return model([made], {"x": [1, 1, elements]}, "y", w=np.ones((1, 1, 3), np.float32))


def many_at_once(count: int) -> ModelProto:
    """Results of a GB each, which are all needed at the end."""
    nodes = [
        node("Relu" if i % 2 else "Exp", [f"t{i - 1}" if i else "x"], [f"t{i}"], name=f"n{i}") for i in range(count)
    ]
    nodes += [node("Add", [f"s{i - 1}" if i > 1 else "t0", f"t{i}"], [f"s{i}"], name=f"m{i}") for i in range(1, count)]
    return model(nodes, {"x": [1 << 28]}, f"s{count - 1}")


def many_times(op_type: str, count: int) -> ModelProto:
    """One operator that takes an input very many times."""
    extra: dict[str, Any] = {"axis": 0} if op_type == "Concat" else {}
    return model([node(op_type, ["x"] * count, ["y"], **extra)], {"x": [4, 4]}, "y")


def volume_window(taps: int, size: int) -> ModelProto:
    """A convolution of three dimensions, padded all around."""
    made = node("Conv", ["x", "w"], ["y"], kernel_shape=[taps] * 3, pads=[taps // 2] * 6)
    return model([made], {"x": [1, 4, size, size, size]}, "y", w=np.ones((4, 4, taps, taps, taps), np.float32))


def many_outputs(count: int) -> ModelProto:
    """A graph that returns very many constants."""
    made = model([node("Relu", ["x"], ["y"])], {"x": [2]}, "y")
    for i in range(count):
        constant = node("Constant", [], [f"c{i}"], name=f"n{i}", value_float=float(i))
        assert constant.attribute[0].type == AttributeProto.FLOAT
        made.graph.node.append(constant)
        made.graph.output.append(helper.make_tensor_value_info(f"c{i}", TensorProto.FLOAT, []))
    return made


def beside_a_rest(made: ModelProto) -> ModelProto:
    """A bomb, and beside it an operator that only ONNX Runtime runs."""
    made.graph.input.append(helper.make_tensor_value_info("beside", TensorProto.FLOAT, [2, 3]))
    made.graph.node.append(node("NonZero", ["beside"], ["found"]))
    made.graph.output.append(helper.make_tensor_value_info("found", TensorProto.INT64, None))
    return made


def by_data(op_type: str) -> ModelProto:
    """Sizes that depend on data and grow without bounds: only ONNX Runtime could run it."""
    nodes = [node("NonZero", ["x"], ["n"]), node("Shape", ["n"], ["s"]), node("ReduceMax", ["s"], ["m"], keepdims=1)]
    inputs = ["d"] if op_type == "ConstantOfShape" else ["x", "d"]
    nodes += [node("Mul", ["m", "huge"], ["d"]), node(op_type, inputs, ["y"])]
    return model(nodes, {"x": [4]}, "y", huge=np.array([HUGE]))


BOMBS: dict[str, Callable[[], ModelProto]] = {
    "a Pad of 2^40": lambda: padded([0, 0, HUGE, 0]),
    "a Pad of 2^62, twice": lambda: padded([2**62, 0, 2**62, 0]),
    "padding of a convolution": lambda: padded_window("Conv", 3, 10**8),
    "padding of a convolution, far strides": lambda: padded_window("Conv", 3, 10**9, stride=10**8),
    "padding of a convolution, 10,000": lambda: padded_window("Conv", 4_000, 10_000),
    "dilation of a convolution": lambda: padded_window("Conv", 3, 10**8, dilation=10**8),
    "padding of a maximum": lambda: padded_window("MaxPool", 10**6, 10**6 - 1, size=2 * 10**6),
    "taps of a maximum": lambda: padded_window("MaxPool", 10**7, 0, size=2 * 10**7),
    "taps of an average": lambda: padded_window("AveragePool", 10**5, 5 * 10**4, size=10**5, opset=19),
    "taps beyond 32 bits": lambda: padded_window("MaxPool", 2**40, 0),
    "dilation beyond 32 bits": lambda: padded_window("MaxPool", 3, 0, dilation=2**40),
    "strides of a transposed convolution": lambda: padded_window("ConvTranspose", 3, 0, stride=10**6),
    "strides of a transposed convolution, beyond": lambda: padded_window("ConvTranspose", 3, 0, stride=10**9),
    "taps of a transposed convolution": lambda: padded_window("ConvTranspose", 2_000, 0, stride=7),
    "Tile by 8 again and again": lambda: repeated("Tile", 12, by=np.array([8], np.int64)),
    "Tile by 2^40": lambda: shaped("Tile", [HUGE]),
    "Tile by 2^32 and 2^32": lambda: shaped("Tile", [2**32, 2**32]),
    "Concat of itself": lambda: doubled(30),
    "20,000 foldings": lambda: many_folds(2_000),
    "Range": lambda: ranges(1e12),
    "Range to infinity": lambda: ranges(float("inf")),
    "OneHot": lambda: one_hot(2**40),
    "ConstantOfShape": lambda: shaped("ConstantOfShape", [2**20, 2**20]),
    "ConstantOfShape of 2^63": lambda: shaped("ConstantOfShape", [2**62, 2]),
    "Expand": lambda: shaped("Expand", [2**20, 2**20]),
    "Upsample": lambda: resized(9, 1e6),
    "Resize": lambda: resized(13, 1e9),
    "Resize by infinity": lambda: resized(13, float("inf")),
    "functions, 2^40 operators": lambda: nested_functions(41, 2),
    "functions, 10^9 operators": lambda: nested_functions(10, 10),
    "functions, 3,000 deep": lambda: nested_functions(3_000, 1),
    "a function that calls itself": calling_itself,
    "branches in branches": lambda: deep_branches(12),
    "branches, deep": lambda: deep_branches(30),
    "texts": lambda: texts(3_000_000),
    "a weight that is not there": lambda: claimed([2**20, 2**20]),
    "a weight that is not there, 2^62": lambda: claimed([2**31, 2**31]),
    "a weight of 10,000 dimensions": lambda: claimed([1] * 10_000),
    "Einsum of 26 letters": lambda: einsum("abcdefghijklm,nopqrstuvwxyz->", [[2] * 13, [2] * 13]),
    "Einsum, an outer product": lambda: einsum("abc,def,ghi->abcdefghi", [[64] * 3] * 3),
    "Einsum of 20 operands": lambda: einsum(",".join("abcdefghijklmnopqrst") + "->t", [[50]] * 20),
    "an input of 2^60": lambda: model([node("Relu", ["x"], ["y"])], {"x": [2**30, 2**30]}, "y"),
    "a long signal": lambda: long_signal(2**28),
    "a row for Softmax": lambda: model([node("Softmax", ["x"], ["y"])], {"x": [1, 2**28]}, "y"),
    "results at once": lambda: many_at_once(40),
    "20,000 constants returned": lambda: many_outputs(20_000),
    "Concat of 3,000 parts": lambda: many_times("Concat", 3_000),
    "Sum of 3,000 terms": lambda: many_times("Sum", 3_000),
    "taps of a volume": lambda: volume_window(31, 64),
    "60 dimensions": lambda: model([node("Transpose", ["x"], ["y"])], {"x": [1] * 58 + [2, 2]}, "y"),
    "a wide product": lambda: model(
        [node("MatMul", ["x", "y"], ["z"])], {"x": [2**14, 2**14], "y": [2**14, 2**14]}, "z"
    ),
}  # fmt: skip
