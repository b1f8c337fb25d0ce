"""The rewrite rules, a file a kind; `catalogue` is the list of all."""
