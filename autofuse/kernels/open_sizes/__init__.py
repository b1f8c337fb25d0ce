"""Kernels over an open size: tiles of rows, attention over tokens, reductions over all rows."""
