"""Loading: an ONNX file that nobody vouches for becomes a graph of static shapes and one form an operator."""
