"""Random programs over the op table for comparing compiled code with the reference interpreter.

Each value knows whether it is `exact`: the same bits whatever the order of sums and wherever narrow floats are rounded.
Ops that jump (comparisons, rounding, conversions to integers) are applied to exact values only, so that a difference
between compiled and interpreted is never a matter of the last bit.
"""

from __future__ import annotations

import numpy as np

from hloom.ir.build import Builder, Value
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.ops import OPS
from hloom.ir.types import COMPLEX, FLOATS, NARROW_FLOATS, PRED, Shape, TupleShape, as_dtype, kind

SMOOTH = ("tanh", "logistic", "sine", "cosine", "exponential", "erf")
EXACT_UNARY = {
    "float": ("negate", "abs", "copy"),
    "signed": ("negate", "abs", "not", "sign", "copy"),
    "unsigned": ("not", "copy", "popcnt"),
    "pred": ("not", "copy"),
    "complex": ("negate", "copy"),
}
JUMPS = ("floor", "ceil", "sign", "round-nearest-even", "round-nearest-afz")
EXACT_BINARY = {
    "float": ("add", "subtract", "multiply", "maximum", "minimum"),
    "signed": ("add", "subtract", "multiply", "maximum", "minimum", "and", "or", "xor", "divide", "remainder"),
    "unsigned": ("add", "subtract", "multiply", "maximum", "minimum", "and", "or", "xor", "divide", "remainder"),
    "pred": ("and", "or", "xor", "maximum", "minimum"),
    "complex": ("add", "subtract"),
}
DTYPES = ("f32",) * 6 + ("f64", "f64", "s32", "s32", "s64", "u8", "s8", "u32", "pred", "pred", "bf16", "f16", "c64")
GRADIENT_OPS = ("tanh", "logistic", "sine", "exponential", "negate", "cosine")
MAXIMUM_SIZE = 1500


