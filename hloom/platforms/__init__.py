"""Kinds of devices, their names, their registry, and devices."""
