"""One run as a page to read."""
