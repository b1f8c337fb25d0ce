"""First guesses of contractions: schedules that are worth trying before any search."""
