"""Shapes, order and sets: reshape, join, split, pad, sort, unique."""
