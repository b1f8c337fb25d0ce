"""Operators that see all places of images, or all along one side."""
