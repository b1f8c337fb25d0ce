"""Kernels that go over all places of an image, and leave none: reductions, and products that sum over them."""
