"""The CUDA target: kernels, cubins, and a simulator that needs no GPU."""
