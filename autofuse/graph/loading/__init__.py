"""From an ONNX file that nobody vouches for to a graph of static shapes and one form an operator."""
