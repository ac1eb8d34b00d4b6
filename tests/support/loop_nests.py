"""Random loop nests of the kernel language, from a seed: loops of small bounds over accesses of a few arrays.

Their indices are sums of the loops' variables, of sizes and of numbers, as in `x[i * n + j - 1]`, and always in range.
"""

from __future__ import annotations

import ctypes
import random

import numpy as np

from hloom.compiler.kernel_ir.builder import constant, number, operation
from hloom.compiler.kernel_ir.interpreter import run
from hloom.compiler.kernel_ir.nodes import (
    Assign,
    Binary,
    Cast,
    Choice,
    Const,
    Expr,
    For,
    If,
    Kernel,
    Load,
    Stmt,
    Store,
    Var,
)
from hloom.compiler.kernel_ir.printer import printed
from hloom.compiler.kernel_ir.scopes import settle
from hloom.compiler.kernel_ir.transforms.optimize import transformed
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.targets.cpu import codegen
from hloom.runtime import native

ROOM = 400  # elements before and after those of an array
LO, HI = Var("s64", "lo"), Var("s64", "hi")


class Nests:
    """Writes nests. sizes: values of the parameters that are sizes."""

    def __init__(self, seed: int, kinds: tuple[str, ...] = ("f64",), branches: float = 0.1):
        self.rng = random.Random(seed)
        self.arrays = [Var(f"*{self.rng.choice(kinds)}", name) for name in "xyz"]
        self.sizes = {Var("s64", name): self.rng.randrange(2, 8) for name in ("n", "m")}
        self.branches = branches
        self.count = 0
        self.locals: list[Var] = []

    def fresh(self, kind: str, hint: str) -> Var:
        self.count += 1
        return Var(kind, f"{hint}_{self.count}")

    def kernel(self, body: list[Stmt]) -> Kernel:
        return Kernel("nest", (*self.arrays, *self.sizes, LO, HI), body)

    def arguments(self) -> list:
        rng = np.random.default_rng(self.rng.randrange(1 << 30))
        arrays = [
            (rng.integers(-40, 40, 2 * ROOM) / (4 if v.type[1] == "f" else 1)).astype(
                {"f32": np.float32, "f64": np.float64, "s32": np.int32, "s64": np.int64}[v.type[1:]]
            )
            for v in self.arrays
        ]
        return [*arrays, *self.sizes.values(), 0, 1]

    # --- integers

    def size(self) -> Expr:
        return self.rng.choice([*self.sizes, constant(self.rng.randrange(1, 6))])

    def bound(self, loops: list[Var]) -> Expr:
        """A small number, a size, an outer variable, or one of these and a number."""
        found: Expr = self.rng.choice([constant(self.rng.randrange(-1, 6)), *self.sizes, *loops])
        if self.rng.random() < 0.4:
            found = operation(self.rng.choice("+-"), found, constant(self.rng.randrange(3)))
        return found

    def index(self, loops: list[Var]) -> Expr:
        pick = self.rng.random()
        if pick < 0.45 and len(loops) >= 2:  # a matrix
            row, column = (self.near(self.rng.choice(loops)) for _ in range(2))
            made: Expr = operation("+", operation("*", row, self.size()), column)
        elif pick < 0.6 and len(loops) >= 2:
            made = operation(self.rng.choice("+-"), self.near(self.rng.choice(loops)), self.rng.choice(loops))
        else:
            made = operation("*", constant(self.rng.choice((1, 1, 1, 2, 3, -1))), self.near(self.rng.choice(loops)))
        return operation("+", constant(ROOM), made) if self.rng.random() < 0.9 or pick < 0.6 else constant(ROOM)

    def near(self, var: Var) -> Expr:
        if self.rng.random() < 0.4:
            return var
        return operation(self.rng.choice("+-"), var, constant(self.rng.randrange(3)))

    # --- statements

    def loop(self, loops: list[Var], depth: int, statements: int = 2) -> For:
        var = self.fresh("s64", "ijkl"[len(loops) % 4])
        start = self.bound(loops) if self.rng.random() < 0.5 else constant(0)
        stop, step = self.bound(loops), constant(self.rng.choice((1, 1, 1, 1, 2, -1)))
        if step.value < 0:
            start, stop = stop, start
        kept = len(self.locals)
        inner = [*loops, var]
        body: list[Stmt] = []
        count = self.rng.randrange(0 if depth else 1, statements + 1)
        place = self.rng.randrange(count + 1) if self.rng.random() < 0.3 else count
        for k in range(count + 1):
            if k == place and depth:
                body.append(self.loop(inner, depth - 1, statements))
            if k < count:
                body.append(self.statement(inner))
        del self.locals[kept:]
        return For(var, start, stop, step, body)

    def statement(self, loops: list[Var]) -> Stmt:
        if self.rng.random() < self.branches:
            test = operation("<", self.near(self.rng.choice(loops)), constant(self.rng.randrange(4)))
            kept = len(self.locals)
            made = If(test, [self.statement(loops)])
            del self.locals[kept:]
            return made
        array = self.rng.choice(self.arrays)
        if self.rng.random() < 0.2:
            var = self.fresh(array.type[1:], "t")
            made_one = Assign(var, self.value(loops, array.type[1:]))
            self.locals.append(var)
            return made_one
        return Store(array, self.index(loops), self.value(loops, array.type[1:]), array.type[1:])

    def value(self, loops: list[Var], kind: str, depth: int = 2) -> Expr:
        leaves: list[Expr] = [Load(v.type[1:], v, self.index(loops)) for v in self.arrays if v.type[1:] == kind]
        leaves += [var for var in self.locals if var.type == kind]
        if depth == 0 or not leaves:
            return self.rng.choice(leaves) if leaves else Const("f64", 0.5) if kind == "f64" else _one(kind)
        op = self.rng.choice("+-")
        left, right = self.value(loops, kind, depth - 1), self.value(loops, kind, depth - 1)
        if self.rng.random() < 0.1:
            test = operation("<", self.rng.choice(loops), constant(2))
            return Choice(kind, test, left, right)
        return Binary(kind, op, left, right) if kind in ("f32", "f64", "s64") else _narrow(kind, op, left, right)


