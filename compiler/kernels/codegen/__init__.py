"""Kernel descriptions and the expressions inside them, before a target renders them as source."""
