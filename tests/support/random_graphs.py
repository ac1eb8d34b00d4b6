"""Random modules for comparing a pass's result with what it was given, in the reference interpreter."""

from __future__ import annotations

import numpy as np

from hloom.ir.build import Builder, Value
from hloom.ir.module import Module
from hloom.ir.types import Shape, as_dtype

NUMBERS = (0, 1, -1, 2, 3, -0.0, 0.5, 4)


class Graphs:
    """Draws a module from a `random.Random` (hypothesis's, so that failures shrink).

    integral: only ops that keep whole floats whole, sums and dots among them, so that any order of summation gives the
        same bits. Otherwise element-wise ops and movement only, for which special values must come out the same.
    """

    def __init__(self, random, integral: bool):
        self.random = random
        self.integral = integral
        self.builder = Builder("main")
        self.pool: list[Value] = []

    def module(self, size: int) -> Module:
        for _ in range(self.random.randint(1, 3)):
            self.parameter()
        for _ in range(size):
            self.step()
        count = self.random.randint(1, 3)
        outputs = [self.random.choice(self.pool[-4:]).instruction for _ in range(count)]
        root = outputs[0] if count == 1 else self.builder.tuple(outputs)
        return Module("random", self.builder.finish(root))

    def parameter(self) -> None:
        dtype = self.random.choice(
            ["f64", "f64", "s32"] if self.integral else ["f32", "f32", "s32", "u8", "pred", "bf16"]
        )
        dims = [self.random.choice([1, 2, 3, 4]) for _ in range(self.random.randint(0, 3))]
        self.pool.append(Value(self.builder, self.builder.parameter(Shape(as_dtype(dtype), tuple(dims)))))

    def step(self) -> None:
        x = self.random.choice(self.pool[-5:])
        kinds = ["unary", "binary", "binary", "constant", "movement", "movement", "movement", "select", "convert"]
        if self.integral:
            kinds += ["reduce", "reduce", "dot", "dot"]
        result = getattr(self, self.random.choice(kinds))(x)
        if result is not None and result.shape.size <= 600:
            self.pool.append(result)

    def unary(self, x):
        names = {"f": ["negate", "abs", "floor", "sign", "copy"], "i": ["negate", "abs", "not", "sign"]}
        names |= {"u": ["not", "abs"], "b": ["not", "copy"], "V": ["negate", "abs", "floor", "copy"]}
        return x.op(self.random.choice(names[x.dtype.kind]))

    def binary(self, x):
        y = self.same_shape(x)
        if x.dtype.kind == "b":
            return x.op(self.random.choice(["and", "or", "xor", "maximum"]), y)
        names = ["add", "subtract", "multiply"]
        if x.dtype.kind in "iu" or self.integral:
            # Of zeros of both signs maximum and minimum take either, so bits differ when operands change places.
            names += ["maximum", "minimum"]
        if x.dtype.kind in "iu":
            names += ["and", "or", "xor", "remainder"]
        elif not self.integral:
            names.append("divide")
        return x.op(self.random.choice(names), y)

    def same_shape(self, x):
        """Another value of this shape: one that is there, a transpose of one, a splat, or itself."""
        others = [v for v in self.pool if v.shape is x.shape]
        choice = self.random.randint(0, 3)
        if choice == 0:
            return x.like(self.number(x.dtype))
        if choice == 1:
            permuted = [
                v for v in self.pool if v.dtype == x.dtype and sorted(v.dims) == sorted(x.dims) and v.dims != x.dims
            ]
            if permuted:
                v = self.random.choice(permuted)
                return v.reshape(x.dims)
        return self.random.choice(others)

    def number(self, dtype):
        value = self.random.choice(NUMBERS)
        return abs(int(value)) if dtype.kind in "ub" else int(value) if dtype.kind == "i" or self.integral else value

    def constant(self, x):
        value = self.number(x.dtype)
        array = np.full(x.dims, value).astype(x.dtype)
        if self.random.random() < 0.5 and array.size:
            array.reshape(-1)[0] = 3
        constant = Value(self.builder, self.builder.constant(array))
        operands = (x, constant) if self.random.random() < 0.5 else (constant, x)
        if x.dtype.kind == "b":
            return operands[0].op("xor", operands[1])
        return operands[0].op(self.random.choice(["add", "multiply", "subtract"]), operands[1])

    def select(self, x):
        y = self.same_shape(x)
        if x.dtype.kind == "b":
            return x.where(y, x)
        direction = self.random.choice(["EQ", "NE", "LT", "LE", "GT", "GE"])
        condition = x.compare(direction, y)
        if self.random.random() < 0.3:
            condition = condition.op("not")
        return condition if self.random.random() < 0.3 else condition.where(x, y)

    def convert(self, x):
        if self.integral:
            return x.convert("f64") if x.dtype.kind in "iu" else None
        return x.convert(self.random.choice(["f32", "s32", "pred", "bf16", "u8", "s8"]))

    def movement(self, x):
        random, rank = self.random, len(x.dims)
        kind = random.choice(["reshape", "transpose", "broadcast", "slice", "pad", "concatenate", "reverse", "dynamic"])
        if kind == "reshape":
            return x.reshape(self.factored(x.shape.size))
        if kind == "transpose":
            order = list(range(rank))
            random.shuffle(order)
            return x.op("transpose", dimensions=tuple(order))
        if kind == "broadcast":
            places = sorted(random.sample(range(rank + 1), rank))
            dims = [random.choice([1, 2, 3])] * (rank + 1)
            for k, d in enumerate(places):
                dims[d] = x.dims[k]
            return x.broadcast(dims, places)
        if kind == "slice":
            bounds = []
            for extent in x.dims:
                start = random.randint(0, extent)
                bounds.append((start, random.randint(start, extent), random.randint(1, 2)))
                if random.random() < 0.5:
                    bounds[-1] = (0, extent, 1)
            return x.op("slice", slice=tuple(bounds))
        if kind == "pad":
            padding = tuple((random.randint(-1, 2), random.randint(0, 1), random.randint(0, 1)) for _ in x.dims)
            if any(d + low + high < 0 or d == 0 for d, (low, high, _) in zip(x.dims, padding, strict=True)):
                return None
            zero = self.builder.constant(np.zeros((), x.dtype))
            return x.op("pad", Value(self.builder, zero), padding=padding)
        if not rank:
            return None
        if kind == "concatenate":
            return x.op("concatenate", self.same_shape(x), dimensions=(random.randrange(rank),))
        if kind == "reverse":
            return x.op("reverse", dimensions=tuple(d for d in range(rank) if random.random() < 0.5))
        starts = [Value(self.builder, self.builder.constant(random.randint(-1, 3), "s32")) for _ in range(rank)]
        sizes = tuple(random.randint(0, d) for d in x.dims)
        piece = x.op("dynamic-slice", *starts, dynamic_slice_sizes=sizes)
        return piece if random.random() < 0.5 else x.op("dynamic-update-slice", piece, *starts)

    def factored(self, size: int):
        dims = []
        rest = size
        for prime in (2, 3):
            while rest and rest % prime == 0 and self.random.random() < 0.7:
                dims.append(prime)
                rest //= prime
        dims.append(rest)
        if self.random.random() < 0.3:
            dims.append(1)
        self.random.shuffle(dims)
        return dims

    def reduce(self, x):
        if x.dtype.kind == "b":
            return None
        dims = [d for d in range(len(x.dims)) if self.random.random() < 0.5]
        if self.random.random() < 0.7:
            return x.sum(dims)
        start = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        return x.reduce("maximum", start, dims)

    def dot(self, x):
        """With a fresh parameter, or a value there is, contracting and batching random pairs of equal extents."""
        if x.dtype.kind == "b":
            return None
        others = [v for v in self.pool if v.dtype == x.dtype and v.dims]
        y = self.random.choice(others) if others else x
        left, right = list(range(len(x.dims))), list(range(len(y.dims)))
        self.random.shuffle(left)
        self.random.shuffle(right)
        batch: list = []
        contracted: list = []
        for a in left:
            match = [d for d in right if y.dims[d] == x.dims[a]]
            kind = self.random.choice(["batch", "contract", "contract", "free"])
            if match and kind != "free":
                right.remove(match[0])
                (batch if kind == "batch" else contracted).append((a, match[0]))
        return x.op(
            "dot",
            y,
            lhs_batch_dims=tuple(a for a, _ in batch),
            rhs_batch_dims=tuple(b for _, b in batch),
            lhs_contracting_dims=tuple(a for a, _ in contracted),
            rhs_contracting_dims=tuple(b for _, b in contracted),
        )
