"""The execution provider that runs our segments in ONNX Runtime: its C sources, and how a library is made of them."""
