"""What a command works with: the device, its circumstances, named plans, the search space, known times of groups."""
