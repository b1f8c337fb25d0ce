"""Operators of ONNX Runtime's own domain, which its optimiser writes, in operators of ONNX.

`rules`: which operators there are and what is checked of each. `dense`: activations, products, normalisations and
embeddings. `attention`: attention over heads. What is left is recognised as if the model had been exported so.
"""
