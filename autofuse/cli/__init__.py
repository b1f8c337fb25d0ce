"""The command line: a thin layer over `autofuse.api`."""
