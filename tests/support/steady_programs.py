"""Random programs some of whose inputs are steady: calls with the same and with other values of these, each judged by
a call of the program without steady inputs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import loop_programs
import numpy as np
from random_programs import Programs, arguments

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.backends.cpu.compilation import compile_module
from hloom.ir.module import Module

Call = Callable[[Sequence[np.ndarray]], list]


def layers(rng: random.Random) -> Module:
    """Products and convolutions of an input with weights that are sliced, turned, scaled and converted before."""
    generator = np.random.default_rng(rng.randrange(1 << 30))
    rows, depth, columns = (rng.choice((1, 2, 5, 16, 33, 70)) for _ in range(3))
    dtype = rng.choice(("float32", "float32", "float64", "float16", "bfloat16", "int8"))
    image = rng.choice((1, 2)), rng.choice((1, 3, 8)), rng.randrange(5, 13), rng.randrange(5, 13)
    groups = rng.choice((1, image[1]))
    made = image[1] * rng.choice((1, 2, 5)), image[1] // groups, rng.choice((1, 3)), rng.choice((1, 3, 5))
    shapes = [(rows, depth), (2 * columns, depth), (columns,), (depth, columns), image, made, (made[0],)]
    values = [hnp.asarray(generator.integers(-4, 5, shape), dtype) for shape in shapes]
    strides, kind, turned = (rng.choice((1, 2)), 1), rng.randrange(4), rng.random() < 0.5

    def network(x, w, b, v, picture, filters, scale):
        part = (w[:columns] if kind % 2 else w[columns:] * 2).T
        product = x @ part + b
        other = x @ (v.astype(x.dtype) + b if turned else v)
        wide = filters[:, :, ::-1] * scale[:, None, None, None] if turned else filters
        seen = lax.conv_general_dilated(picture, wide, strides, "SAME", feature_group_count=groups)
        state = lax.fori_loop(0, 3, lambda k, h: hnp.clip(h @ v[:, :1], -9, 9) * v[:, 0] // 3 + k, x)
        return product, other + product, hnp.maximum(seen, 0).sum((2, 3)), state, part, w

    return hl.make_module(network)(*values)


def drawn(seed: int) -> tuple[Module, list[np.ndarray], list[np.ndarray]]:
    """(a program, arguments, others)."""
    rng = random.Random(seed)
    if seed % 3 == 0:
        module, fill = layers(rng), arguments
    elif seed % 3 == 1:
        module, fill = Programs(rng).module(rng.randrange(1, 20)), arguments
    else:
        module, fill = loop_programs.LoopPrograms(seed).module(), loop_programs.arguments
    return module, fill(module, seed), fill(module, seed + 1)


def check(seed: int) -> int:
    """Raises AssertionError where a result differs. The number of bytes that the program keeps."""
    rng = random.Random(seed)
    module, first, second = drawn(seed)
    count = len(first)
    steady = frozenset(k for k in range(count) if rng.random() < 0.6)
    donated = frozenset(k for k in range(count) if rng.random() < 0.1)
    fusion = seed % 5 != 0
    with hl.config(num_threads=1 + seed % 3), np.errstate(all="ignore"):
        plain = compile_module(module, fusion=fusion, donated=donated)
        program = compile_module(module, fusion=fusion, donated=donated, steady=steady)
        mixed = [a if k in steady else b for k, (a, b) in enumerate(zip(first, second, strict=True))]
        for arrays in (first, first, mixed, second, first):
            same(program, plain, arrays, donated)
        lent = [a.view() if k in steady else a for k, a in enumerate(first)]
        same(program, plain, lent, donated)
        for k in steady - donated:
            if first[k].flags.writeable and first[k].size:
                first[k][...] = second[k]  # what a caller may do with memory that is not hloom's
        same(program, plain, lent, donated)
    return program.plan.kept_bytes


def same(program: Call, plain: Call, arrays: Sequence[np.ndarray], donated: frozenset[int]) -> None:
    def given() -> list[np.ndarray]:
        return [a.copy() if k in donated else a for k, a in enumerate(arrays)]

    for got, wanted in zip(program(given()), plain(given()), strict=True):
        np.testing.assert_allclose(as_numbers(got), as_numbers(wanted), rtol=1e-5, atol=1e-5)


def as_numbers(array: np.ndarray) -> np.ndarray:
    """Values that NumPy's comparison knows, finite ones within the range of their dtype."""
    return array if array.dtype.kind in "biufc" and array.dtype.itemsize > 1 else array.astype(np.float64)
