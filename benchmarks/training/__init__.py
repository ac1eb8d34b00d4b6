"""Measurements of training: the loop, checkpoints, faults."""
