"""Convolutions and matrix products: one form, and the ways to compute it."""
