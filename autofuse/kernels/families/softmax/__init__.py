"""Softmax and normalisations: over the last axis by rows, over an inner axis by columns."""
