"""Is a machine ready? The checks of `autofuse doctor`, of this machine and of each hop to one elsewhere."""
