"""A model that our kernels cover in part, as it is compiled: a library with ONNX Runtime's parts, or a model for it."""
