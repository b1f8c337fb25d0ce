"""Models with an open size beyond compiling: their plans and tiles searched, their libraries raced."""
