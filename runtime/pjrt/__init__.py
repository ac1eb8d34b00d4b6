"""The native side of hloom as a device of jax: the functions of PJRT's C interface, in the Python subset that the
compiler's Numba front end compiles, and the interface as a table."""
