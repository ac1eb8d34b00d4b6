"""Element-wise ops."""

__all__: list[str] = []
