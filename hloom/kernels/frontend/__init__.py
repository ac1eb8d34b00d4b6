"""The source of a user's kernel to nodes of the kernel language: names, numbers, arrays, loops, phases."""
