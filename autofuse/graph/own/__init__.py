"""Operators of our own, in the domain `autofuse`: what loading makes where ONNX has no one operator for it."""
