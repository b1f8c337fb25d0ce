"""The environment of a command: the device, its versions, named plans, the search space, known times of groups."""
