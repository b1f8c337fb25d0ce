"""The search decides what to try next, tries it, and records the outcome."""
