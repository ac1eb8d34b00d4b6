"""Doors of other frameworks: jax (PJRT) and torch (torch.compile)."""
