"""Precision as one more decision: which contractions of a float model multiply integers, or bfloat16, and what that
costs in accuracy, by data of the user's.

A contraction's noise is what it alone adds to the model's outputs. The fastest set of contractions under a bound on
their summed noise is found exactly; the bound is the largest at which the calibration data lose no more than is
allowed. Then the written model is measured on other data, and the noisiest go back until it holds there.
"""
