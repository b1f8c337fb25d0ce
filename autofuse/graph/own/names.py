"""Names of our own operators; no library is needed to know them, so that devices do, which have no onnx."""

DOMAIN = "autofuse"
ROUND = "RoundToBfloat16"
BYTE_LOOKUP = "ByteLookup"
JOIN_PLACES = "JoinPlaces"
BFLOAT16_CONTRACTIONS = {"Conv": "Bfloat16Conv", "MatMul": "Bfloat16MatMul"}
"""ONNX operator -> that of operands rounded to bfloat16."""
FLOAT16_CONTRACTIONS = frozenset({"Conv", "Gemm", "MatMul"})
"""Operators that a target may compute in float16."""
FLOAT16 = "float16"
"""The attribute of a contraction on float32, in a workload, that the model computes in float16."""
