"""The families that compute several nests together, a part of their rows at a time."""
