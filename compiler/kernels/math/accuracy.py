"""Largest errors seen of the plain functions, in units in the last place: those of ops are fields of the op table.

Measured against long double (special functions: mpmath) on random bit patterns, on intervals around the interesting
points and on special values: some 400,000 arguments a function, on AVX2. The tests hold smaller samples to the same
bounds. f32 functions that go through float64 are within 0.501.
"""

from __future__ import annotations

from hloom.ir.op_table import OPS

ULP = {"exp2": (0.94, 0.90), "log2": (0.501, 0.51), "log10": (0.501, 0.51), "hypot": (0.501, 0.501)}
for _entry in OPS.values():
    if _entry.ulp and isinstance(_entry.code, dict):
        ULP[_entry.code["any"].partition("_{t}")[0]] = _entry.ulp
