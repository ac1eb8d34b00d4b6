"""Programs for several devices: layouts of values over a mesh, and factor rules of ops."""
