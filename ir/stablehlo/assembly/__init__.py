"""MLIR text: tokens, attributes, types and the pretty spelling of ops."""

__all__: list[str] = []
