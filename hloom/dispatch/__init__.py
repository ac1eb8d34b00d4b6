"""From a call of a jitted function to its executable."""
