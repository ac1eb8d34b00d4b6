"""Short programs of ops that move, combine and find elements, in layouts that divide little: for `spmd_modules.check`.

Whole numbers in all dtypes, so that every order of sums has the same bits. Sizes are small and have many divisors,
dimensions of size 1 among them; each value has a random layout, and some stay partial sums.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

import numpy as np
from random_programs import largest_and_place
from spmd_modules import random_sharding

from hloom.compiler.passes.spmd.meshes import programs
from hloom.ir.build import Builder, Value, scalar_computation
from hloom.ir.module import Module
from hloom.ir.ops import OPS
from hloom.ir.spmd.factors import result_shapes
from hloom.ir.spmd.sharding import DeviceMesh, Sharding
from hloom.ir.types import Shape, TupleShape, as_dtype
from hloom.ir.window import WindowDimension

SIZES = (1, 1, 2, 2, 3, 3, 4, 5, 6, 8)
LARGEST = 400  # elements
KEEPING = ("_unary", "_reverse", "_iota", "_running", "_sort")  # steps that keep the shape and need no other value


class LaidOut:
    """Draws a program for a mesh: `module`, whose values have layouts, and `arrays`, its arguments."""

    def __init__(self, drawn: random.Random, mesh: DeviceMesh):
        self.random, self.mesh = drawn, mesh.atomic()
        self.builder = Builder("main")
        self.arrays: list[np.ndarray] = []
        self.values = [self.parameter() for _ in range(drawn.randint(1, 2))]

    def module(self, steps: int) -> Module:
        names = [name for name in dir(self) if name.startswith("_") and not name.startswith("__")]
        for _ in range(steps):
            made = getattr(self, self.random.choice(names))(self.random.choice(self.values[-3:]))
            if made is not None and made.shape.size <= LARGEST:
                self.values.append(self.summed(made))
        roots = [v.instruction for v in self.values[-self.random.randint(1, 3) :]]
        root = roots[0] if len(roots) == 1 else self.builder.tuple(roots)
        module = Module("laid_out", self.builder.finish(root), partitions=self.mesh.size)
        chance = self.random.choice((0.5, 0.8, 1.0))
        for instruction in [i for computation in programs(module) for i in computation.instructions]:
            shapes = result_shapes(instruction.shape)
            layouts = tuple(self.layout(shape, chance) for shape in shapes)
            if instruction.opcode == "sharding-constraint":
                layouts = (instruction["sharding"],)
            instruction.sharding = layouts if isinstance(instruction.shape, TupleShape) else layouts[0]
        return module

    def layout(self, shape: Shape, chance: float) -> Sharding:
        if self.random.random() < chance:
            return random_sharding(self.random, self.mesh, shape)
        return Sharding(self.mesh, ((),) * shape.rank)

    def summed(self, value: Value) -> Value:
        """The value, or one that stays partial sums along an axis that no dimension has."""
        if self.random.random() < 0.8 or value.dtype.kind == "b":
            return value
        split = random_sharding(self.random, self.mesh, value.shape)
        free = [a for a in self.mesh.names if a not in split.axes]
        if not free:
            return value
        sharding = Sharding(split.mesh, split.dims, (self.random.choice(free),), split.open)
        return value.op("sharding-constraint", sharding=sharding)

    # --- what steps are made of ---

    def parameter(self, dims: Iterable[int] | None = None, dtype: str = "", high: int = 3) -> Value:
        if dims is None:
            dims = [self.random.choice(SIZES) for _ in range(self.random.randint(1, 4))]
            while math.prod(dims) > LARGEST:
                dims.pop()
        shape = Shape(as_dtype(dtype or self.random.choice(("s32", "f64"))), tuple(dims))
        numbers = np.random.default_rng(self.random.randrange(1 << 20)).integers(-2, high, shape.dims)
        self.arrays.append(np.asarray(numbers).astype(shape.dtype))
        return Value(self.builder, self.builder.parameter(shape))

    def like(self, x: Value, dims: Iterable[int] | None = None) -> Value:
        """A value of the dtype: one that is there, or a parameter."""
        wanted = x.dims if dims is None else tuple(dims)
        there = [v for v in self.values if v.dtype == x.dtype and v.dims == wanted]
        if there and self.random.random() < 0.5:
            return self.random.choice(there)
        return self.parameter(wanted, "f64" if x.dtype.kind == "f" else "s32")

    def number(self, x: Value, number) -> Value:
        return Value(self.builder, self.builder.constant(np.asarray(number).astype(x.dtype)))

    def some(self, count: int) -> list[int]:
        return sorted(self.random.sample(range(count), self.random.randint(0, count)))

    # --- steps, which `module` finds by their names' first letter ---

    def _unary(self, x: Value):
        return x.op(self.random.choice(("negate", "abs", "sign", "copy")))

    def _binary(self, x: Value):
        return x.op(self.random.choice(("add", "subtract", "maximum")), self.like(x))

    def _reshape(self, x: Value):
        """The prime factors in the order in which they are, mostly, in other groups."""
        primes = [p for size in x.dims for p in _primes(size)]
        if self.random.random() < 0.3:
            self.random.shuffle(primes)
        dims = [1]
        for p in primes:
            if self.random.random() < 0.5:
                dims[-1] *= p
            else:
                dims.append(p)
        while self.random.random() < 0.3:
            dims.insert(self.random.randint(0, len(dims)), 1)
        return x.reshape(dims) if len(dims) < 7 else None

    def _transpose(self, x: Value):
        return x.transpose(self.random.sample(range(len(x.dims)), len(x.dims)))

    def _reverse(self, x: Value):
        return x.op("reverse", dimensions=tuple(self.some(len(x.dims))))

    def _broadcast(self, x: Value):
        d = self.random.randint(0, len(x.dims))
        dims = (*x.dims[:d], self.random.choice(SIZES), *x.dims[d:])
        return x.broadcast(dims, [k for k in range(len(dims)) if k != d])

    def _iota(self, x: Value):
        if not x.dims:
            return None
        return x + Value(
            self.builder,
            self.builder.emit("iota", shape=x.shape, iota_dimension=self.random.randrange(len(x.dims))),
        )

    def _slice(self, x: Value):
        bounds = []
        for size in x.dims:
            start = self.random.randint(0, size - 1)
            every = (start, self.random.randint(start + 1, size), self.random.randint(1, 2))
            bounds.append(every if self.random.random() < 0.5 else (0, size, 1))
        return x.op("slice", slice=tuple(bounds))

    def _pad(self, x: Value):
        padding = tuple(
            (self.random.randint(-1, 2), self.random.randint(-1, 2), self.random.choice((0, 0, 1)))
            if self.random.random() < 0.5
            else (0, 0, 0)
            for _ in x.dims
        )
        if any(n + (n - 1) * inner + low + high < 1 for n, (low, high, inner) in zip(x.dims, padding, strict=True)):
            return None
        return x.op("pad", self.number(x, self.random.choice((0, 1))), padding=padding)

    def _concatenate(self, x: Value):
        if not x.dims:
            return None
        d = self.random.randrange(len(x.dims))
        others = []
        for _ in range(self.random.randint(1, 2)):
            part = self.random.randint(1, x.dims[d])
            bounds = tuple((0, part if k == d else n, 1) for k, n in enumerate(x.dims))
            others.append(x.op("slice", slice=bounds) if self.random.random() < 0.5 else self.like(x))
        return x.op("concatenate", *others, dimensions=(d,))

    def _reduce(self, x: Value):
        opcode = self.random.choice(("add", "add", "add", "maximum", "minimum"))
        start = self.random.choice((0, 1)) if opcode == "add" else OPS[opcode].identity(x.dtype)
        return x.reduce(opcode, start, self.some(len(x.dims)))

    def _place(self, x: Value):
        """The place of the largest element: a reduction by a computation of several ops."""
        dims = self.some(len(x.dims))
        if not dims:
            return None
        counter = self.builder.emit("iota", shape=x.shape.with_dtype(as_dtype("s32")), iota_dimension=dims[0])
        root = self.builder.emit(
            "reduce", x.instruction, counter, self.number(x, OPS["maximum"].identity(x.dtype)).instruction,
            self.builder.constant(0, "s32"), dimensions=tuple(dims), to_apply=largest_and_place(x.dtype),
        )  # fmt: skip
        return Value(self.builder, self.builder.emit("get-tuple-element", root, index=self.random.randrange(2)))

    def _dot(self, x: Value):
        rank = len(x.dims)
        contracted = self.some(rank)[:2]
        batch = [d for d in self.some(rank) if d not in contracted][:1]
        dims = [("batch", d) for d in batch] + [("sum", d) for d in contracted]
        dims += [("free", self.random.choice(SIZES)) for _ in range(self.random.randint(0, 2))]
        self.random.shuffle(dims)
        y = self.like(x, [n if kind == "free" else x.dims[n] for kind, n in dims])
        other = {
            name: tuple(dims.index((name, d)) for d in own) for name, own in (("batch", batch), ("sum", contracted))
        }
        return x.op(
            "dot", y, lhs_batch_dims=tuple(batch), rhs_batch_dims=other["batch"],
            lhs_contracting_dims=tuple(contracted), rhs_contracting_dims=other["sum"],
        )  # fmt: skip

    def _convolution(self, x: Value):
        if len(x.dims) != 3:
            return None
        groups = self.random.choice([g for g in (1, 2, 3, 4) if x.dims[2] % g == 0])
        kernel, outputs = self.random.randint(1, min(3, x.dims[1])), groups * self.random.randint(1, 3)
        window = WindowDimension(
            kernel, self.random.randint(1, 2), self.random.randint(0, 1), self.random.randint(0, 1)
        )
        return x.op(
            "convolution", self.like(x, (kernel, x.dims[2] // groups, outputs)), window=(window,),
            dim_labels="b0f_0io->b0f", feature_group_count=groups, batch_group_count=1,
        )  # fmt: skip

    def _sort(self, x: Value):
        if not x.dims:
            return None
        b = Builder("less")
        first, second = (Value(b, b.parameter(Shape(x.dtype))) for _ in range(2))
        less = b.finish(first.compare("LT", second).instruction)
        return x.op("sort", dimensions=(self.random.randrange(len(x.dims)),), to_apply=less, is_stable=True)

    def _windows(self, x: Value):
        window = tuple(
            WindowDimension(self.random.randint(1, min(3, n)), self.random.randint(1, 2), self.random.randint(0, 1), 0)
            if self.random.random() < 0.5
            else WindowDimension(1)
            for n in x.dims
        )
        opcode = self.random.choice(("add", "maximum"))
        start = 0 if opcode == "add" else OPS[opcode].identity(x.dtype)
        return x.op("reduce-window", self.number(x, start), window=window, to_apply=scalar_computation(opcode, x.dtype))

    def _running(self, x: Value):
        if not x.dims:
            return None
        d = self.random.randrange(len(x.dims))
        window = tuple(WindowDimension(n, 1, n - 1, 0) if k == d else WindowDimension(1) for k, n in enumerate(x.dims))
        return x.op("reduce-window", self.number(x, 0), window=window, to_apply=scalar_computation("add", x.dtype))

    def _select(self, x: Value):
        other = self.like(x)
        below = x.compare(self.random.choice(("LT", "EQ", "GE")), other)
        if x.dims and self.random.random() < 0.3:
            opcode, start = self.random.choice((("and", True), ("or", False)))
            every = below.reduce(opcode, start, [d for d in range(len(x.dims)) if d])
            below = every.broadcast(x.dims, (0,))
        return below.where(x, other)

    # --- programs inside ---

    def kept(self, b: Builder, value: Value) -> Value:
        """What a few steps make of a value in a computation of its own."""
        outer, self.builder = self.builder, b
        for _ in range(self.random.randint(1, 3)):
            value = getattr(self, self.random.choice(KEEPING))(value) or value
        self.builder = outer
        return value

    def _loop(self, x: Value):
        number = Shape(as_dtype("s32"))
        state = TupleShape((number, x.shape))

        def entered(b: Builder) -> list[Value]:
            given = b.parameter(state)
            return [Value(b, b.emit("get-tuple-element", given, index=k)) for k in range(2)]

        c, b = Builder("condition"), Builder("body")
        condition = c.finish(entered(c)[0].compare("LT", Value(c, c.constant(2, "s32"))).instruction)
        count, value = entered(b)
        body = b.finish(b.tuple([(count + 1).instruction, self.kept(b, value).instruction]))
        start = self.builder.tuple([self.builder.constant(0, "s32"), x.instruction])
        loop = self.builder.emit("while", start, condition=condition, body=body)
        return Value(self.builder, self.builder.emit("get-tuple-element", loop, index=1))

    def _branches(self, x: Value):
        branches = []
        for k in range(2):
            b = Builder(f"branch_{k}")
            branches.append(b.finish(self.kept(b, Value(b, b.parameter(x.shape))).instruction))
        which = self.parameter((), "s32").compare("LT", Value(self.builder, self.builder.constant(0, "s32")))
        return which.op("conditional", x, x, branch_computations=tuple(branches))

    # --- places that are computed ---

    def starts(self, x: Value) -> list[Value]:
        return [self.parameter((), "s32", 7) for _ in x.dims]

    def _dynamic_slice(self, x: Value):
        sizes = tuple(n if self.random.random() < 0.5 else self.random.randint(1, n) for n in x.dims)
        return x.op("dynamic-slice", *self.starts(x), dynamic_slice_sizes=sizes)

    def _dynamic_update_slice(self, x: Value):
        update = self.like(x, [n if self.random.random() < 0.5 else self.random.randint(1, n) for n in x.dims])
        return x.op("dynamic-update-slice", update, *self.starts(x))

    def _gather(self, x: Value):
        if not x.dims:
            return None
        mapped = self.random.sample(range(len(x.dims)), self.random.randint(1, min(2, len(x.dims))))
        sizes = [1 if d in mapped and self.random.random() < 0.7 else n for d, n in enumerate(x.dims)]
        collapsed = tuple(d for d in sorted(mapped) if sizes[d] == 1 and self.random.random() < 0.7)
        places = [self.random.choice(SIZES[:-2]) for _ in range(self.random.randint(0, 2))]
        vector = self.random.randint(0, len(places))
        indexes = self.parameter((*places[:vector], len(mapped), *places[vector:]), "s32", 7)
        offsets = len(x.dims) - len(collapsed)
        return x.op(
            "gather", indexes, collapsed_slice_dims=collapsed, start_index_map=tuple(mapped), index_vector_dim=vector,
            slice_sizes=tuple(sizes),
            offset_dims=tuple(sorted(self.random.sample(range(offsets + len(places)), offsets))),
        )  # fmt: skip

    def _scatter(self, x: Value):
        if not x.dims:
            return None
        mapped = self.random.sample(range(len(x.dims)), self.random.randint(1, min(2, len(x.dims))))
        inserted = tuple(sorted(mapped))
        places = [self.random.choice(SIZES[:-2]) for _ in range(self.random.randint(0, 2))]
        vector = self.random.randint(0, len(places))
        indexes = self.parameter((*places[:vector], len(mapped), *places[vector:]), "s32", 7)
        kept = [n for d, n in enumerate(x.dims) if d not in inserted]
        window = sorted(self.random.sample(range(len(kept) + len(places)), len(kept)))
        own, other = iter(kept), iter(places)
        update = self.like(x, [next(own) if d in window else next(other) for d in range(len(kept) + len(places))])
        return x.op(
            "scatter", indexes, update, update_window_dims=tuple(window), inserted_window_dims=inserted,
            scatter_dims_to_operand_dims=tuple(mapped), index_vector_dim=vector,
            to_apply=scalar_computation(self.random.choice(("add", "maximum", "minimum")), x.dtype),
        )  # fmt: skip


def _primes(number: int) -> list[int]:
    """The prime factors; [1] for 1."""
    found, divisor = [], 2
    while number > 1:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return found or [1]
