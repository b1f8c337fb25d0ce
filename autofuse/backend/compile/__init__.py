"""From TIR to machine code: kernels, programs, whole libraries; probes of the core."""
