"""The CPU target: LLVM IR from kernel source, microkernels, Fourier transforms."""
