"""Depthwise convolutions of 8-bit integers: one channel in, one out, with vectors along the channels."""
