"""From a module to a syntax tree."""