class Programs:
    """Draws a module from a `random.Random` (hypothesis's, so that failures shrink).

    dtypes: of parameters. dots: contractions too. smooth: only float ops that can be differentiated.
    """

    def __init__(self, random, dtypes=DTYPES, dots: bool = True, smooth: bool = False):
        self.random = random
        self.dtypes = dtypes
        self.dots = dots
        self.smooth = smooth
        self.builder = Builder("main")
        self.pool: list[Value] = []
        self.exact: dict[Instruction, bool] = {}
        sizes = (1, 2, 3, 4, 5, 6, 7, 8, 9)
        self.extents = [random.choice(sizes) for _ in range(2)] + [random.choice((*sizes, 0, 1))]

    def module(self, size: int) -> Module:
        for _ in range(self.random.randint(1, 3)):
            self.parameter()
        for _ in range(size):
            self.step()
        outputs = self.outputs()
        root = outputs[0] if len(outputs) == 1 else self.builder.tuple(outputs)
        return Module("random", self.builder.finish(root))

    def outputs(self) -> list[Instruction]:
        """A few values, late ones first; now and then an early one, which may be a parameter, or one of them twice."""
        late = self.pool[-6:]
        found = [self.random.choice(late).instruction for _ in range(self.random.randint(1, 4))]
        if self.random.random() < 0.2:
            found.append(self.random.choice(self.pool).instruction)
        return found

    def scalar_output(self) -> Computation:
        """The computation that sums up the smooth values: something to differentiate."""
        total = None
        for value in self.pool[-3:]:
            part = value.op("tanh").sum(range(len(value.dims)))
            total = part if total is None else total + part
        return self.builder.finish(total.instruction)

    # --- the steps ---

    def add(self, value: Value | None, exact: bool) -> None:
        if value is None or value.shape.size > MAXIMUM_SIZE:
            return
        self.exact[value.instruction] = exact
        self.pool.append(value)

    def parameter(self) -> Value:
        dims = tuple(self.random.choice(self.extents) for _ in range(self.random.choice((0, 1, 2, 2, 2, 3))))
        value = Value(self.builder, self.builder.parameter(Shape(as_dtype(self.random.choice(self.dtypes)), dims)))
        self.add(value, True)
        return value

    def step(self) -> None:
        x = self.random.choice(self.pool[-5:] if self.random.random() < 0.8 else self.pool)
        steps = ["unary", "unary", "binary", "binary", "binary", "movement", "movement", "movement", "normalize"]
        steps += ["reduce", "reduce", "spread", "constant"]
        if not self.smooth:
            steps += ["select", "convert", "jump", "reduce_pairs"]
        if self.dots:
            steps += ["dot"]
        getattr(self, self.random.choice(steps))(x)

    def is_exact(self, *values: Value) -> bool:
        return all(self.exact.get(v.instruction, False) for v in values)

    def unary(self, x: Value) -> None:
        if self.smooth:
            return self.add(x.op(self.random.choice(GRADIENT_OPS)), False)
        kinds = kind(x.dtype)
        if kinds == "float" and self.random.random() < 0.6:
            name = self.random.choice(SMOOTH)
            return self.add((x.op("tanh") if name == "exponential" else x).op(name), False)
        if kinds == "complex" and self.random.random() < 0.5:
            return self.add(x.op(self.random.choice(("real", "imag"))), self.is_exact(x))
        return self.add(x.op(self.random.choice(EXACT_UNARY[kinds])), self.is_exact(x))

    def jump(self, x: Value) -> None:
        if kind(x.dtype) == "float" and self.is_exact(x):
            self.add(x.op(self.random.choice(JUMPS)), True)

    def binary(self, x: Value) -> None:
        y = self.same_shape(x)
        names = ("add", "subtract", "multiply") if self.smooth else EXACT_BINARY[kind(x.dtype)]
        name = self.random.choice(names)
        narrow = x.dtype in NARROW_FLOATS and name not in ("maximum", "minimum")
        self.add(x.op(name, y), self.is_exact(x, y) and not narrow)

    def same_shape(self, x: Value) -> Value:
        """Another value of this shape: one that is there, a splat, one spread along a dimension, or a parameter."""
        others = [v for v in self.pool if v.shape is x.shape]
        choice = self.random.random()
        if choice < 0.15:
            value = x.like(self.number(x.dtype))
            self.exact[value.instruction] = True
            return value
        if choice < 0.4:
            smaller = [
                (v, d)
                for v in self.pool
                if v.dtype == x.dtype and len(v.dims) == len(x.dims) - 1
                for d in range(len(x.dims))
                if v.dims == x.dims[:d] + x.dims[d + 1 :]
            ]
            if smaller:
                v, d = self.random.choice(smaller)
                value = v.broadcast(x.dims, [k for k in range(len(x.dims)) if k != d])
                self.exact[value.instruction] = self.is_exact(v)
                return value
        if choice < 0.55:
            value = Value(self.builder, self.builder.parameter(x.shape))
            self.add(value, True)
            return value
        return self.random.choice(others or [x])

    def number(self, dtype):
        if dtype == PRED:
            return self.random.random() < 0.5
        if dtype.kind in "iu":
            return self.random.choice((0, 1, 2, 3, 7))
        return self.random.choice((0, 1, -1, 0.5, 2, -0.25))

    def constant(self, x: Value) -> None:
        if x.dtype == PRED:
            return
        rng = np.random.default_rng(self.random.randint(0, 1 << 20))
        array = np.asarray(rng.integers(0, 5, x.dims)).astype(x.dtype)
        constant = Value(self.builder, self.builder.constant(array))
        name = self.random.choice(("add", "multiply"))
        self.add(x.op(name, constant), self.is_exact(x) and x.dtype not in NARROW_FLOATS and x.dtype not in COMPLEX)

    def select(self, x: Value) -> None:
        y = self.same_shape(x)
        if x.dtype == PRED:
            return self.add(x.where(y, x), self.is_exact(x, y))
        if x.dtype in COMPLEX or not self.is_exact(x, y):
            return None
        condition = x.compare(self.random.choice(("EQ", "NE", "LT", "LE", "GT", "GE")), y)
        self.exact[condition.instruction] = True
        if self.random.random() < 0.4:
            return self.add(condition, True)
        return self.add(condition.where(x, y), True)

    def convert(self, x: Value) -> None:
        if x.dtype in COMPLEX:
            return
        names = ["f32", "f64", "bf16", "f16"]
        if self.is_exact(x):
            names += ["s32", "u8", "s64", "pred", "s8"]
        target = as_dtype(self.random.choice(names))
        if target != x.dtype:
            self.add(x.convert(target), self.is_exact(x))

    def spread(self, x: Value) -> None:
        """Broadcast along one new dimension, mixed with a parameter of the result's extents."""
        d = self.random.randint(0, len(x.dims))
        dims = (*x.dims[:d], self.random.choice(self.extents), *x.dims[d:])
        if len(dims) > 4:
            return
        value = x.broadcast(dims, [k for k in range(len(dims)) if k != d])
        self.exact[value.instruction] = self.is_exact(x)
        if self.random.random() < 0.7 and value.shape.size <= MAXIMUM_SIZE:
            self.binary(value)
        else:
            self.add(value, self.is_exact(x))

    def movement(self, x: Value) -> None:
        names = ["reshape", "transpose", "slice", "pad", "concatenate", "reverse", "window", "iota"]
        result = getattr(self, "_" + self.random.choice(names))(x)
        if result is not None:
            operands = [Value(self.builder, o) for o in result.instruction.operands if o.shape.rank or not x.dims]
            self.add(result, all(self.exact.get(o.instruction, True) for o in operands))

    def _reshape(self, x):
        size, dims = x.shape.size, []
        for prime in (2, 3, 5, 7):
            while size and size % prime == 0 and self.random.random() < 0.7:
                dims.append(prime)
                size //= prime
        dims.append(size)
        if self.random.random() < 0.3:
            dims.append(1)
        self.random.shuffle(dims)
        if self.random.random() < 0.3:
            dims = [d for d in x.dims if d != 1] if self.random.random() < 0.5 else [*x.dims, 1]
        return x.reshape(dims) if tuple(dims) != x.dims else None

    def _transpose(self, x):
        order = list(range(len(x.dims)))
        self.random.shuffle(order)
        return x.op("transpose", dimensions=tuple(order))

    def _slice(self, x):
        bounds = []
        for extent in x.dims:
            start = self.random.randint(0, extent)
            bounds.append((start, self.random.randint(start, extent), self.random.randint(1, 2)))
            if self.random.random() < 0.5:
                bounds[-1] = (0, extent, 1)
        return x.op("slice", slice=tuple(bounds))

    def _pad(self, x):
        padding = tuple((self.random.randint(-2, 2), self.random.randint(-1, 2), self.random.choice((0, 0, 1, 2)))
                        for _ in x.dims)  # fmt: skip
        spread = [d + max(d - 1, 0) * inner + low + high for d, (low, high, inner) in zip(x.dims, padding, strict=True)]
        if min(spread, default=0) < 0:
            return None
        fill = self.builder.constant(np.asarray(self.number(x.dtype)).astype(x.dtype))
        self.exact[fill] = True
        return x.op("pad", Value(self.builder, fill), padding=padding)

    def _concatenate(self, x):
        if not x.dims:
            return None
        d = self.random.randrange(len(x.dims))
        parts = [
            v
            for v in self.pool
            if v.dtype == x.dtype
            and len(v.dims) == len(x.dims)
            and all(a == b for k, (a, b) in enumerate(zip(v.dims, x.dims, strict=True)) if k != d)
        ]
        chosen = [self.random.choice(parts) for _ in range(self.random.randint(1, 2))]
        return x.op("concatenate", *chosen, dimensions=(d,))

    def _reverse(self, x):
        return x.op("reverse", dimensions=tuple(d for d in range(len(x.dims)) if self.random.random() < 0.5))

    def _iota(self, x):
        if x.dtype == PRED or x.dtype in NARROW_FLOATS or x.dtype in COMPLEX or not x.dims:
            return None
        count = self.builder.emit("iota", shape=x.shape, iota_dimension=self.random.randrange(len(x.dims)))
        self.exact[count] = True
        return x.op(self.random.choice(("add", "multiply")), Value(self.builder, count))

    def _window(self, x):
        """dynamic-slice or dynamic-update-slice at starts that are constants, parameters or computed; often outside."""
        starts = [self.start() for _ in x.dims]
        sizes = tuple(self.random.randint(0, extent) for extent in x.dims)
        if self.random.random() < 0.4:
            return x.op("dynamic-slice", *starts, dynamic_slice_sizes=sizes)
        shape = x.shape.with_dims(sizes)
        fitting = [v for v in self.pool if v.shape is shape]
        if fitting and self.random.random() < 0.5:
            update = self.random.choice(fitting)
        elif self.random.random() < 0.5:
            update = x.op("dynamic-slice", *[self.start() for _ in x.dims], dynamic_slice_sizes=sizes)
            self.exact[update.instruction] = self.is_exact(x)
        else:
            update = Value(self.builder, self.builder.parameter(shape))
            self.add(update, True)
        return x.op("dynamic-update-slice", update, *starts)

    def start(self) -> Value:
        scalars = [v for v in self.pool if v.dims == () and v.dtype.kind == "i" and self.is_exact(v)]
        if scalars and self.random.random() < 0.4:
            return self.random.choice(scalars)
        if self.random.random() < 0.5 and not self.smooth:
            value = Value(self.builder, self.builder.parameter(Shape(as_dtype("s32"))))
            self.add(value, True)
            return value
        instruction = self.builder.constant(self.random.randint(-1, 6), "s32")
        self.exact[instruction] = True
        return Value(self.builder, instruction)

    def some_dimensions(self, x: Value) -> list[int]:
        rank = len(x.dims)
        if self.random.random() < 0.5:
            return list(range(self.random.randint(0, rank), rank))
        return [d for d in range(rank) if self.random.random() < 0.5]

    def reduce(self, x: Value, dims: list[int] | None = None) -> Value | None:
        dims = self.some_dimensions(x) if dims is None else dims
        kinds = kind(x.dtype)
        opcode, start, exact = "add", 0, x.dtype.kind in "iu"
        if kinds == "pred":
            opcode, start = self.random.choice((("and", True), ("or", False), ("maximum", False)))
            exact = True
        elif kinds != "complex" and not self.smooth and self.random.random() < 0.5:
            opcode, exact = self.random.choice(("maximum", "minimum")), True
            start = OPS[opcode].identity(x.dtype)
        if self.random.random() < 0.2 and not self.smooth:
            start = self.number(x.dtype)
        result = x.reduce(opcode, start, dims)
        self.add(result, exact and self.is_exact(x))
        return result

    def reduce_pairs(self, x: Value) -> None:
        """The place of the largest element, or another combiner that is no single op."""
        dims = self.some_dimensions(x)
        if not dims or x.dtype in COMPLEX or x.dtype == PRED or not self.is_exact(x) or x.dtype in NARROW_FLOATS:
            return
        counter = Value(
            self.builder, self.builder.emit("iota", shape=x.shape.with_dtype(as_dtype("s32")), iota_dimension=dims[0])
        )
        lowest = self.builder.constant(np.asarray(OPS["maximum"].identity(x.dtype)).astype(x.dtype))
        zero = self.builder.constant(0, "s32")
        root = self.builder.emit(
            "reduce", x.instruction, counter.instruction, lowest, zero, dimensions=tuple(dims),
            to_apply=largest_and_place(x.dtype),
        )  # fmt: skip
        for k in range(2):
            self.add(Value(self.builder, self.builder.emit("get-tuple-element", root, index=k)), True)

    def normalize(self, x: Value) -> None:
        """x combined with a reduction of itself, as softmax and layer norm do; often twice."""
        for _ in range(self.random.randint(1, 2)):
            if x.dtype == PRED or not x.dims:
                return
            first = self.random.randint(0, len(x.dims) - 1)
            dims = list(range(first, len(x.dims)))
            if self.random.random() < 0.2:
                dims = self.some_dimensions(x)
            total = self.reduce(x, dims)
            if total is None or total.instruction not in self.exact:
                return
            wide = total.broadcast(x.dims, [k for k in range(len(x.dims)) if k not in dims])
            names = ("add", "subtract") if x.dtype in COMPLEX or self.smooth else EXACT_BINARY[kind(x.dtype)][:5]
            name = self.random.choice(names)
            exact = self.is_exact(x, total) and (x.dtype not in NARROW_FLOATS or name in ("maximum", "minimum"))
            x = x.op(name, wide)
            if x.dtype in FLOATS and self.random.random() < 0.4:
                x, exact = x.op("tanh"), False
            self.add(x, exact)

    def dot(self, x: Value) -> None:
        if x.dtype == PRED or not x.dims:
            return
        extent = self.random.choice(self.extents)
        d = self.random.randrange(len(x.dims))
        dims = [x.dims[d], extent]
        self.random.shuffle(dims)
        side = dims.index(x.dims[d])
        fitting = [v for v in self.pool if v.dtype == x.dtype and v.dims == tuple(dims)]
        if fitting and self.random.random() < 0.5:
            y = self.random.choice(fitting)
        else:
            y = Value(self.builder, self.builder.parameter(x.shape.with_dims(dims)))
            self.add(y, True)
        batch = ()
        if len(x.dims) > 1 and self.random.random() < 0.3:
            b = self.random.choice([k for k in range(len(x.dims)) if k != d])
            y = Value(self.builder, self.builder.parameter(x.shape.with_dims([x.dims[b], *dims])))
            self.add(y, True)
            side += 1
            batch = (b,)
        result = x.op(
            "dot", y, lhs_batch_dims=batch, rhs_batch_dims=(0,) if batch else (), lhs_contracting_dims=(d,),
            rhs_contracting_dims=(side,),
        )  # fmt: skip
        exact = x.dtype.kind in "iu" and self.is_exact(x, y)
        if x.dtype in FLOATS and self.random.random() < 0.5:
            result, exact = result.op("tanh"), False
        self.add(result, exact)


