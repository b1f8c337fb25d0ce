"""What the verbs print, live or at the end."""
