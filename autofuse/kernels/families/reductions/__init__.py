"""Reductions along axes: to one number; softmax and normalisations, over the last axis by rows, over an inner one by
columns."""
