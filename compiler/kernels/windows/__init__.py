"""Kernels over sliding windows: reduce-window, scans (prefix sums), select-and-scatter."""
