"""Layouts of arrays over a mesh, and the cheapest paths between them."""
