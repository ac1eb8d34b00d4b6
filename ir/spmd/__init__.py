"""Programs for several devices: how values are laid out over a mesh, and what of an op goes together."""
