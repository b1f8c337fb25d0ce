"""Products over an open number of rows: panels of weights outside, tiles of rows inside."""
