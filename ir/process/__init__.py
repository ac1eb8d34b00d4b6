"""The Python process around the IR: forks, and modules that are imported at first use."""
