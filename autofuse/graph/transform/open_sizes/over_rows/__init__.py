"""Operators that go over rows otherwise than one by one, and have kernels of their own for that."""
