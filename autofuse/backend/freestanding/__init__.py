"""Free-standing libraries: our kernels behind a C interface of their own, without TVM and without Python."""
