"""The search of a model with open sizes: plans and tiles, the race of its best plans, its session and its run."""
