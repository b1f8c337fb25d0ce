"""The search: what to try next, trying it, and what it came to."""
