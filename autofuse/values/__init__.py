"""Plain values that every room may use: arguments, reasons, statistics, data files, temporary folders, outputs."""
