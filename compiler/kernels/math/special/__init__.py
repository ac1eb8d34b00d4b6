"""Special functions of the math library: error function, gamma, Bessel and zeta functions."""
