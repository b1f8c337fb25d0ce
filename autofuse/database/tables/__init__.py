"""The tables, their columns, and the migrations that make them."""
