"""Models with If, Loop and Scan whose bodies have products."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto

from tests.segments.models import model_of, normal

_WEIGHTS = {"w": normal(24, 24), "v": normal(24, 24, seed=1)}


def branches() -> ModelProto:
    """A product in each branch; one weight is read by both, one from inside, and by the graph around them."""
    return model_of(
        """net (float[6,24] x, bool c) => (float[6,24] y, float[6,24] z) {
            z = MatMul (x, w)
            r = Relu (z)
            y = If (c) <
                then_branch = then () => (float[6,24] a) { p = MatMul (r, w)  q = Tanh (p)  a = MatMul (q, v) },
                else_branch = other () => (float[6,24] b) { s = MatMul (x, v)  b = Sigmoid (s) }
            >
        }""",
        **_WEIGHTS,
    )


def loop() -> ModelProto:
    """A product in each round of a Loop; what is carried keeps its sizes. Nothing outside is ours."""
    return model_of(
        """net (int64 n, float[6,24] x) => (float[6,24] y, float[k,6,24] all) {
            y, all = Loop (n, yes, x) <
                body = round (int64 i, bool go, float[6,24] s) => (bool on, float[6,24] t, float[6,24] o) {
                    on = Identity (go)  p = MatMul (s, w)  t = Tanh (p)  o = Add (t, x)
                }
            >
        }""",
        yes=np.array(True),
        **_WEIGHTS,
    )


def growing() -> ModelProto:
    """A Loop that carries rows of which there are more in each round, and others that stay."""
    return model_of(
        """net (int64 n, float[1,24] x) => (float[k,24] y, float[1,24] z) {
            y, z = Loop (n, yes, x, x) <
                body = round (int64 i, bool go, float[k,24] s, float[1,24] u)
                => (bool on, float[k,24] t, float[1,24] r) {
                    on = Identity (go)  p = MatMul (u, w)  r = Tanh (p)  q = MatMul (s, v)  t = Concat <axis=0> (q, r)
                }
            >
        }""",
        yes=np.array(True),
        **_WEIGHTS,
    )


def scan() -> ModelProto:
    """A Scan along the second axis, with an If inside."""
    return model_of(
        """net (float[6,24] h, float[6,5,24] x, bool c) => (float[6,24] y, float[5,6,24] all) {
            y, all = Scan (h, x) <
                num_scan_inputs = 1, scan_input_axes = [1],
                body = step (float[6,24] s, float[6,24] i) => (float[6,24] t, float[6,24] o) {
                    p = MatMul (s, w)  q = Add (p, i)
                    t = If (c) <
                        then_branch = then () => (float[6,24] a) { a0 = MatMul (q, v)  a = Tanh (a0) },
                        else_branch = other () => (float[6,24] b) { b = Relu (q) }
                    >
                    o = Identity (t)
                }
            >
        }""",
        **_WEIGHTS,
    )
