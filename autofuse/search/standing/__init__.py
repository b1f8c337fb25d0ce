"""How a search stands, and what it tells of that."""