_largest: dict = {}


def largest_and_place(dtype) -> Computation:
    """(value, place, other value, other place) -> those of the larger value; the first one where they are equal."""
    if dtype not in _largest:
        builder = Builder("largest")
        value, place, other, index = (
            Value(builder, builder.parameter(Shape(as_dtype(t)))) for t in (dtype, "s32", dtype, "s32")
        )
        keep = value.compare("GE", other)
        _largest[dtype] = builder.finish(
            builder.tuple([keep.where(value, other).instruction, keep.where(place, index).instruction])
        )
    return _largest[dtype]


def arguments(module: Module, seed: int) -> list[np.ndarray]:
    """Small values: quarters for floats, so that sums of few of them are exact."""
    rng = np.random.default_rng(seed)
    result = []
    for parameter in module.entry.parameters:
        dtype, dims = parameter.dtype, parameter.dims
        if dtype == PRED:
            array = rng.random(dims) < 0.5
        elif dtype.kind == "u":
            array = rng.integers(0, 10, dims)
        elif dtype.kind == "i":
            array = rng.integers(-9, 10, dims)
        elif dtype in COMPLEX:
            array = rng.integers(-8, 9, dims) / 4 + 1j * rng.integers(-8, 9, dims) / 4
        else:
            array = rng.integers(-8, 9, dims) / 4
        result.append(np.array(np.asarray(array).astype(dtype), order="C"))
    return result


