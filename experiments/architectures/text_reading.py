"""A detector and recognisers of text, as PaddleOCR has them and paddle2onnx writes them (opset 11).

Shapes are computed in the graph (Shape, Slice, Concat), hard swishes and layer norms stand in primitive operators. The
detector is DB over a small MobileNetV3 (Liao et al., 2020), with a pyramid of nearest neighbours and transposed
convolutions; the recognisers end in two bidirectional LSTMs (CRNN) or in two layers of attention (SVTR), then in the
softmax of CTC.
"""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, helper

from experiments.architectures.draft import Draft, int64

OPSET = 11
# kernel, hidden channels, channels, squeezed, hard swish in place of ReLU, stride
DETECTOR = (
    (3, 8, 8, True, False, 1), (3, 32, 16, False, False, 2), (3, 40, 16, False, False, 1), (5, 40, 24, True, False, 2),
    (5, 64, 24, True, False, 1), (3, 120, 40, False, True, 2), (3, 104, 40, False, True, 1),
    (3, 240, 56, True, True, 1), (5, 336, 80, True, True, 2), (5, 480, 80, True, True, 1),
)  # fmt: skip
LEVELS = (2, 4, 7, 9)
"""Blocks whose results the pyramid reads."""
# channels, strides of rows and columns, kernel, squeezed
RECOGNISER = (
    (32, (1, 1), 3, False), (64, (1, 1), 3, False), (64, (1, 1), 3, False), (128, (2, 1), 3, False),
    (128, (1, 1), 3, False), (256, (2, 1), 3, False), (256, (1, 1), 5, False), (256, (1, 1), 5, False),
    (256, (2, 1), 5, True), (256, (1, 2), 5, True),
)  # fmt: skip


def detector(rows: int | str = 320, columns: int | str = 320, seed: int = 0) -> ModelProto:
    """The probability of text at each pixel; a name in place of a size leaves it open."""
    draft = Draft("text_detector", seed)
    x = _swish(draft, "stem", _unit(draft, "stem", "image", (8, 3, 3, 3), (2, 2)))
    channels, levels = 8, []
    for number, (kernel, hidden, out, squeezed, swish, stride) in enumerate(DETECTOR):
        name = f"block{number}"
        bent = _swish if swish else _relu
        y = bent(draft, f"{name}.wide", _unit(draft, f"{name}.wide", x, (hidden, channels, 1, 1)))
        y = bent(
            draft,
            f"{name}.deep",
            _unit(draft, f"{name}.deep", y, (hidden, 1, kernel, kernel), (stride, stride), hidden),
        )
        y = _squeezed(draft, f"{name}.se", y, hidden) if squeezed else y
        y = _unit(draft, f"{name}.narrow", y, (out, hidden, 1, 1))
        x = draft.node("Add", f"{name}.add", [x, y]) if stride == 1 and channels == out else y
        channels = out
        if number in LEVELS:
            levels.append((x, channels))
    x = _pyramid(draft, levels, 96)
    x = _relu(draft, "head0", _unit(draft, "head0", x, (24, 96, 3, 3)))
    x = _relu(draft, "head1", draft.normalization("head1.bn", _grown(draft, "head1", x, 24, 24), 24))
    draft.node("Sigmoid", "probability", [_grown(draft, "head2", x, 24, 1, gain=0.02)])
    return draft.model({"image": [1, 3, rows, columns]}, "map", [1, 1, rows, columns], opset=OPSET)  # type: ignore[list-item]


