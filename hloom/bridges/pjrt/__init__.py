"""hloom as a jax device: `JAX_PLATFORMS=hloom python program.py` runs jax's compiled programs on hloom.

jax finds `entry` (an entry point of the group `jax_plugins`) and calls its `initialize`. Native code implements jax's C
interface, PJRT (`hloom.runtime.pjrt`); Python only compiles (`client`, `programs`).
"""