def reference(module: Module, arrays) -> tuple[list[np.ndarray], float, dict]:
    """(the outputs, the largest magnitude of any float value on the way, all values)."""
    from hloom.ir.interpret import evaluate_instruction

    values = dict(zip(module.entry.parameters, arrays, strict=True))
    scale = 1.0
    with np.errstate(all="ignore"):
        for instruction in module.entry.instructions:
            if instruction not in values:
                operands = [values[o] for o in instruction.operands]
                values[instruction] = evaluate_instruction(instruction, operands)
            if isinstance(instruction.shape, TupleShape) or instruction.dtype not in FLOATS | COMPLEX:
                continue
            sizes = np.abs(np.asarray(values[instruction]).astype(np.complex128))
            finite = sizes[np.isfinite(sizes)]
            scale = max(scale, float(finite.max()) if finite.size else 0.0)
    result = values[module.entry.root]
    return (list(result) if isinstance(result, tuple) else [result]), scale, values


def tolerance(module: Module) -> float:
    """The relative error that the narrowest dtype on the way allows."""
    dtypes = {i.dtype for i in module.entry.instructions if isinstance(i.shape, Shape)}
    if as_dtype("bf16") in dtypes:
        return 6e-2
    if as_dtype("f16") in dtypes:
        return 6e-3
    return 3e-5 if dtypes & {as_dtype("f32"), as_dtype("c64")} else 1e-11


