"""One module a group of verbs."""
