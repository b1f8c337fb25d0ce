"""A model as its file has it, of which parts are taken that stay ONNX models: for what runs in several parts.

Nothing here asks whether there is a kernel, and nothing is changed but for functions, which are inlined, sizes that the
user gave, and arithmetic on shapes, which is done at once: so each part is what ONNX Runtime would have run anyway.
"""
