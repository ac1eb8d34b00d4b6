"""jax programs for several devices: the layouts that their annotations request, and the resulting ones."""
