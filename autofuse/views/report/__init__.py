"""The profiling database as DataFrames, and a run of it as a page to read."""
