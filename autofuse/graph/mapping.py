"""Mapping types: how the elements of an operator's output depend on the elements of its inputs.

DNNFusion (PLDI'21, table 2) names five; what fits none of them is opaque and never fuses. An operator
whose input/output pairs differ takes the most complex type, in the order one-to-one < reorganize <
shuffle < one-to-many < many-to-many.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from autofuse.graph.model import Graph, Operator


def names(text: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(text.split())


class MappingType(StrEnum):
    """The way in which one operator maps input elements to output elements."""

    ONE_TO_ONE = "one-to-one"
    ONE_TO_MANY = "one-to-many"
    MANY_TO_MANY = "many-to-many"
    REORGANIZE = "reorganize"
    SHUFFLE = "shuffle"
    OPAQUE = "opaque"


MAP_RANK = 4
"""Dimensions of a map of pixels."""
POINTWISE = names(
    """Abs Acos Acosh Add And Asin Asinh Atan Atanh BiasGelu BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr
    BitwiseXor ByteLookup Cast CastLike Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp FastGelu Floor Gelu Greater
    GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod
    Mul Neg Not Or Pow Reciprocal Relu Round RoundToBfloat16 Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign
    Sqrt Sub Sum SwiGLU Swish Tan Tanh ThresholdedRelu Where Xor"""
)
"""Operators that compute an output element from the input elements at the same (broadcast) place."""
QUANTISATION = names("DequantizeLinear QuantizeLinear")
"""Operators that do so under a scale and a zero point, which may be those of a channel."""

_PER_CHANNEL = "BatchNormalization DequantizeLinear PRelu QuantizeLinear"
_COPIES = "CenterCropPad Concat Dropout Pad Slice Split Trilu"
_ONE_TO_MANY = """ConstantOfShape Expand EyeLike Gather GatherElements GatherND OneHot Range Resize Tile Upsample"""
_MANY_TO_MANY = """AffineGrid ArgMax ArgMin Attention AveragePool Bfloat16Conv Bfloat16MatMul CausalConvWithState Col2Im
    Conv ConvInteger ConvTranspose CumProd CumSum DFT DeformConv Det DynamicQuantizeLinear EmbedLayerNormalization
    Einsum Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool GridSample GroupNormalization Hardmax
    InstanceNormalization LRN LayerNormalization LinearAttention LogSoftmax LpNormalization LpPool MatMul
    MatMulInteger MatMulInteger16 MaxPool MaxRoiPool MeanVarianceNormalization NegativeLogLikelihoodLoss QLinearConv
    QLinearMatMul RMSNormalization ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin
    ReduceProd ReduceSum ReduceSumSquare RoiAlign
    RotaryEmbedding STFT SkipLayerNormalization Softmax SoftmaxCrossEntropyLoss WeightOnlyMatMul"""
_REORGANIZE = "Flatten Reshape Squeeze Unsqueeze"
_SHUFFLE = "DepthToSpace ReverseSequence SpaceToDepth Transpose"
_OPAQUE = """AllClassNMS Bernoulli BlackmanWindow Compress ConcatFromSequence Constant GRU GRURecurrence HammingWindow
    HannWindow If ImageDecoder JoinPlaces LSTM
    LSTMRecurrence Loop MaxUnpool MelWeightMatrix Multinomial NonMaxSuppression
    NonZero Optional OptionalGetElement OptionalHasElement RNN RNNRecurrence RandomNormal RandomNormalLike
    RandomUniform RandomUniformLike RegexFullMatch Scan Scatter ScatterElements ScatterND SequenceAt SequenceConstruct
    SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap Shape Size SplitToSequence StringConcat
    StringNormalizer StringSplit TensorScatter TfIdfVectorizer TopK Unique"""

TABLE: Mapping[str, MappingType] = {
    **dict.fromkeys(POINTWISE, MappingType.ONE_TO_ONE),
    **dict.fromkeys(_PER_CHANNEL.split(), MappingType.ONE_TO_ONE),
    **dict.fromkeys(_COPIES.split(), MappingType.ONE_TO_ONE),
    **dict.fromkeys(_ONE_TO_MANY.split(), MappingType.ONE_TO_MANY),
    **dict.fromkeys(_MANY_TO_MANY.split(), MappingType.MANY_TO_MANY),
    **dict.fromkeys(_REORGANIZE.split(), MappingType.REORGANIZE),
    **dict.fromkeys(_SHUFFLE.split(), MappingType.SHUFFLE),
    **dict.fromkeys(_OPAQUE.split(), MappingType.OPAQUE),
}
"""Type of every ONNX operator and of every operator TVM's importer knows, where no rule below says otherwise."""


def mapping_type(graph: Graph, operator: Operator) -> MappingType:
    """Mapping type of one operator of `graph`, its shapes and modes taken into account.

    - A pointwise operator is one-to-many when an *activation* it reads has fewer elements than its
      output (each element then feeds many). A constant that broadcasts (a bias, a scale, a clip bound)
      does not count: it is no intermediate result, and nothing is recomputed for it. Per-channel
      vectors of BatchNormalization, PRelu and (De)QuantizeLinear never count.
    - Normalisation and dropout in training mode are many-to-many and opaque (random).
    - Pad is one-to-one in constant mode; its other modes repeat elements: one-to-many.
    - A Transpose that keeps the order of the elements (it moves axes of length 1 only), and an Expand
      that adds no element, are reorganize.
    - An operator that the table does not know is opaque.
    """
    kind = TABLE.get(operator.op_type, MappingType.OPAQUE)
    if operator.op_type in POINTWISE:
        return MappingType.ONE_TO_MANY if _broadcasts(graph, operator) else kind
    match operator.op_type:
        case "BatchNormalization" if operator.attributes.get("training_mode", 0):
            return MappingType.MANY_TO_MANY
        case "Dropout" if len(operator.inputs) > 2 and operator.inputs[2]:
            return MappingType.OPAQUE
        case "Pad" if operator.attributes.get("mode", "constant") != "constant":
            return MappingType.ONE_TO_MANY
        case "Expand" if _elements(graph, operator.inputs[0]) == _elements(graph, operator.outputs[0]):
            return MappingType.REORGANIZE
        case "Transpose" if _keeps_order(graph, operator):
            return MappingType.REORGANIZE
    return kind


def _broadcasts(graph: Graph, operator: Operator) -> bool:
    most = _elements(graph, operator.outputs[0])
    return any(_elements(graph, name) < most for name in graph.activations(operator))


def _elements(graph: Graph, name: str) -> int:
    return graph.tensors[name].elements


def _keeps_order(graph: Graph, operator: Operator) -> bool:
    shape = graph.tensors[operator.inputs[0]].shape
    perm = operator.attributes.get("perm") or tuple(reversed(range(len(shape))))
    assert isinstance(perm, tuple)
    moved = [int(axis) for axis in perm if shape[int(axis)] != 1]
    return moved == sorted(moved)
