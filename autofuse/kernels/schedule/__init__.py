"""What a schedule may choose, what is guessed first, and what limits it."""
