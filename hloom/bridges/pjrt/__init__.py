"""hloom as a device of jax: `JAX_PLATFORMS=hloom python program.py` runs on hloom what jax compiles.

jax finds `entry` (an entry point of the group `jax_plugins`) and calls its `initialize`. Native code answers jax's C
interface, PJRT (`hloom.runtime.pjrt`); Python compiles (`client`, `programs`) and is not called between.
"""
