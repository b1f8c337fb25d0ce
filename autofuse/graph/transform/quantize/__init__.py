"""Contractions of real numbers that become contractions of integers: where, with which levels, and what is written."""
