"""Reading: what was measured, here and elsewhere."""
