"""The environment of a command: the device, its circumstances, named plans, the search space, known times of groups."""
