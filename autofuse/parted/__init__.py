"""What `bench`, `tune` and jobs do with a model in parts: segments are tuned one by one, whole models are raced.

The parts are those of `autofuse.segments`. A race of the segments with ONNX Runtime alone is recorded under the key of
the choice; from then on a compile takes whichever was faster.
"""
