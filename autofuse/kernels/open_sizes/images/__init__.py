"""Kernels over images whose sizes are known when they run."""
