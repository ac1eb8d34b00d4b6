"""What exists only for JAX's names: `hl.as_jax()`, experimental modules, extension points, settings."""
