"""`jax.example_libraries` for programs written against it; new ones use `hloom.nn` and `hloom.optim`."""
