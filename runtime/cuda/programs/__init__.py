"""Programs on a GPU: structure, CUDA graphs and execution."""
