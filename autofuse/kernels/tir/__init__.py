"""The layer over TVM's TIR builder: loops, lanes, vectorizable functions."""
