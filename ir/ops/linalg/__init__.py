"""Contractions, transforms and linear algebra."""

__all__: list[str] = []
