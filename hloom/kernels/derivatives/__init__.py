"""Derivatives of users' kernels: statements of tangents and of cotangents from statements of the kernel language."""
