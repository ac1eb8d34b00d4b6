"""Reductions over dimensions and over sliding windows."""

__all__: list[str] = []
