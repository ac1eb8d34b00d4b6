"""hloom: an XLA-style tensor compiler in Python."""
