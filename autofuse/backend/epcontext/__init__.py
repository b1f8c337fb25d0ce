"""The code and weights of a model's segments as ONNX Runtime's execution provider loads them: a payload."""
