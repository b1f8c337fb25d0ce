"""Products of real numbers and weights of 4 or 8 bits, which are unpacked in registers."""
