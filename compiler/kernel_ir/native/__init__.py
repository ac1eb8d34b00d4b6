"""Native functions as nodes, and nodes as C."""
