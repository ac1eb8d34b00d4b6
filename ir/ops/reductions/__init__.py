"""Reductions over dimensions and over sliding windows."""
