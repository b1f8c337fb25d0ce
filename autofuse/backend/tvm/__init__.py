"""TVM as a rival: its own pipeline, its own partition."""
