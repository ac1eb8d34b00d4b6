"""Elementary functions of the math library: exponentials, logarithms, powers, trigonometry."""
