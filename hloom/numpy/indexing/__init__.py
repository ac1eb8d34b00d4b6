"""Subscripts, index updates, and functions that read or write elements by index."""
