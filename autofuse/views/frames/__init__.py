"""The profiling database as DataFrames, and runs held against each other."""
