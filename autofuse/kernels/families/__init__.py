"""The kernel families: one room or file a family, the protocol that they keep, and the tuple of all."""
