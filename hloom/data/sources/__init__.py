"""Where elements come from: memory, and files of several formats."""
