"""The mapping-type table: complete, and the rules that depend on shapes and modes."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import onnx
import pytest

from autofuse.graph import mapping
from autofuse.graph.mapping import TABLE, MappingType, mapping_type


def test_every_operator_that_tvms_importer_knows_has_a_type():
    frontend = importlib.import_module("tvm.relax.frontend.onnx.onnx_frontend")
    known = set(frontend._get_convert_map())
    assert len(known) > 150
    assert not known - set(TABLE)


def test_every_onnx_operator_has_a_type():
    known = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""}
    assert not known - set(TABLE)


def test_no_operator_stands_in_two_rows():
    text = Path(mapping.__file__).read_text(encoding="utf-8")
    rows = re.findall(r'"""(\w+(?:\s+\w+){3,})"""|= "(\w+(?: \w+)+)"', text)
    words = [word for row in rows for word in " ".join(row).split()]
    assert sorted(words) == sorted(set(words))
    assert set(TABLE) <= set(words)


@pytest.mark.parametrize(
    ("kind", "operators"),
    [
        (
            "one-to-one",
            """Add Asin BatchNormalization Cast Ceil Clip Concat Cos Erf Exp Greater LeakyRelu Log Not PRelu Reciprocal
            Relu Round Sigmoid Sin Slice Split Sqrt Tanh Where""",
        ),
        ("one-to-many", "Expand Gather Resize Upsample"),
        (
            "many-to-many",
            """AveragePool Conv ConvTranspose CumSum Einsum Gemm MatMul InstanceNormalization MaxPool ReduceSum
            ReduceMean ReduceMax ReduceProd Softmax LayerNormalization""",
        ),
        ("reorganize", "Flatten Reshape Squeeze Unsqueeze"),
        ("shuffle", "DepthToSpace SpaceToDepth Transpose"),
        ("opaque", "NonMaxSuppression Loop If TopK NonZero Unique RandomNormal Multinomial Scan"),
    ],
)
def test_the_papers_table_stands(kind, operators):
    assert {TABLE[name].value for name in operators.split()} == {kind}


def type_of(graph, index=-1):
    return mapping_type(graph, graph.operators[index])


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("f (float[2,3] x, float[2,3] z) => (float[2,3] y) { y = Add(x, z) }", "one-to-one"),
        ("f (float[2,3] x, float[3] z) => (float[2,3] y) { y = Add(x, z) }", "one-to-many"),
        ("f (float[2,1] x, float[1,3] z) => (float[2,3] y) { y = Mul(x, z) }", "one-to-many"),
        ("f (float[2,3] x, float[1] z) => (float[2,3] y) { y = Mul(x, z) }", "one-to-many"),
        ("f (float[2,3] x, float[1,2,3] z) => (float[1,2,3] y) { y = Add(x, z) }", "one-to-one"),
        (
            "f (float[2,3] x) => (float[2,3] y) { c = Constant<value_floats=[1.0,2.0,3.0]>() y = Add(x, c) }",
            "one-to-one",
        ),
        ("f (bool[1,3] c, float[2,3] x, float[2,3] z) => (float[2,3] y) { y = Where(c, x, z) }", "one-to-many"),
        ("f (float[2,3] x, float[3] s) => (float[2,3] y) { y = PRelu(x, s) }", "one-to-one"),
        ("f (float[2,3] x) => (float[4,3] y) { p = Constant<value_ints=[1,0,1,0]>() y = Pad(x, p) }", "one-to-one"),
        (
            'f (float[2,3] x) => (float[4,3] y) { p = Constant<value_ints=[1,0,1,0]>() y = Pad<mode="edge">(x, p) }',
            "one-to-many",
        ),
        ("f (float[2,3] x) => (float[3,2] y) { y = Transpose<perm=[1,0]>(x) }", "shuffle"),
        ("f (float[1,3,1,2] x) => (float[3,1,2,1] y) { y = Transpose<perm=[1,0,3,2]>(x) }", "reorganize"),
        ("f (float[2,3] x) => (float[1,2,3] y) { s = Constant<value_ints=[1,1,1]>() y = Expand(x, s) }", "reorganize"),
        ("f (float[1,3] x) => (float[2,3] y) { s = Constant<value_ints=[2,3]>() y = Expand(x, s) }", "one-to-many"),
        ("f (float[2,6] x) => (float[2,3] y, float[2,3] z) { y, z = Split<axis=1, num_outputs=2>(x) }", "one-to-one"),
        ("f (float[1,2,3] x, float[2] a) => (float[1,2,3] y) { y = BatchNormalization(x, a, a, a, a) }", "one-to-one"),
        (
            "f (float[3] x, bool t) => (float[3] y) { r = Constant<value_float=0.5>() y = Dropout(x, r, t) }",
            "opaque",
        ),
    ],
)
def test_shapes_and_modes_decide(graph_of, text, kind):
    assert type_of(graph_of(text)) == MappingType(kind)


def test_the_names_are_those_of_the_paper():
    names = {"one-to-one", "one-to-many", "many-to-many", "reorganize", "shuffle", "opaque"}
    assert {str(kind) for kind in MappingType} == names
