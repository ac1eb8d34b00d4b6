"""Ops that move elements: slices, gather, scatter, sort."""
