"""Programs of jax for several devices: the layouts that their annotations ask for, and what became of them."""
