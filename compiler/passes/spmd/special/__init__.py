"""Ops that need remote elements along a split dimension."""
