"""The runtime: programs as data, a native driver, buffers, GPUs. It knows no compiler."""
