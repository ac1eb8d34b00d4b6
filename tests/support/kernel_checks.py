"""A computation compiled and compared with the reference interpreter."""

from __future__ import annotations

from random_programs import arguments, assert_near, reference, tolerance

from hloom.backends.cpu.compilation import compile_module
from hloom.ir.module import Module


def check(program, kinds=None, fusion=True, donated=frozenset()):
    """Compiles a computation, compares its results, returns the compiled module. kinds: of its kernels, in order."""
    module = Module(program.name, program)
    compiled = compile_module(module, fusion=fusion, donated=donated)
    arrays = arguments(module, 1)
    want, scale, _ = reference(module, arrays)
    for got, expected in zip(compiled([a.copy() for a in arrays]), want, strict=True):
        assert_near(got, expected, tolerance(module), scale, exact=False)
    if kinds is not None:
        assert [s.launch.source.name.split("_")[0] for s in compiled.plan.kernels()] == kinds
    return compiled
