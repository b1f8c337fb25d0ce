"""Models that are well-formed and cannot be: each is refused when it is loaded, with the reason."""

from __future__ import annotations

import onnx
import pytest
from onnx import parser

from autofuse.errors import InputError
from autofuse.graph.loading.load import from_model

IMPOSSIBLE = {
    "conv channels": ("channels", "(float[1,3,8,8] x, float[4,5,3,3] w)=>(float[1,4,6,6] y){y=Conv(x,w)}"),
    "group0": ("group is 0", "(float[1,4,8,8] x, float[4,4,3,3] w)=>(float[1,4,6,6] y){y=Conv<group=0>(x,w)}"),
    "group3": ("groups", "(float[1,4,8,8] x, float[4,4,3,3] w)=>(float[1,4,6,6] y){y=Conv<group=3>(x,w)}"),
    "kernel": (
        "kernel_shape",
        "(float[1,4,8,8] x, float[4,4,3,3] w)=>(float[1,4,6,6] y){y=Conv<kernel_shape=[2,2]>(x,w)}",
    ),
    "stride0": (
        "types or shapes",
        "(float[1,4,8,8] x, float[4,4,3,3] w)=>(float[1,4,6,6] y){y=Conv<strides=[0,1]>(x,w)}",
    ),
    "negpad": ("pads", "(float[1,4,8,8] x, float[4,4,3,3] w)=>(float[1,4,6,6] y){y=Conv<pads=[-1,0,0,0]>(x,w)}"),
    "bias": ("bias", "(float[1,4,8,8] x, float[4,4,3,3] w, float[3] b)=>(float[1,4,6,6] y){y=Conv(x,w,b)}"),
    "convT": ("channels", "(float[1,4,8,8] x, float[3,4,3,3] w)=>(float[1,4,10,10] y){y=ConvTranspose(x,w)}"),
    "neg dim": ("negative dimension", "(float[-1,4] x)=>(float[1,4] y){y=Relu(x)}"),
    "twice": ("listed twice", "(float[1,4] x,float[1,4] x)=>(float[1,4] y){y=Relu(x)}"),
    "gather": ("index 7", "(float[3,4] x)=>(float[4] y){i=Constant<value_int=7>() y=Gather(x,i)}"),
    "gatherneg": ("index -4", "(float[3,4] x)=>(float[4] y){i=Constant<value_int=-4>() y=Gather(x,i)}"),
    "f16/f32": ("types or shapes", "(float16[4] a,float[4] b)=>(float[4] y){y=Div(a,b)}"),
    "and float": ("types or shapes", "(float[4] a,float[4] b)=>(bool[4] y){y=And(a,b)}"),
    "out type": ("declared as double", "(float[4] a)=>(double[4] y){y=Relu(a)}"),
    "out type2": ("declared as int64", "(float[4] a)=>(int64[4] y){y=Relu(a)}"),
    "matmul": ("types or shapes", "(float[3,4] a,float[5,6] b)=>(float[3,6] y){y=MatMul(a,b)}"),
    "bcast": ("types or shapes", "(float[3,4] a,float[5] b)=>(float[3,4] y){y=Add(a,b)}"),
    "concat": ("types or shapes", "(float[3,4] a,float[3,5] b)=>(float[6,4] y){y=Concat<axis=0>(a,b)}"),
    "concat type": ("types or shapes", "(float[3,4] a,double[3,4] b)=>(float[6,4] y){y=Concat<axis=0>(a,b)}"),
    "transpose": ("types or shapes", "(float[3,4] a)=>(float[4,3] y){y=Transpose<perm=[0,0]>(a)}"),
    "softmax axis": ("types or shapes", "(float[3,4] a)=>(float[3,4] y){y=Softmax<axis=5>(a)}"),
    "bn": (
        "BatchNormalization",
        "(float[1,4,8] x,float[3] s,float[4] b,float[4] m,float[4] v)=>"
        "(float[1,4,8] y){y=BatchNormalization(x,s,b,m,v)}",
    ),
    "gemm": ("types or shapes", "(float[3,4] a,float[5,6] b)=>(float[3,6] y){y=Gemm(a,b)}"),
    "reshape": ("do not fit", "(float[3,4] a)=>(float[5] y){s=Constant<value_ints=[5]>() y=Reshape(a,s)}"),
    "reshape-2": ("types or shapes", "(float[3,4] a)=>(float[5] y){s=Constant<value_ints=[-2,6]>() y=Reshape(a,s)}"),
    "where": ("types or shapes", "(float[4] c,float[4] a,float[4] b)=>(float[4] y){y=Where(c,a,b)}"),
    "topk": (
        "types or shapes",
        "(float[3,4] a)=>(float[3,9] y,int64[3,9] i){k=Constant<value_ints=[9]>() y,i=TopK(a,k)}",
    ),
    "split": (
        "types or shapes",
        "(float[6] a)=>(float[2] y,float[3] z){s=Constant<value_ints=[2,3]>() y,z=Split(a,s)}",
    ),
    "squeeze": ("types or shapes", "(float[3,4] a)=>(float[4] y){s=Constant<value_ints=[0]>() y=Squeeze(a,s)}"),
    "pool": ("pads", "(float[1,1,4,4] a)=>(float[1,1,1,1] y){y=MaxPool<kernel_shape=[2,2],pads=[2,2,2,2]>(a)}"),
    "pool stride": (
        "types or shapes",
        "(float[1,1,4,4] a)=>(float[1,1,1,1] y){y=MaxPool<kernel_shape=[2,2],strides=[0,0]>(a)}",
    ),
    "pool int": ("types or shapes", "(int32[1,1,4,4] a)=>(int32[1,1,1,1] y){y=AveragePool<kernel_shape=[2,2]>(a)}"),
    "d2s": ("channels", "(float[1,3,4,4] a)=>(float[1,1,8,8] y){y=DepthToSpace<blocksize=2>(a)}"),
    "d2s0": ("types or shapes", "(float[1,4,4,4] a)=>(float[1,1,8,8] y){y=DepthToSpace<blocksize=0>(a)}"),
    "step0": (
        "step",
        "(float[8] a)=>(float[4] y){s=Constant<value_ints=[0]>() e=Constant<value_ints=[4]>() y=Slice(a,s,e,s,s)}",
    ),
    "ln": ("does not fit", "(float[3,4] a,float[5] s)=>(float[3,4] y){y=LayerNormalization(a,s)}"),
    "in": ("channels", "(float[1,4,8] a,float[5] s,float[5] b)=>(float[1,4,8] y){y=InstanceNormalization(a,s,b)}"),
    "prelu": ("does not fit", "(float[1,4,8] a,float[3] s)=>(float[1,4,8] y){y=PRelu(a,s)}"),
    "clip": ("types or shapes", "(float[4] a,double l)=>(float[4] y){y=Clip(a,l)}"),
    "cast": ("types or shapes", "(float[4] a)=>(float[4] y){y=Cast<to=99>(a)}"),
    "reduce axis": ("types or shapes", "(float[3,4] a)=>(float[3] y){s=Constant<value_ints=[7]>() y=ReduceSum(a,s)}"),
    "unsq": ("types or shapes", "(float[3,4] a)=>(float[3,4,1] y){s=Constant<value_ints=[2,2]>() y=Unsqueeze(a,s)}"),
    "tile": ("types or shapes", "(float[3,4] a)=>(float[3,4] y){s=Constant<value_ints=[1]>() y=Tile(a,s)}"),
    "tileneg": ("types or shapes", "(float[3,4] a)=>(float[3,4] y){s=Constant<value_ints=[1,-1]>() y=Tile(a,s)}"),
    "expand": ("types or shapes", "(float[3,4] a)=>(float[3,4] y){s=Constant<value_ints=[5,4]>() y=Expand(a,s)}"),
    "pad len": ("types or shapes", "(float[3,4] a)=>(float[3,4] y){s=Constant<value_ints=[1,1,1]>() y=Pad(a,s)}"),
    "pad neg": ("cropped", "(float[3,4] a)=>(float[3,4] y){s=Constant<value_ints=[-5,0,0,0]>() y=Pad(a,s)}"),
    "gn": (
        "groups",
        "(float[1,4,8] a,float[4] s,float[4] b)=>(float[1,4,8] y){y=GroupNormalization<num_groups=3>(a,s,b)}",
    ),
    "scatter": (
        "index 9",
        "(float[3,4] a,float[1,4] u)=>(float[3,4] y){i=Constant<value=int64[1,4]{9,0,0,0}>() y=ScatterElements(a,i,u)}",
    ),
    "argmax axis": ("types or shapes", "(float[3,4] a)=>(int64[3,1] y){y=ArgMax<axis=4>(a)}"),
    "cumsum axis": ("axis 5", "(float[3,4] a)=>(float[3,4] y){i=Constant<value_int=5>() y=CumSum(a,i)}"),
    "flatten": ("types or shapes", "(float[3,4] a)=>(float[3,4] y){y=Flatten<axis=5>(a)}"),
    "onehot": (
        "types or shapes",
        "(int64[4] a)=>(float[4,3] y){d=Constant<value_int=-3>() v=Constant<value_floats=[0.0,1.0]>() y=OneHot(a,d,v)}",
    ),
    "range": (
        "types or shapes",
        "()=>(float[4] y){a=Constant<value_float=0.0>() b=Constant<value_int=4>() y=Range(a,b,a)}",
    ),
    "gridsample": ("types or shapes", "(float[1,1,4,4] a, float[2,2,2,2] g)=>(float[1,1,2,2] y){y=GridSample(a,g)}"),
    "gridsample3": ("types or shapes", "(float[1,1,4,4] a, float[1,2,2,3] g)=>(float[1,1,2,2] y){y=GridSample(a,g)}"),
    "not": ("types or shapes", "(float[4] a)=>(bool[4] y){y=Not(a)}"),
    "lrn": ("size is 0", "(float[1,4,4,4] a)=>(float[1,4,4,4] y){y=LRN<size=0>(a)}"),
    "matmulint": ("types or shapes", "(int8[3,4] a,int16[4,5] b)=>(int32[3,5] y){y=MatMulInteger(a,b)}"),
    "dq": ("zero points", "(int8[3,4] a,float[3] s, int8[4] z)=>(float[3,4] y){y=DequantizeLinear(a,s,z)}"),
    "dq2": ("scales", "(int8[3,4] a,float[5] s)=>(float[3,4] y){y=DequantizeLinear(a,s)}"),
    "roi": ("regions of shape", "(float[1,1,4,4] a, float[2,3] r, int64[2] i)=>(float[2,1,1,1] y){y=RoiAlign(a,r,i)}"),
    "gathernd": ("index 3", "(float[3,4] a)=>(float[1] y){i=Constant<value=int64[1,2]{3,0}>() y=GatherND(a,i)}"),
    "convrank": ("types or shapes", "(float[4,8] x, float[4,4] w)=>(float[1,4] y){y=Conv(x,w)}"),
}


def model_of(text: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": 21]> g {text}')


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_it_is_refused_with_the_reason(name: str) -> None:
    reason, text = IMPOSSIBLE[name]
    with pytest.raises(InputError, match=reason):
        from_model(model_of(text), "model")
