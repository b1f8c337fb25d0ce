"""Disposable child processes: both ends of the pipe, and the programs that run in them."""
