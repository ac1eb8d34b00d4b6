"""The schedule of a module: launch order, buffers, control flow."""
