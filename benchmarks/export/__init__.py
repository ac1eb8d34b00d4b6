"""Measurements of exported programs."""
