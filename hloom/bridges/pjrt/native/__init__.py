"""The native side of the plugin, in the Python subset that the compiler's Numba front end compiles."""
