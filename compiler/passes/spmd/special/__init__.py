"""Ops that need more than a device's own elements along a split dimension."""
