"""From a syntax tree to a module."""

__all__: list[str] = []
