"""Sources of elements: memory, and files of several formats."""
