"""NVIDIA libraries through ctypes."""
