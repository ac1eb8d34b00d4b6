"""From a module to a syntax tree."""

__all__: list[str] = []
