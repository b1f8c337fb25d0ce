"""Graphs with a size that stays open: where it stands in each tensor, and which operators keep its rows apart."""
