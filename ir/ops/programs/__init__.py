"""Ops for program structure: control flow, collectives, transfers."""

__all__: list[str] = []