def _one(kind: str) -> Expr:

    return number(1, kind)


def _narrow(kind: str, op: str, left: Expr, right: Expr) -> Expr:

    return Cast(kind, operation(op, left, right))


# --- what is compiled


def nest_of(seed: int, kinds: tuple[str, ...] = ("f64", "f32", "s32", "s64")) -> tuple[Nests, Kernel, dict]:
    """(the writer, a kernel of one or two nests, what is known of its sizes)."""
    made = Nests(seed, kinds[seed % 4 : seed % 4 + 1] if seed % 3 else kinds)
    body: list[Stmt] = [made.loop([], made.rng.randrange(0, 3)) for _ in range(made.rng.randrange(1, 3))]
    kernel = made.kernel(body)
    settle(kernel)
    known = made.rng.random() < 0.7
    return made, kernel, {var.name: size if known else (0, 1000) for var, size in made.sizes.items()}


def interpreted(kernel: Kernel, given: list) -> list[np.ndarray]:
    """The arrays after a run of the kernel."""
    arguments = [a.copy() if isinstance(a, np.ndarray) else a for a in given]
    run(kernel, arguments, lambda name: {"min": min, "max": max}[name])
    return [a for a in arguments if isinstance(a, np.ndarray)]


def check_compiled(seed: int) -> dict[str, int]:
    """Compares a transformed kernel, compiled for a level of the processor, with the kernel that is interpreted."""
    made, kernel, ranges = nest_of(seed)
    other = transformed(kernel, ranges)
    level = ("native", "x86-64-v3", "x86-64-v2")[seed % 3]
    source = KernelSource.of(other)
    (code,) = codegen.compile_kernels([source], name=None if level == "native" else level)
    given = made.arguments()
    found = [a.copy() if isinstance(a, np.ndarray) else a for a in given]
    words = np.array([a.ctypes.data if isinstance(a, np.ndarray) else a for a in found[:-2]], np.int64)
    address = native.load(code.data, code.symbols)[source.name]
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)(words.ctypes.data, 0, 1)
    for wanted, one in zip(interpreted(kernel, given), found, strict=False):
        assert wanted.tobytes() == one.tobytes(), f"{seed}, {level}: {printed(kernel)} {printed(other)}"
    return {"transformed" if other is not kernel else "as it was": 1}
