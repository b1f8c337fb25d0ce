"""Schema revisions, each with its own copy of the tables it makes: a revision never changes once released."""
