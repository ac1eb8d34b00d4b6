"""Placement of instructions on devices, and partitioning of a program between them."""
