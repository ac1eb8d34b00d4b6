"""Largest errors seen of the plain functions, in units in the last place.

Measured against long double (special functions: mpmath) on random bit patterns, on intervals around the interesting
points and on special values: some 400,000 arguments a function, on AVX2. The tests hold smaller samples to the same
bounds. f32 functions that go through float64 are within 0.501.
"""

ULP = {
    "exp": (1.06, 1.01), "exp2": (0.94, 0.90), "expm1": (1.64, 0.98), "log": (0.93, 0.83), "log1p": (0.98, 0.86),
    "log2": (0.501, 0.51), "log10": (0.501, 0.51), "tanh": (1.63, 0.74), "logistic": (1.0, 0.93),
    "rsqrt": (0.501, 0.501), "cbrt": (0.501, 0.501), "sin": (0.79, 0.72), "cos": (0.79, 0.78), "tan": (0.501, 0.80),
    "asin": (0.67, 0.72), "acos": (0.501, 0.69), "atan": (0.79, 0.60), "sinh": (0.501, 0.74), "cosh": (0.501, 0.82),
    "asinh": (0.501, 0.52), "acosh": (0.501, 0.52), "atanh": (0.501, 0.51), "erf": (1.71, 0.85), "erfc": (0.501, 0.90),
    "pow": (1.92, 0.62), "atan2": (0.501, 0.57), "hypot": (0.501, 0.501), "erf_inv": (1.76, 5.0),
    # for positive arguments; digamma away from its zero at 1.46
    "lgamma": (0.501, 2.3), "digamma": (0.501, 5.0),
}  # fmt: skip
