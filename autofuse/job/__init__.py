"""Many models on many devices, until the time is spent."""
