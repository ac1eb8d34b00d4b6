"""Layouts of arrays over a mesh, and the cheapest ways from one to another."""
