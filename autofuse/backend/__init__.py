"""From kernels to a library that runs: TVM's compiler and runtime, files, RPC."""
