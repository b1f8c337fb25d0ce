"""Merged places of maps, and those of several scales joined, kept apart: `parts.py` says how, `rules.py` for whom."""
