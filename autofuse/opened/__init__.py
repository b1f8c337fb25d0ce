"""Models with an open size beyond compiling: tuned tile by tile."""
