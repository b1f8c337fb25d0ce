"""Kernels of what no family covers, through TVM's own ONNX importer."""
