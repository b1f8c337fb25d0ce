"""Families of products whose operands are narrower than float32."""
