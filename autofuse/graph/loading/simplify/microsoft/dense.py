"""Activations, products, normalisations and embeddings of ONNX Runtime, in operators of ONNX."""

from __future__ import annotations

from autofuse.graph.loading.simplify.writer import NotCoveredError, Writer
from autofuse.graph.model import AttributeValue

_PARAMETERS = {
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Elu": ("alpha",),
    "ThresholdedRelu": ("alpha",),
}
_PLAIN = ("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign")


def gelu(write: Writer) -> bool:
    """BiasGelu(x, b)   becomes   Gelu(x + b)."""
    write.op("Gelu", "", _shifted(write, write.input(0), write.input(1)), output=write.result(0))
    return True


def fast_gelu(write: Writer) -> bool:
    """FastGelu(x, b)   becomes   Gelu(x + b) by tanh."""
    _by_tanh(write, _shifted(write, write.input(0), write.input(1)))
    return True


def gemm_fast_gelu(write: Writer) -> bool:
    """GemmFastGelu(x, w, b)   becomes   Gelu(x @ w + b) by tanh."""
    product = write.op("MatMul", "product", write.input(0), write.input(1))
    _by_tanh(write, _shifted(write, product, write.input(2)))
    return True


def _by_tanh(write: Writer, x: str) -> None:
    write.op("Gelu", "", x, output=write.result(0), approximate="tanh")


def quick_gelu(write: Writer) -> bool:
    """QuickGelu(x)   becomes   x * Sigmoid(x * alpha), which is Swish."""
    write.op("Swish", "", write.input(0), output=write.result(0), alpha=write.number_of("alpha", 1.702))
    return True


def _shifted(write: Writer, x: str, bias: str) -> str:
    return write.op("Add", "shifted", x, bias) if bias else x


def fused_matmul(write: Writer) -> bool:
    """FusedMatMul(a, b)   becomes   MatMul(a', b') * alpha.

    The transposition of a' is that of its matrices, and (transBatch) of its first axis behind the other batch axes.
    """
    operands = []
    for place, label in ((0, "A"), (1, "B")):
        before = "i...j" if write.flag(f"transBatch{label}") else "...ij"
        after = "...ji" if write.flag(f"trans{label}") else "...ij"
        name = write.input(place)
        turned = before != after
        operands.append(write.op("Einsum", f"turned_{label}", name, equation=f"{before}->{after}") if turned else name)
    alpha = write.number_of("alpha", 1.0)
    if alpha == 1.0:
        write.op("MatMul", "", *operands, output=write.result(0))
    else:
        product = write.op("MatMul", "product", *operands)
        write.op("Mul", "", product, write.like("alpha", alpha, product), output=write.result(0))
    return True


def fused_gemm(write: Writer) -> bool:
    """FusedGemm(a, b, c)   becomes   activation(Gemm(a, b, c))."""
    kept = {k: v for k, v in write.operator.attributes.items() if not k.startswith("activation")}
    product = write.draft.fresh(f"{write.operator.name}/product")
    write.several("Gemm", "product", write.given(3), [product], **kept)
    parameters = [write.number_of(f"activation_{name}", 0.0) for name in ("alpha", "beta", "gamma")]
    _activated(write, product, parameters)
    return True


def fused_conv(write: Writer) -> bool:
    """FusedConv(x, w, b, z)   becomes   activation(Conv(x, w, b) + z)."""
    kept = {k: v for k, v in write.operator.attributes.items() if not k.startswith("activation")}
    product = write.draft.fresh(f"{write.operator.name}/product")
    write.several("Conv", "product", write.given(3), [product], **kept)
    parameters = write.operator.attributes.get("activation_params", ())
    assert isinstance(parameters, tuple)
    _activated(write, _shifted(write, product, write.input(3)), [float(value) for value in parameters])
    return True


