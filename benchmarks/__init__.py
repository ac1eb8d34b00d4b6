"""The benchmark: each workload once, run by hloom fused and unfused, by NumPy, and by jax and torch where installed.

`libraries` says how each of them runs a function, `workloads` what is run, `timing` how it is timed, `startup` what is
timed in processes of its own, `report` and `plot` what is written. The command is `python -m hloom bench`.
"""
