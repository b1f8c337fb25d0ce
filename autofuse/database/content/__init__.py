"""What rows may hold: the identity and the form of each, its values, and what a file has that is not ours."""
