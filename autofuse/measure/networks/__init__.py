"""Whole networks: built, checked, raced against each other."""
