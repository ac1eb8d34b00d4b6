"""The LLVM emitter: kernel source (a Python AST) to LLVM IR, without Numba."""
