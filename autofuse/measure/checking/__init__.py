"""Is a result right: ONNX Runtime as the reference, tolerances by type."""
