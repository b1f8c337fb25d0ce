"""The file of a library: its image, weights, description, and what vouches for them."""
