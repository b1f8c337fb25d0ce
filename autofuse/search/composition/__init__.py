"""Plans composed of groups whose times are known, and the front of time against memory."""
