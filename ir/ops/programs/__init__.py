"""Ops that hold programs together: structure, control flow, collectives, transfers."""

__all__: list[str] = []
