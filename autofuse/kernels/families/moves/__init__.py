"""Kernels that compute nothing: transposes, and bytes looked up in a table."""
