"""Ops that move elements: slices, gather, scatter, sort."""

__all__: list[str] = []
