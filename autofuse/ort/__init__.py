"""ONNX Runtime, in the one room that imports it: sessions, models bound to memory, runs in a process of its own."""
