"""From a syntax tree to a module."""