def recogniser(columns: int | str = 320, sequence: str = "attention", classes: int = 6625, seed: int = 0) -> ModelProto:
    """The probabilities of characters along a line of text; `sequence`: "attention" or "lstm"."""
    draft = Draft("text_recogniser" if sequence == "attention" else f"text_recogniser_{sequence}", seed)
    x, channels = _swish(draft, "stem", _unit(draft, "stem", "image", (16, 3, 3, 3), (2, 2))), 16
    for number, (out, strides, kernel, squeezed) in enumerate(RECOGNISER):
        name = f"block{number}"
        shape = (channels, 1, kernel, kernel)
        x = _swish(draft, f"{name}.deep", _unit(draft, f"{name}.deep", x, shape, strides, channels))
        x = _squeezed(draft, f"{name}.se", x, channels) if squeezed else x
        x, channels = _swish(draft, f"{name}.wide", _unit(draft, f"{name}.wide", x, (out, channels, 1, 1))), out
    x = draft.node("AveragePool", "pool", [x], kernel_shape=[2, 2], strides=[2, 2])
    x, width = _attended(draft, x, channels) if sequence == "attention" else _read_on(draft, x, channels)
    weight = draft.constant("classes.weight", draft.normal((width, classes), width**-0.5))
    bias = draft.constant("classes.bias", draft.normal((classes,), 0.1))
    x = draft.node("Add", "classes.add", [draft.node("MatMul", "classes", [x, weight]), bias])
    draft.node("Softmax", "softmax", [x], axis=2)
    steps = columns // 8 if isinstance(columns, int) else "steps"
    return draft.model({"image": [1, 3, 48, columns]}, "characters", [1, steps, classes], opset=OPSET)  # type: ignore[list-item]


