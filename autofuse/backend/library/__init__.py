"""A library in a process: loading, arrays, dispatch, threads, sessions."""
