"""Which operators of a model our kernels run, and which ONNX Runtime runs: the model cut into parts.

`legality`: parts that depend on one another in one direction only, whatever stands in them. `coverage`: which operators
there are kernels for, and why not for the others. `worth`: whether entering a segment pays. `choice` puts them
together: a part of ours is a *segment*, all the others are *the rest*. Nothing is measured here, and nothing is built.
"""
