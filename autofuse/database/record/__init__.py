"""Writing: candidates, plans, runs, jobs."""
