"""The time that a search may take, and how it is divided."""
