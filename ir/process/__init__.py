"""The Python process around the IR: forks, and lazy imports."""
