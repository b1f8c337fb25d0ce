"""ONNX Runtime, in the one room that imports it: sessions, the types that it infers, and models bound to memory."""
