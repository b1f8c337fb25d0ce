"""Rewriting a graph before planning: algebra, simplification, composites and their inverse.

`rule` says what a rule is, `catalogue` holds all of them, `driver` finds sites and applies them.
"""
