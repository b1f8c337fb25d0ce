"""A group freed of its names, and how its tensors are stored."""
