"""What the model computes: operators with their ONNX names, tensors, shapes, constants."""
