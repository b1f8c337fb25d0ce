"""Linkers and architectures."""
