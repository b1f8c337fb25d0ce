"""Right first, then fast: candidates are checked and timed in processes of their own."""
