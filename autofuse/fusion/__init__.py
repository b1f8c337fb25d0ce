"""Fusion plans: what is legal, what is asked, and what a set of answers makes of a graph."""
