"""Cleaning passes over a draft that load runs in turn."""
