"""The checks of `autofuse doctor`."""