def _activated(write: Writer, x: str, parameters: list[float]) -> None:
    kind = str(write.operator.attributes.get("activation", ""))
    output = write.result(0)
    attributes: dict[str, AttributeValue] = {}
    if kind == "":
        write.op("Identity", "", x, output=output)
    elif kind == "Clip":
        bounds = [write.like(label, value, x) for label, value in zip(("min", "max"), parameters, strict=False)]
        write.op("Clip", "", x, *bounds, output=output)
    elif kind in _PLAIN or kind in _PARAMETERS:
        named = _PARAMETERS.get(kind, ())
        if len(parameters) < len(named):
            raise NotCoveredError(f"an activation {kind} without its parameters")
        attributes = dict(zip(named, parameters, strict=False))
        write.op(kind, "", x, output=output, **attributes)
    else:
        raise NotCoveredError(f"an activation {kind}")


def skip_layer_normalization(write: Writer) -> bool:
    """y, mean, inverse, sum = SkipLayerNormalization(x, skip, s, b, bias)   becomes
    sum = x + skip + bias, y, mean, inverse = LayerNormalization(sum, s, b)."""
    total = _skipped(write, bias=write.input(4))
    parameters = [name for name in (write.input(2), write.input(3)) if name]
    outputs = [write.result(place) for place in range(3)]
    write.several("LayerNormalization", "", [total, *parameters], outputs, axis=-1, epsilon=_epsilon(write))
    return True


def skip_rms_normalization(write: Writer) -> bool:
    """y, _, _, sum = SkipSimplifiedLayerNormalization(x, skip, s, bias)   becomes
    sum = x + skip + bias, y = RMSNormalization(sum, s)."""
    _without_statistics(write, (1, 2))
    total = _skipped(write, bias=write.input(3))
    write.op("RMSNormalization", "", total, write.input(2), output=write.result(0), axis=-1, epsilon=_epsilon(write))
    return True


def rms_normalization(write: Writer) -> bool:
    """SimplifiedLayerNormalization(x, s)   becomes   RMSNormalization(x, s)."""
    _without_statistics(write, (1,))
    attributes = {"epsilon": 1e-5, **write.operator.attributes}
    write.op("RMSNormalization", "", write.input(0), write.input(1), output=write.result(0), **attributes)
    return True


def _without_statistics(write: Writer, places: tuple[int, ...]) -> None:
    if any(write.result(place) for place in places):
        raise NotCoveredError("a second result, the statistics")


def _skipped(write: Writer, bias: str) -> str:
    both = write.op("Add", "skipped", write.input(0), write.input(1), output="" if bias else write.result(3))
    return write.op("Add", "sum", both, bias, output=write.result(3)) if bias else both


def _epsilon(write: Writer) -> float:
    return write.number_of("epsilon", 1e-12)


def embedding(write: Writer) -> bool:
    """y, index, sum = EmbedLayerNormalization(ids, segments, words, places, kinds, s, b, mask, at)   becomes
    sum = Gather(words, ids) + Gather(places, at) + Gather(kinds, segments), y = LayerNormalization(sum, s, b),
    index = the number of ones in each row of the mask."""
    ids, segments, words, places, kinds, *_ = (write.input(place) for place in range(9))
    if write.operator.attributes.get("mask_index_type", 1) not in (0, 1) or (write.result(1) and not write.input(7)):
        raise NotCoveredError("another index than the length of a mask")
    found = write.op("Gather", "words", words, ids)
    if write.input(8):
        at = write.op("Gather", "places", places, write.input(8))
    else:
        length = write.op("Shape", "length", ids, start=1, end=2)
        first, axis = write.integers("first", [0]), write.integers("axis", [0])
        at = write.op("Slice", "places", places, first, length, axis)
    total = write.op("Add", "placed", found, at, output="" if segments else write.result(2))
    if segments:
        kind = write.op("Gather", "kinds", kinds, segments)
        total = write.op("Add", "sum", total, kind, output=write.result(2))
    write.several("LayerNormalization", "", [total, write.input(5), write.input(6)], [write.result(0)], axis=-1,
                  epsilon=_epsilon(write))  # fmt: skip
    if write.result(1):
        ones = write.op("Cast", "ones", write.input(7), to=6)
        axes = write.integers("along", [1])
        write.op("ReduceSum", "mask_index", ones, axes, output=write.result(1), keepdims=0)
    return True
