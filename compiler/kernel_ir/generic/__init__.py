"""Kernel functions: Python functions of element types that are given later, and the kernels that are made of them."""

__all__: list[str] = []
