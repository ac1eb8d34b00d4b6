"""Programs whose kernels are interpreted, node by node, against the compiled ones."""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest
from cuda_programs import computation
from plan_simulator import Simulation, small_cuts
from random_programs import Programs, arguments, assert_near, reference, tolerance
from vmath_kernels import elementwise

from hloom.backends.cpu.compilation import compile_module
from hloom.compiler.kernel_ir.interpreter import Memory, OutOfBounds, run
from hloom.compiler.kernel_ir.nodes import Kernel
from hloom.compiler.kernel_ir.reader import read
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.math import FUNCTIONS
from hloom.compiler.targets.cpu import library
from hloom.compiler.targets.cuda.simulator import dialect
from hloom.ir.module import Module
from hloom.ir.types import DTYPES


@functools.cache
def function(name: str):
    """What a name of the math library means to compiled kernels: the same bits."""
    if name.startswith("transpose_"):
        return functools.partial(transposed, int(name.rpartition("x")[2]))
    entry = FUNCTIONS[name]
    if entry.kind == "intrinsic":
        return dialect.function(name)
    compiled = elementwise([name])

    def call(*values):
        (result,) = compiled(*[np.array([value]) for value in values])
        return result[0]

    return call


def transposed(side: int, source, source_row: int, target, target_row: int) -> None:
    """The block function `transpose_f32_8x8` and its like: rows lie so many bytes apart."""
    for i in range(side):
        for j in range(side):
            place = (target + j * target_row).element(i)
            target.memory[place] = source.memory[(source + i * source_row).element(j)]


@functools.cache
def nodes(source: KernelSource) -> Kernel:
    return read(source.text, source.params, library.signature, [name for name, _ in source.parts])


class Interpreted(Simulation):
    """A plan whose kernels are interpreted."""

    def launch(self, step):
        launch = step.launch
        given = []
        for argument, kind in zip(launch.arguments, launch.source.params, strict=False):
            if isinstance(argument, str):
                memory, offset = self.memory(step.pointers[argument])
                size = self.size(step, argument)
                given.append(Memory(memory[offset : offset + size], kind.removesuffix("*"), argument))
            else:
                given.append(argument)
        parts = {name: nodes(part) for name, part in launch.source.parts}
        for lo in range(0, launch.items, max(launch.grain, 1)):
            run(nodes(launch.source), [*given, lo, min(lo + launch.grain, launch.items)], function, parts)


def check(program, exact: bool) -> None:
    module = Module(program.name, program)
    compiled = compile_module(module)
    arrays = arguments(module, 1)
    found, results = Interpreted(compiled.plan, arrays).run(), compiled([a.copy() for a in arrays])
    if exact:
        assert [a.tobytes() for a in found] == [np.asarray(a).tobytes() for a in results]
        return
    want, scale, _ = reference(module, arrays)
    for got, expected in zip(found, want, strict=True):
        assert_near(got, expected, tolerance(module), scale, exact=False)


ELEMENTWISE = {
    "arithmetic": lambda x, y: (x * y - 0.5).op("tanh") + x / y,
    "choice": lambda x, y: x.op("compare", y, direction="LT").op("select", x, y),
    "several": lambda x, y: (x + y, (x * y).op("exponential"), x.op("compare", y, direction="EQ")),
    "transposed": lambda x, y: x.transpose((1, 0)) * 2 + y.transpose((1, 0)),
    "padded": lambda x, y: x.op("reverse", dimensions=(1,)) - y,
}


@pytest.mark.parametrize("name", ELEMENTWISE)
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_elementwise_kernels_have_the_same_bits(name, dtype):
    check(computation([(dtype, (9, 34))] * 2, ELEMENTWISE[name]), exact=True)


@pytest.mark.parametrize("dtype", ["s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"])
def test_integer_kernels_have_the_same_bits(dtype):
    def build(x, y):
        return (x * y + x, x.op("remainder", y), x.op("divide", y), x.op("shift-left", y), x.op("not"), x.sum((1,)),
                x.op("maximum", y), x.op("negate"))  # fmt: skip

    check(computation([(dtype, (3, 40))] * 2, build), exact=True)


REDUCED = {
    "rows": lambda x: x.sum((1,)),
    "columns": lambda x: x.sum((0,)),
    "all": lambda x: x.sum((0, 1)),
    "softmax": lambda x: x.op("exponential") / x.op("exponential").sum((1,)).broadcast(x.dims, (0,)),
}


@pytest.mark.parametrize("name", REDUCED)
def test_reductions(monkeypatch, name):
    small_cuts(monkeypatch)
    check(computation([("f32", (7, 37))], REDUCED[name]), exact=False)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed):
    module = Programs(random.Random(seed), dots=False).module(12)
    arrays = arguments(module, seed)
    want, scale, _ = reference(module, arrays)
    found = Interpreted(compile_module(module).plan, arrays).run()
    for got, expected in zip(found, want, strict=True):
        assert_near(got, expected, tolerance(module), scale, exact=False)


def interpreted(text: str, params: tuple[str, ...], *arguments) -> None:
    run(read(text, params, library.signature), arguments, function)


def test_accesses_are_checked():
    x = np.zeros(4, np.float32)
    for line, found in {
        "x[n] = 1.0": r"x\[4\] of 4", "v = x[-1]": r"x\[-1\] of 4",
        "s = scratch_f64(2)\n    s[n] = 1.0": r"s\[4\] of 2",
        "v = 1 << (n + 60)": "a shift by 64",
    }.items():  # fmt: skip
        with pytest.raises(OutOfBounds, match=found):
            interpreted(f"def k(x, n):\n    {line}\n", ("f32*", "s64"), x, 4)


def test_a_variable_without_a_value():
    text = "def k(x, n):\n    while n > 9:\n        v = x[0]\n    x[0] = v\n"
    with pytest.raises(KeyError):
        interpreted(text, ("f32*", "s64"), np.zeros(1, np.float32), 0)


def test_statements_of_the_language():
    x, h, p = np.arange(8, dtype=np.float32), np.zeros(8, np.float16), np.zeros(8, np.uint8)
    z = np.array([1 + 2j], np.complex64)
    text = """
def k(x, h, p, z, n):
    u, v = x[1], x[2]
    u, v = v, u
    x[0] = u - v
    for i in range(8):
        if i == 2:
            continue
        if i == 5:
            break
        store_f16(h, i, x[i] + load_f16(h, i))
        store_pred(p, i, x[i] > f32(1.0) and i < n)
    x[6] += f32(0.5)
    w = n // 0 + n % -3
    x[7] = f32(w)
    z[0] = complex_f32(z[0].imag, -z[0].real)
    return
    x[0] = f32(9.0)
"""
    interpreted(text.strip() + "\n", ("f32*", "f16*", "pred*", "c64*", "s64"), x, h, p, z, 4)
    assert x.tolist() == [1, 1, 2, 3, 4, 5, 6.5, -2] and z[0] == 2 - 1j
    assert h.tolist() == [1, 1, 0, 3, 4, 0, 0, 0] and p.tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
    assert DTYPES["f16"] == np.float16
