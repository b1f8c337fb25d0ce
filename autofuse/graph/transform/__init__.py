"""Changes of a graph that a plan asks for: folded BatchNormalizations, copied operators."""
