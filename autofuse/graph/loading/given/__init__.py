"""What the user says of a model's inputs: their shapes, sizes by name, and values that make constants of them."""
