"""The other kernel families, and the registry of all."""
