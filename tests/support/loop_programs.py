"""Random programs with loops and branches, nested, of integers: the interpreter's answer bit for bit."""

from __future__ import annotations

import random

import numpy as np

from hloom.ir.build import Builder
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.types import DTYPES, PRED, Shape, TupleShape

S32 = DTYPES["s32"]
SCALAR = Shape(S32, ())
SHAPES = (SCALAR, SCALAR, Shape(S32, (4,)), Shape(S32, (3, 4)), Shape(S32, (3, 4)), Shape(S32, (12, 11)))


class LoopPrograms:
    """Draws modules from a seed."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.names = 0

    def module(self) -> Module:
        builder = Builder("main")
        pool = [builder.parameter(shape) for shape in (SCALAR, *self.random.choices(SHAPES, k=3))]
        self.work(builder, pool, 6, 2)
        outputs = [self.random.choice(pool[-6:]) for _ in range(self.random.randint(1, 4))]
        return Module("random", builder.finish(outputs[0] if len(outputs) == 1 else builder.tuple(outputs)))

    def work(self, builder: Builder, pool: list[Instruction], size: int, depth: int) -> None:
        for _ in range(self.random.randint(1, size)):
            made = self.random.random()
            if depth and made < 0.2:
                pool += self.loop(builder, pool, depth - 1)
            elif depth and made < 0.35:
                pool += self.branch(builder, pool, depth - 1)
            elif depth and made < 0.45:
                pool += self.scan(builder, pool, depth - 1)
            else:
                pool.append(self.step(builder, pool))

    def name(self, base: str) -> str:
        self.names += 1
        return f"{base}_{self.names}"

    def of_shape(self, builder: Builder, pool, shape) -> Instruction:
        """A value of the pool of this shape, or one made of another."""
        fitting = [v for v in pool if v.shape is shape]
        if fitting and self.random.random() < 0.9:
            return self.random.choice(fitting[-3:] + fitting[:1])
        return builder.emit("broadcast", self.scalar(builder, pool), shape=shape, dimensions=())

    def scalar(self, builder: Builder, pool) -> Instruction:
        value = self.random.choice(pool)
        if not value.dims:
            return value
        b = Builder("sum")
        combiner = b.finish(b.emit("add", b.parameter(SCALAR), b.parameter(SCALAR)))
        zero = builder.constant(0, "s32")
        return builder.emit("reduce", value, zero, dimensions=tuple(range(len(value.dims))), to_apply=combiner)

    def index(self, builder: Builder, pool, extent: int) -> Instruction:
        return builder.emit("and", self.scalar(builder, pool), builder.constant(extent, "s32"))

    def step(self, builder: Builder, pool) -> Instruction:
        x = self.random.choice(pool[-5:])
        kind = self.random.choice(
            ("binary", "binary", "binary", "reverse", "slice", "update", "update", "scalar", "product")
        )
        if kind == "binary" or not x.shape.size or not x.dims:
            opcode = self.random.choice(("add", "subtract", "xor", "multiply", "maximum"))
            return builder.emit(opcode, x, self.of_shape(builder, pool, x.shape))
        if kind == "reverse":
            return builder.emit("reverse", x, dimensions=(len(x.dims) - 1,))
        if kind == "scalar":
            return self.scalar(builder, pool)
        if kind == "product" and len(x.dims) == 2:
            other = self.of_shape(builder, pool, x.shape)
            made = builder.emit("dot", x, other, lhs_contracting_dims=(1,), rhs_contracting_dims=(1,))
            padding = ((0, 0, 0), (0, x.dims[1] - x.dims[0], 0))
            return builder.emit("pad", made, builder.constant(0, "s32"), padding=padding)
        starts = [self.index(builder, pool, extent) for extent in x.dims]
        sizes = (1, *x.dims[1:]) if kind != "slice" else tuple(self.random.randint(1, d) for d in x.dims)
        if kind == "update":
            row = builder.emit("dynamic-slice", x, *starts, dynamic_slice_sizes=sizes)
            other = self.random.choice([v for v in pool if not v.dims] or [builder.constant(3, "s32")])
            row = builder.emit("add", row, builder.emit("broadcast", other, shape=row.shape, dimensions=()))
            target = self.random.choice([self.index(builder, pool, x.dims[0]), starts[0]])
            return builder.emit("dynamic-update-slice", x, row, target, *starts[1:])
        part = builder.emit("dynamic-slice", x, *starts, dynamic_slice_sizes=sizes)
        start = builder.constant(0, "s32")
        if part.shape is x.shape:
            return part
        return builder.emit(
            "pad", part, start, padding=tuple((d - n, 0, 0) for d, n in zip(x.dims, sizes, strict=True))
        )

    # --- programs in programs ---

    def state(self, builder: Builder, pool) -> list[Instruction]:
        return [self.random.choice(pool) for _ in range(self.random.randint(1, 4))]

    def results(self, builder: Builder, pool, shapes) -> list[Instruction]:
        return [self.of_shape(builder, pool, shape) for shape in shapes]

    def elements(self, builder: Builder, value: Instruction) -> list[Instruction]:
        return [builder.emit("get-tuple-element", value, index=k) for k in range(len(value.shape.elements))]

    def loop(self, builder: Builder, pool, depth: int) -> list[Instruction]:
        state = [builder.constant(self.random.randint(0, 2), "s32"), *self.state(builder, pool)]
        shapes = TupleShape([s.shape for s in state])
        inner = Builder(self.name("condition"))
        known = self.elements(inner, inner.parameter(shapes))
        limit = inner.constant(self.random.randint(0, 5), "s32")
        test = inner.emit("compare", known[0], limit, direction="LT")
        if self.random.random() < 0.3:
            last = inner.emit("compare", self.scalar(inner, known), inner.constant(10**6, "s32"), direction="LT")
            test = inner.emit("and", test, last)
        condition = inner.finish(test)
        inner = Builder(self.name("body"))
        known = self.elements(inner, inner.parameter(shapes))
        values = list(known)
        self.work(inner, values, 5, depth)
        new = [inner.emit("add", known[0], inner.constant(1, "s32"))]
        for k, shape in enumerate(shapes.elements[1:]):
            keep = self.random.random() < 0.2
            new.append(known[k + 1] if keep else self.of_shape(inner, values, shape))
        body = inner.finish(inner.tuple(new))
        return self.elements(builder, builder.emit("while", builder.tuple(state), condition=condition, body=body))

    def branch(self, builder: Builder, pool, depth: int) -> list[Instruction]:
        arguments = [self.random.choice(pool) for _ in range(self.random.randint(1, 3))]
        shapes = [s.shape for s in arguments]
        results = self.random.choices(shapes, k=self.random.randint(1, 3))
        pred = self.random.random() < 0.5
        count = 2 if pred else self.random.randint(1, 4)
        branches = []
        for _ in range(count):
            inner = Builder(self.name("branch"))
            values = self.elements(inner, inner.parameter(TupleShape(shapes)))
            if self.random.random() < 0.8:
                self.work(inner, values, 4, depth)
            branches.append(inner.finish(inner.tuple(self.results(inner, values, results))))
        selector = self.scalar(builder, pool)
        if pred:
            selector = builder.emit("compare", selector, builder.constant(3, "s32"), direction="GT")
            assert selector.dtype == PRED
        else:
            selector = builder.emit("and", selector, builder.constant(7, "s32"))
        argument = builder.tuple(arguments)
        made = builder.emit("conditional", selector, *[argument] * count, branch_computations=tuple(branches))
        return self.elements(builder, made)

    def scan(self, builder: Builder, pool, depth: int) -> list[Instruction]:
        consts, carry = self.state(builder, pool)[:1], self.state(builder, pool)[:2]
        length = self.random.choice((0, 1, 3, 4))
        xs = [v for v in pool if v.dims and v.dims[0] == length][:2]
        inner = Builder(self.name("step"))
        values = [inner.parameter(v.shape) for v in (*consts, *carry)]
        values += [inner.parameter(x.shape.with_dims(x.dims[1:])) for x in xs]
        self.work(inner, values, 4, depth)
        ys = [self.random.choice(values) for _ in range(self.random.randint(0, 2))]
        results = [*self.results(inner, values, [c.shape for c in carry]), *ys]
        body = inner.finish(inner.tuple(results))
        made = builder.emit(
            "scan", *consts, *carry, *xs, num_consts=1, num_carry=len(carry), length=length,
            reverse=self.random.random() < 0.5, body=body,
        )  # fmt: skip
        return self.elements(builder, made)


def computation_sizes(computation: Computation) -> int:
    return sum(1 + sum(computation_sizes(c) for c in i.called()) for i in computation.instructions)


def arguments(module: Module, seed: int) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.integers(-9, 9, p.shape.dims).astype(np.int32) for p in module.entry.parameters]
