"""Nests of loops: what is computed at an index, from one definition an operator."""
