"""The version of hloom."""

__version__ = "0.1.0"
