"""Arrays in a user's kernel: element-wise expressions, slices, reductions, assignments, as loops over elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from hloom.compiler.kernel_ir.nodes import Assign, Binary, Call, Const, For, If, Jump, Load, Scratch, Var, While
from hloom.errors import ArgumentError, ShapeError, UnsupportedError
from hloom.ir.op_table import OPS
from hloom.ir.types import HLO_NAME, PRED, default_dtype
from hloom.kernels.frontend import ranges
from hloom.kernels.frontend.arithmetic import register
from hloom.kernels.frontend.memory import Memory
from hloom.kernels.frontend.values import S64, Lazy, Number, View, integer
from hloom.numpy.reducing.reductions import sum_dtype

__all__ = ["Array", "Arrays"]

Array = View | Lazy
SCRATCH = 1 << 20  # bytes of one array that an iteration has for itself
_NAMES = "ijkl"
_OPCODES = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "and": "and", "or": "or"}
_TOTALS = {"sum": "total", "prod": "product", "max": "largest", "min": "smallest", "and": "every", "or": "some"}


class Arrays(Memory):
    """Accesses of memory, and expressions of whole arrays."""

    # --- shapes

    def number_at(self, array: Array, indices: Sequence[Number]) -> Number:
        return self.load(array, indices) if isinstance(array, View) else array.element(indices)

    def lazy(self, value: Array | Number) -> Lazy:
        """A value as an expression of elements."""
        if isinstance(value, Lazy):
            return value
        if isinstance(value, Number):
            return Lazy((), value.dtype, value.weak, lambda indices: value, cheap=True)
        return Lazy(value.dims, value.dtype, False, lambda indices: self.load(value, indices), (value,), True)

    def common_dims(self, *arrays: Array | Number) -> tuple[Number, ...]:
        """The dimensions of a broadcast."""
        shapes = [a.dims for a in arrays if not isinstance(a, Number)]
        rank = max(map(len, shapes), default=0)
        padded = [(integer(1),) * (rank - len(dims)) + tuple(dims) for dims in shapes]
        return tuple([self._common(*sizes) for sizes in zip(*padded, strict=True)])

    def _common(self, *sizes: Number) -> Number:
        wide = [size for size in sizes if size.known != 1]
        if not wide:
            return integer(1)
        for other in wide[1:]:
            self._require_equal(wide[0], other)
        return wide[0]

    def _require_equal(self, size: Number, other: Number) -> None:
        if size.expr == other.expr or (size.known is not None and size.known == other.known):
            return
        if size.known is not None and other.known is not None:
            self.refuse(
                ShapeError, "arrays are combined element by element", f"sizes {size.known} and {other.known}",
                "give them the same shape, or a size of 1",
            )  # fmt: skip
        differs = self.compare("!=", size, other)
        self.fail_if(differs.expr, "sizes of arrays that are combined differ: the second one", None, other.expr)

    def product(self, sizes: Sequence[Number]) -> Number:
        found = integer(1)
        for size in sizes:
            found = self.binary("*", found, size)
        return found

    # --- element-wise

    def elementwise(self, function: Callable[..., Number], *values: Array | Number) -> Array | Number:
        """A function of numbers, of each element."""
        if all(isinstance(value, Number) for value in values):
            return function(*values)
        values = tuple([self._once(v) if isinstance(v, Number) else v for v in values])
        dims = self.common_dims(*values)
        parts = [self._spread(self.lazy(value), dims) for value in values]
        dtype, weak = self._dtype_of(function, parts)
        reads = tuple([view for part in parts for view in part.reads])
        return Lazy(dims, dtype, weak, lambda at: function(*[part.element(at) for part in parts]), reads)

    def _once(self, value: Number) -> Number:
        """A number that is combined with each element of an array: computed before, of memory as it is then."""
        if not any(isinstance(e, (Load, Call)) for e in value.expr.walk()):
            return value
        return Number(self._held(value.expr), value.dtype, value.weak, value.span, value.known)

    def _dtype_of(self, function: Callable[..., Number], parts: Sequence[Lazy]) -> tuple[np.dtype, bool]:
        """The dtype of a function's result for numbers, from a call whose statements are discarded."""
        block, self.block = self.block, []
        names = set(self.taken)
        samples = [Number(Var(register(p.dtype), "sample"), p.dtype, p.weak) for p in parts]
        made = function(*samples)
        self.block, self.taken = block, names
        return made.dtype, made.weak

    def _spread(self, array: Lazy, dims: tuple[Number, ...]) -> Lazy:
        skipped = len(dims) - len(array.dims)
        single = [size.known == 1 and dims[skipped + k].known != 1 for k, size in enumerate(array.dims)]
        if not skipped and not any(single):
            return array
        if array.dims and not array.cheap:  # each element would be computed many times
            array = self.lazy(self.kept(array, "part"))

        def element(at: Sequence[Number]) -> Number:
            return array.element([integer(0) if one else k for one, k in zip(single, at[skipped:], strict=True)])

        return Lazy(dims, array.dtype, array.weak, element, array.reads)

    # --- loops and assignments

    def over(self, dims: Sequence[Number], body: Callable[[list[Number]], None]) -> None:
        """Loops over all indices of an array."""
        indices: list[Number] = []

        def loop(k: int) -> None:
            if k == len(dims):
                body(indices)
                return
            var = Var("s64", self.fresh(_NAMES[min(k, 3)]))
            most = dims[k].span[1]
            high = None if most is None else most - 1
            self.spans[var], self.limits[var] = (0, high), dims[k].expr
            self.loop_spans[var] = (0, high)
            if most is not None:
                self.trips[var] = most
            self.loops.serial.add(var)
            indices.append(Number(var, S64, span=(0, high)))
            outer, self.block = self.block, []
            loop(k + 1)
            outer.append(For(var, Const("s64", 0), dims[k].expr, Const("s64", 1), self.block))
            self.block = outer

        if all(size.known == 1 for size in dims):
            body([integer(0)] * len(dims))
        else:
            loop(0)

    def assign(self, target: View, value: Array | Number) -> None:
        """`target[...] = value`."""
        self.require_writable(target)
        if isinstance(value, Number):
            held = Number(self._held(value.expr), value.dtype, value.weak, value.span, value.known)
            self.over(target.dims, lambda at: self.store(target, at, held))
            return
        array = self.lazy(value)
        if len(array.dims) > len(target.dims):
            self.refuse(
                ShapeError, f"an array is assigned to '{target.name}'",
                f"it has {len(array.dims)} dimensions, the target {len(target.dims)}", "assign an array of its shape",
            )  # fmt: skip
        self._fit(target, array)
        if any(view.pointer is target.pointer and not _same_place(view, target) for view in array.reads):
            array = self.lazy(self.kept(array, target.name))  # NumPy computes the whole right side first
        parts = self._spread(array, target.dims)
        self.over(target.dims, lambda at: self.store(target, at, parts.element(at)))

    def _fit(self, target: View, array: Lazy) -> None:
        skipped = len(target.dims) - len(array.dims)
        for size, other in zip(target.dims[skipped:], array.dims, strict=True):
            if other.known != 1:
                self._require_equal(size, other)

    def kept(self, array: Array, hint: str) -> View:
        """An array expression in memory of this iteration."""
        array = self.lazy(array)
        dtype = array.dtype
        if array.weak:
            dtype = default_dtype(float) if dtype.kind == "f" else dtype
        view = self.scratch(array.dims, dtype, hint)
        self.over(array.dims, lambda at: self.store(view, at, array.element(at)))
        return view

    def scratch(self, dims: Sequence[Number], dtype: np.dtype, hint: str) -> View:
        """Memory of this iteration."""
        most = [size.span[1] for size in dims]
        if None in most:
            self.refuse(
                UnsupportedError, f"an array '{hint}' in a loop", "its size has no bound that is known while compiling",
                "give it a size of the arguments' shapes, or of a number",
            )  # fmt: skip
        count = max(1, math.prod(max(1, size) for size in most if size is not None))
        kind = HLO_NAME[dtype]
        if count * dtype.itemsize > SCRATCH:
            self.refuse(
                UnsupportedError, f"an array '{hint}' in a loop", f"it takes {count * dtype.itemsize:,} bytes",
                f"an iteration has at most {SCRATCH:,} for one array: compute smaller parts, or make it before",
            )  # fmt: skip
        pointer = Var(f"*{kind}", self.fresh(hint))
        self.scratches.append(Scratch(pointer, count))
        return View(pointer, dtype, tuple(dims), self.strides(dims), integer(0), hint, True, True)

    scratches: list[Scratch]

    def strides(self, dims: Sequence[Number]) -> tuple[Number, ...]:
        """Of contiguous elements, the last dimension first."""
        found = [integer(1)]
        for size in reversed(dims[1:]):
            found.append(self.binary("*", size, found[-1]))
        return tuple(reversed(found[: len(dims)]))

    # --- reductions

    def reduced(self, kind: str, array: Array, axes: tuple[int, ...], keepdims: bool = False) -> Array | Number:
        """A sum, product, maximum, minimum, and, or over dimensions."""
        array = self.lazy(array)
        kept = [k for k in range(len(array.dims)) if k not in axes]
        dims = [array.dims[k] for k in kept]
        dtype = PRED if kind in ("and", "or") else array.dtype
        if kind in ("sum", "prod"):
            dtype = sum_dtype(dtype)
        if dtype.kind == "c" and kind in ("max", "min"):
            self.refuse(UnsupportedError, f"the {kind} of complex numbers in a kernel", f"{HLO_NAME[dtype]}",
                        "compare absolute values, or call it outside of the kernel")  # fmt: skip
        if kind in ("max", "min") and any(array.dims[k].known == 0 for k in axes):
            self.refuse(ShapeError, f"the {kind} of an array", "it has no elements", "see to it that it has some")

        def element(at: Sequence[Number]) -> Number:
            total = Var(register(dtype), self.fresh(_TOTALS[kind]), True)
            self.block.append(
                Assign(total, self.cast(self.number(OPS[_OPCODES[kind]].neutral(dtype).real.item()), dtype).expr)
            )

            def step(inner: Sequence[Number]) -> None:
                where = dict(zip(axes, inner, strict=True)) | dict(zip(kept, at, strict=True))
                value = array.element([where[k] for k in range(len(array.dims))])
                value = self.truth(value) if dtype == PRED else self.cast(value, dtype)
                if dtype.kind == "c":
                    made = self.binary("+" if kind == "sum" else "*", Number(total, dtype), value).expr
                else:
                    name = {"max": "accmax", "min": "accmin", "and": "accand", "or": "accor"}.get(kind, kind)
                    made = Call(total.type, f"{name}_{total.type}", (total, value.expr))
                self.block.append(Assign(total, made))

            self.over([array.dims[k] for k in axes], step)
            return Number(total, dtype)

        if not dims:
            return element(())
        if keepdims:
            whole = tuple([integer(1) if k in axes else size for k, size in enumerate(array.dims)])
            return self.kept(Lazy(whole, dtype, False, lambda at: element([at[k] for k in kept]), array.reads), kind)
        return self.kept(Lazy(tuple(dims), dtype, False, element, array.reads), kind)

    def place_of(self, kind: str, array: Array) -> Number:
        """The index of the first maximum or minimum of a vector. A NaN is both."""
        array = self.lazy(array)
        if len(array.dims) != 1 or array.dims[0].known == 0:
            self.refuse(
                ShapeError, f"arg{kind} of an array in a kernel", f"it has {len(array.dims)} dimensions",
                "take a slice that is a vector with elements",
            )  # fmt: skip
        first = array.element([integer(0)])
        best = Var(register(array.dtype), self.fresh("best"), True)
        place = Var("s64", self.fresh("place"), True)
        self.block += [Assign(best, first.expr), Assign(place, Const("s64", 0))]

        def step(at: Sequence[Number]) -> None:
            value = array.element(at)
            value = Number(self._held(value.expr), value.dtype)
            held = Number(best, value.dtype)
            better = self.binary(">" if kind == "max" else "<", value, held)
            if value.dtype.kind == "f":
                nan = self.call("and", self.binary("!=", value, value), self.binary("==", held, held))
                better = self.call("or", better, nan)
            self.block.append(If(better.expr, [Assign(best, value.expr), Assign(place, at[0].expr)]))

        self.over(array.dims, step)
        return Number(place, S64, span=(0, None if array.dims[0].span[1] is None else array.dims[0].span[1] - 1))

    def outer_product(self, op: str, left: Array | Number, right: Array | Number) -> Array | Number:
        """`left op right` of each pair of elements."""
        first, second = self.lazy(left), self.lazy(right)
        wide = Lazy((*first.dims, *[integer(1)] * len(second.dims)), first.dtype, first.weak,
                    lambda at: first.element(at[: len(first.dims)]), first.reads, first.cheap)  # fmt: skip
        return self.elementwise(lambda a, b: self.binary(op, a, b), wide, second)

    def dot(self, left: Array, right: Array) -> Array | Number:
        """The product of vectors and matrices."""
        if len(left.dims) > 1 or len(right.dims) > 1:
            return self._matrix_product(left, right)
        product = self.elementwise(lambda x, y: self.binary("*", x, y), left, right)
        assert isinstance(product, Lazy)
        if len(product.dims) != 1:
            self.refuse(
                UnsupportedError, "a product of arrays in a kernel", f"it has {len(product.dims)} dimensions",
                "multiply vectors (slices), or matrices outside of the kernel",
            )  # fmt: skip
        return self.reduced("sum", product, (0,))

    def _matrix_product(self, left: Array, right: Array) -> Array:
        first, second = self.lazy(left), self.lazy(right)
        if len(first.dims) > 2 or len(second.dims) > 2:
            self.refuse(UnsupportedError, "a product of arrays in a kernel",
                        f"they have {len(first.dims)} and {len(second.dims)} dimensions",
                        "multiply vectors and matrices")  # fmt: skip
        self._require_equal(first.dims[-1], second.dims[0])
        rows, columns = first.dims[:-1], second.dims[1:]
        _, dtype, weak = self.promoted(
            *[Number(Var(register(p.dtype), "sample"), p.dtype, p.weak) for p in (first, second)]
        )
        made = self.scratch((*rows, *columns), dtype, "product")
        zero = self.cast(self.number(0), dtype)
        self.over(made.dims, lambda at: self.store(made, at, zero))

        def add(at: Sequence[Number]) -> None:
            row, (inner, *column) = at[: len(rows)], at[len(rows) :]
            where = [*row, *column]
            product = self.binary("*", first.element([*row, inner]), second.element([inner, *column]))
            self.store(made, where, self.binary("+", self.load(made, where), product))

        self.over([*rows, first.dims[-1], *columns], add)
        return made

    def sorted_in_place(self, view: View) -> None:
        """Sorts a vector by insertion; a NaN is greater than all others."""
        self.require_writable(view)
        size = view.dims[0]
        outer = Var("s64", self.fresh("k"))
        place = Var("s64", self.fresh("at"), True)
        most = size.span[1]
        self.spans[outer] = (1, None if most is None else most - 1)
        block, self.block = self.block, []
        held = self.load(view, [Number(outer, S64, span=self.spans[outer])])
        kept = Number(self._held(held.expr), held.dtype)
        self.block.append(Assign(place, outer))
        body, self.block = self.block, []
        here = Number(place, S64, span=(1, None if most is None else most - 1))
        before = self.binary("-", here, integer(1))
        other = self.load(view, [before])
        other = Number(self._held(other.expr), other.dtype)
        after = self.compare("<=", other, kept)
        if other.dtype.kind == "f":
            after = self.call("or", after, self.compare("!=", kept, kept))
        self.block.append(If(after.expr, [Jump("break")]))
        self.store(view, [here], other)
        self.block.append(Assign(place, before.expr))
        inner, self.block = self.block, body
        self.block.append(While(Binary("pred", ">", place, Const("s64", 0)), inner))
        self.store(view, [Number(place, S64, span=(0, None if most is None else most - 1))], kept)
        body, self.block = self.block, block
        self.block.append(For(outer, Const("s64", 1), size.expr, Const("s64", 1), body))

    # --- indices and slices

    def sliced(self, view: View, dimension: int, part: slice) -> tuple[Number, Number, int | Number]:
        """(start, size, step) of `start:stop:step` along a dimension, as Python has it."""
        size = view.dims[dimension]
        step = 1 if part.step is None else part.step
        if isinstance(step, Number) and step.is_integer:  # the least it may be is checked when the kernel runs
            step = Number(self._held(self.whole(step).expr), S64, step.weak, step.span)
            if step.span[0] is None or step.span[0] < 1:
                test = self.compare("<", step, integer(1))
                self.fail_if(test.expr, f"the step of a slice of '{view.name}', at least 1", None, step.expr)
        elif not isinstance(step, int) or step == 0:
            self.refuse(ArgumentError, f"a slice of '{view.name}'", f"step {step!r}", "give a step of a known number")
        if isinstance(step, int) and step < 0:
            if part.start is not None or part.stop is not None:
                self.refuse(
                    UnsupportedError, f"a slice of '{view.name}' backwards", "it has bounds",
                    "slice forwards first, then reverse it: x[a:b][::-1]",
                )  # fmt: skip
            last = self.binary("-", size, integer(1))
            return last, self._steps(size, -step), step
        start = integer(0) if part.start is None else self._bound(part.start, size, view, dimension)
        if part.stop is None:
            stop = size
        else:
            stop = self.binary("min", self._bound(part.stop, size, view, dimension, True), size)
        length = self.binary("-", stop, start)
        if length.span[0] is None or length.span[0] < 0:
            length = self.binary("max", length, integer(0))
        most = ranges.meet(length.span, (0, size.span[1]))
        length = Number(self._held(length.expr), S64, length.weak, most, length.known)
        return start, self._steps(length, step), step

    def _steps(self, length: Number, step: int | Number) -> Number:
        if isinstance(step, Number):
            raised = self.binary("-", self.binary("+", length, step), integer(1))
            made = Number(Binary("s64", "//", raised.expr, step.expr), S64, True, length.span)
            return Number(self._held(made.expr), S64, True, length.span)
        if step == 1:
            return length
        return self.binary("//", self.binary("+", length, integer(step - 1)), integer(step))

    def _bound(self, bound: Number, size: Number, view: View, dimension: int, stop: bool = False) -> Number:
        bound = self.whole(bound)
        if bound.span[1] is not None and bound.span[1] < 0 and bound.known is not None:  # from the end
            return self.binary("max", self.binary("+", size, bound), integer(0))
        if stop and (bound.span[0] is None or bound.span[0] < 0):  # it may be negative when the kernel runs
            bound = Number(self._held(bound.expr), S64, bound.weak, bound.span, bound.known)
            from_end = self.binary("max", self.binary("+", size, bound), integer(0))
            negative = self.binary("<", bound, integer(0))
            if negative.known is not None:
                return from_end if negative.known else bound
            made = self.choice(negative.expr, from_end, bound)
            most = ranges.union(size.span, (0, bound.span[1]))
            return Number(made.expr, S64, made.weak, (0, most[1]), made.known)
        if not stop:
            bound = self.check(bound, self.binary("+", size, integer(1)), view, dimension)
            return Number(bound.expr, S64, bound.weak, ranges.meet(bound.span, (0, size.span[1])), bound.known)
        return bound


def _same_place(view: View, other: View) -> bool:
    """Whether two views have the same elements at the same indices."""
    own, others = [[v.start, *v.dims, *v.strides] for v in (view, other)]
    return len(own) == len(others) and all(a.expr == b.expr for a, b in zip(own, others, strict=True))
