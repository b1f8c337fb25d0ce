"""The kernel of an attention of which queries, keys, or both are counted when it runs."""
