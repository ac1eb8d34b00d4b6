"""Measurements: interleaved timing, conditions, start-up and the limits of the machine."""
