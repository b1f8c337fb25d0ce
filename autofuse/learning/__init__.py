"""What measurements teach: how long a group takes on a device, and whether fusing it pays.

`features` (pure functions) -> `dataset` (from the profiling database) -> `model` (trees with calibrated intervals) ->
`stored` (a file without code). `advice` asks the model about whole plans, `judge` says how good its answers are.
"""
