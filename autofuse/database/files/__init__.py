"""Databases as files: exports, imports, merges, pruning."""
