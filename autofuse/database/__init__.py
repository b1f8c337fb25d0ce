"""The profiling database: every candidate, sample, plan and run, kept for good in SQL."""
