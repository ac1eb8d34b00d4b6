"""Placement of instructions on devices and the partition of a program between them."""
