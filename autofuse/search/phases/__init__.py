"""What a search measures, and in which order."""