def _unit(
    draft: Draft,
    name: str,
    x: str,
    shape: tuple[int, int, int, int],
    strides: tuple[int, int] = (1, 1),
    groups: int = 1,
) -> str:
    """Convolution and BatchNormalization."""
    weight = draft.constant(f"{name}.weight", draft.normal(shape, (2 / np.prod(shape[1:])) ** 0.5))
    pads = [shape[2] // 2, shape[3] // 2] * 2
    y = draft.node(
        "Conv",
        f"{name}.conv",
        [x, weight],
        kernel_shape=list(shape[2:]),
        strides=list(strides),
        pads=pads,
        group=groups,
    )
    return draft.normalization(f"{name}.bn", y, shape[0])


def _relu(draft: Draft, name: str, x: str) -> str:
    return draft.node("Relu", f"{name}.relu", [x])


def _swish(draft: Draft, name: str, x: str) -> str:
    """x * Clip(x + 3, 0, 6) / 6."""
    three, zero, six = (draft.scalar(f"{name}.{value}", value) for value in (3, 0, 6))
    clipped = draft.node("Clip", f"{name}.clip", [draft.node("Add", f"{name}.shift", [x, three]), zero, six])
    return draft.node("Div", f"{name}.div", [draft.node("Mul", f"{name}.mul", [x, clipped]), six])


def _squeezed(draft: Draft, name: str, x: str, channels: int) -> str:
    """Each channel times what two convolutions of the channels' means say."""
    few = max(8, channels // 4)
    y = draft.node("GlobalAveragePool", f"{name}.mean", [x])
    y = _relu(draft, name, draft.convolution(f"{name}.few", y, (few, channels, 1, 1), bias=0.0))
    y = draft.convolution(f"{name}.all", y, (channels, few, 1, 1), bias=0.0)
    return draft.node("Mul", f"{name}.scaled", [x, draft.node("HardSigmoid", f"{name}.gate", [y], alpha=0.2, beta=0.5)])


def _size(draft: Draft, name: str, x: str, axis: int) -> str:
    """The size of an axis, [1], as paddle2onnx reads it."""
    bounds = [draft.constant(f"{name}.{what}", int64([value])) for what, value in (("from", axis), ("to", axis + 1))]
    axes = draft.constant(f"{name}.axes", int64([0]))
    return draft.node("Slice", f"{name}.slice", [draft.node("Shape", f"{name}.shape", [x]), *bounds, axes])


def _resized(draft: Draft, name: str, x: str, factor: int) -> str:
    """Nearest neighbours, to a shape that is computed from that of x."""
    times = draft.constant(f"{name}.times", int64([factor]))
    sizes = [_size(draft, f"{name}.{axis}", x, axis) for axis in range(4)]
    sizes[2:] = [draft.node("Mul", f"{name}.{axis}.mul", [sizes[axis], times]) for axis in (2, 3)]
    whole = draft.node("Concat", f"{name}.sizes", sizes, axis=0)
    empty = draft.constant(f"{name}.none", np.zeros(0, np.float32))
    return draft.node(
        "Resize", name, [x, empty, empty, whole], mode="nearest", nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )  # fmt: skip


def _pyramid(draft: Draft, levels: list[tuple[str, int]], width: int) -> str:
    """Each level with what is above it, squeezed, then all of them side by side at the size of the first."""
    flat = [draft.convolution(f"level{n}.in", x, (width, c, 1, 1)) for n, (x, c) in enumerate(levels)]
    for number in reversed(range(len(flat) - 1)):
        above = _resized(draft, f"level{number}.up", flat[number + 1], 2)
        flat[number] = draft.node("Add", f"level{number}.sum", [flat[number], above])
    found = []
    for number, x in enumerate(flat):
        y = draft.convolution(f"level{number}.out", x, (width // 4, width, 3, 3))
        y = draft.node("Add", f"level{number}.with", [y, _squeezed(draft, f"level{number}.se", y, width // 4)])
        found.append(_resized(draft, f"level{number}.large", y, 1 << number) if number else y)
    return draft.node("Concat", "levels", found[::-1], axis=1)


def _grown(draft: Draft, name: str, x: str, channels: int, out: int, gain: float = 1.4) -> str:
    """Twice as many rows and columns."""
    weight = draft.constant(f"{name}.weight", draft.normal((channels, out, 2, 2), gain * channels**-0.5))
    bias = draft.constant(f"{name}.bias", draft.normal((out,), 0.1))
    return draft.node("ConvTranspose", f"{name}.grown", [x, weight, bias], kernel_shape=[2, 2], strides=[2, 2])


def _read_on(draft: Draft, x: str, channels: int, hidden: int = 64) -> tuple[str, int]:
    """Two bidirectional LSTMs along the columns."""
    x = draft.node("Transpose", "steps", [draft.node("Squeeze", "line", [x], axes=[2])], perm=[2, 0, 1])
    for number in range(2):
        name, gates = f"lstm{number}", 4 * hidden
        weights = [
            draft.constant(f"{name}.{part}", draft.normal(shape, hidden**-0.5))
            for part, shape in (("w", (2, gates, channels)), ("r", (2, gates, hidden)), ("b", (2, 2 * gates)))
        ]
        node = helper.make_node(
            "LSTM", [x, *weights], [f"{name}.out"], name=name, hidden_size=hidden, direction="bidirectional"
        )
        draft.nodes.append(node)
        y = draft.node("Transpose", f"{name}.turned", [f"{name}.out"], perm=[0, 2, 1, 3])
        x, channels = (
            draft.node("Reshape", f"{name}.joined", [y, draft.constant(f"{name}.form", int64([0, 0, -1]))]),
            2 * hidden,
        )
    return draft.node("Transpose", "batch", [x], perm=[1, 0, 2]), channels


def _attended(draft: Draft, x: str, channels: int, width: int = 120) -> tuple[str, int]:
    """Two layers of attention over the columns of a narrow map, then all of the map again."""
    y = _sigmoid_swish(draft, "in0", _unit(draft, "in0", x, (channels // 8, channels, 1, 3)))
    y = _sigmoid_swish(draft, "in1", _unit(draft, "in1", y, (width, channels // 8, 1, 1)))
    rows, columns = _size(draft, "rows", y, 2), _size(draft, "columns", y, 3)
    one, all_ = (draft.constant(f"size.{name}", int64([value])) for name, value in (("one", 1), ("width", width)))
    steps = draft.node("Mul", "step_count", [rows, columns])
    form = draft.node("Concat", "flat.form", [one, all_, steps], axis=0)
    z = draft.node("Transpose", "flat", [draft.node("Reshape", "flat.joined", [y, form])], perm=[0, 2, 1])
    for number in range(2):
        z = _layer(draft, f"layer{number}", z, width, 8)
    z = _layer_norm(draft, "last", z, width)
    form = draft.node("Concat", "map.form", [one, rows, columns, all_], axis=0)
    z = draft.node("Transpose", "map", [draft.node("Reshape", "map.apart", [z, form])], perm=[0, 3, 1, 2])
    z = _sigmoid_swish(draft, "out0", _unit(draft, "out0", z, (channels, width, 1, 1)))
    z = draft.node("Concat", "both", [x, z], axis=1)
    z = _sigmoid_swish(draft, "out1", _unit(draft, "out1", z, (channels // 8, 2 * channels, 1, 3)))
    z = _sigmoid_swish(draft, "out2", _unit(draft, "out2", z, (width, channels // 8, 1, 1)))
    return draft.node("Transpose", "line_steps", [draft.node("Squeeze", "line", [z], axes=[2])], perm=[0, 2, 1]), width


def _sigmoid_swish(draft: Draft, name: str, x: str) -> str:
    return draft.node("Mul", f"{name}.swish", [x, draft.node("Sigmoid", f"{name}.sigmoid", [x])])


def _layer(draft: Draft, name: str, x: str, width: int, heads: int) -> str:
    """Attention, then two products with a swish between, each behind a norm and added to what it read."""
    y = _product(draft, f"{name}.qkv", _layer_norm(draft, f"{name}.before", x, width), width, 3 * width)
    sizes = [
        draft.constant(f"{name}.{part}", int64([value]))
        for part, value in (("none", 0), ("three", 3), ("heads", heads), ("head", width // heads))
    ]
    steps = _size(draft, f"{name}.steps", y, 1)
    form = draft.node("Concat", f"{name}.form", [sizes[0], steps, *sizes[1:]], axis=0)
    y = draft.node(
        "Transpose", f"{name}.apart", [draft.node("Reshape", f"{name}.five", [y, form])], perm=[2, 0, 3, 1, 4]
    )
    parts = []
    for number, part in enumerate("qkv"):
        bounds = [
            draft.constant(f"{name}.{part}.{what}", int64([value]))
            for what, value in (("from", number), ("to", number + 1))
        ]
        axes = draft.constant(f"{name}.{part}.axes", int64([0]))
        parts.append(
            draft.node(
                "Squeeze", f"{name}.{part}", [draft.node("Slice", f"{name}.{part}.cut", [y, *bounds, axes])], axes=[0]
            )
        )
    q = draft.node("Mul", f"{name}.scaled", [parts[0], draft.scalar(f"{name}.scale", (width // heads) ** -0.5)])
    scores = draft.node(
        "MatMul", f"{name}.scores", [q, draft.node("Transpose", f"{name}.turned", [parts[1]], perm=[0, 1, 3, 2])]
    )
    y = draft.node("MatMul", f"{name}.found", [draft.node("Softmax", f"{name}.weights", [scores], axis=-1), parts[2]])
    y = draft.node("Transpose", f"{name}.back", [y], perm=[0, 2, 1, 3])
    y = draft.node("Reshape", f"{name}.joined", [y, draft.constant(f"{name}.all", int64([0, -1, width]))])
    x = draft.node("Add", f"{name}.add", [x, _product(draft, f"{name}.out", y, width, width)])
    y = _product(draft, f"{name}.wide", _layer_norm(draft, f"{name}.between", x, width), width, 2 * width)
    y = _product(draft, f"{name}.narrow", _sigmoid_swish(draft, f"{name}.mlp", y), 2 * width, width)
    return draft.node("Add", f"{name}.end", [x, y])


def _product(draft: Draft, name: str, x: str, width: int, out: int) -> str:
    weight = draft.constant(f"{name}.weight", draft.normal((width, out), width**-0.5))
    bias = draft.constant(f"{name}.bias", draft.normal((out,), 0.1))
    return draft.node("Add", f"{name}.add", [draft.node("MatMul", f"{name}.product", [x, weight]), bias])


def _layer_norm(draft: Draft, name: str, x: str, width: int) -> str:
    """In primitive operators."""
    two, small = draft.scalar(f"{name}.two", 2.0), draft.scalar(f"{name}.epsilon", 1e-6)
    away = draft.node("Sub", f"{name}.away", [x, draft.node("ReduceMean", f"{name}.mean", [x], axes=[-1], keepdims=1)])
    variance = draft.node(
        "ReduceMean", f"{name}.var", [draft.node("Pow", f"{name}.square", [away, two])], axes=[-1], keepdims=1
    )
    root = draft.node("Sqrt", f"{name}.root", [draft.node("Add", f"{name}.more", [variance, small])])
    scale = draft.constant(f"{name}.weight", np.abs(draft.normal((width,), 0.2)) + np.float32(0.8))
    bias = draft.constant(f"{name}.bias", draft.normal((width,), 0.1))
    y = draft.node("Mul", f"{name}.scaled", [draft.node("Div", f"{name}.div", [away, root]), scale])
    return draft.node("Add", f"{name}.shifted", [y, bias])
