"""Compiles of models with open sizes: their groups, the schedules of their tiles, and what is said of them."""
