"""Contractions of models in float16, multiplied as such where a target can (ARM)."""
