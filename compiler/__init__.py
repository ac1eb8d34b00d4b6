"""The compiler: transformations, passes, placement, schedule, kernels and targets. It knows `hloom.ir` only."""
