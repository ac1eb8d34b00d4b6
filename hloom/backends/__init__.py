"""Backends: a module in, an executable out, on one kind of device or several."""
