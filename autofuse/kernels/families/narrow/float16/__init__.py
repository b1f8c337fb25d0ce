"""Contractions of models in float16, multiplied as such where a target can (ARM, x86 with AVX512_FP16)."""
