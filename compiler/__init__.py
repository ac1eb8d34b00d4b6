"""The compiler: transformations, passes, placement, schedule, kernels and targets. It imports `hloom.ir` only."""
