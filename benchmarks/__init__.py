"""The benchmark: workloads written once, run with hloom (fused and unfused), NumPy, and jax and torch where installed.

`libraries` adapts the libraries, `workloads` defines what is run, `measure` times it, and `report` writes the results.
The command is `python -m hloom bench`.
"""
