"""Programs laid out over meshes, against JAX on as many devices."""
