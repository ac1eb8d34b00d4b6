"""MLIR text: tokens, attributes, types and the pretty syntax of ops."""

__all__: list[str] = []