def assert_near(got, want, relative: float, scale: float, exact: bool) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape, (got.dtype, got.shape, want.dtype, want.shape)
    if exact or want.dtype.kind in "biu":
        wide = want.dtype if want.dtype.kind in "biu" else np.complex128
        np.testing.assert_array_equal(got.astype(wide), want.astype(wide))
        return
    np.testing.assert_allclose(
        got.astype(np.complex128), want.astype(np.complex128), rtol=relative, atol=relative * min(scale, 1e30)
    )


def overflows_narrow_floats(module: Module, arrays) -> bool:
    """Whether a value of a narrow float is infinite: code that has it in f32 until it is stored gives other results."""
    values = reference(module, arrays)[2].items()
    return any(
        np.isinf(np.asarray(value).astype(np.float32)).any()
        for instruction, value in values
        if isinstance(instruction.shape, Shape) and instruction.dtype in NARROW_FLOATS
    )


def check_outputs(programs: Programs, module: Module, got, arrays) -> None:
    """Outputs against the reference, bit for bit where they are exact."""
    want, scale, _ = reference(module, arrays)
    relative = tolerance(module)
    roots = module.entry.outputs()
    for root, g, w in zip(roots, got, want, strict=True):
        assert_near(g, w, relative, scale, programs.exact.get(root, False))
