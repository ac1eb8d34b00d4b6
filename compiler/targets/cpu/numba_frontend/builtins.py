"""`range`, `min` and `max` for kernel text, in a form that LLVM reads quickly.

Numba's own `range` counts a trip count down in memory and raises for a step of zero: for each loop some forty
instructions and three more blocks, all of which LLVM has to take away again. Here a loop is `i < stop` and `i += step`.
The direction is decided while compiling where the step is a literal (the usual case). Numba's `min` and `max` are
Python functions which it would compile first; here each is a compare and a select.
"""

from __future__ import annotations

from numba.core import cgutils, types
from numba.core.datamodel import models, register_default
from numba.core.extending import intrinsic
from numba.core.imputils import RefType, iternext_impl, lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature


def counting_range(*bounds):
    """`range(stop)`, `range(start, stop)`, `range(start, stop, step)` over int64; a step of zero is not checked."""
    return range(*bounds)


class CountingRange(types.SimpleIterableType):
    """Type of the value of `range(...)`. direction: 1 or -1 where the sign of the step is known, otherwise 0."""

    def __init__(self, direction: int):
        self.direction = direction
        super().__init__(f"counting_range({direction})", CountingIterator(direction))


class CountingIterator(types.SimpleIteratorType):
    """The Numba type of an iterator over a counting range."""

    def __init__(self, direction: int):
        self.direction = direction
        super().__init__(f"counting_iterator({direction})", types.int64)


@register_default(CountingRange)
class CountingRangeModel(models.StructModel):
    """The fields of a counting range in LLVM IR."""

    def __init__(self, manager, of):
        super().__init__(manager, of, [("start", types.int64), ("stop", types.int64), ("step", types.int64)])


@register_default(CountingIterator)
class CountingIteratorModel(models.StructModel):
    """The fields of its iterator in LLVM IR."""

    def __init__(self, manager, of):
        members = [("next", types.CPointer(types.int64)), ("stop", types.int64), ("step", types.int64)]
        super().__init__(manager, of, members)


@infer_global(counting_range)
class CountingRangeTyping(AbstractTemplate):
    """The types that a counting range accepts and returns."""

    prefer_literal = True

    def generic(self, args, kws):
        if kws or not 1 <= len(args) <= 3 or not all(isinstance(arg, types.Integer) for arg in args):
            return None
        if len(args) < 3:
            direction = 1
        else:
            step = args[2]
            direction = 0 if not isinstance(step, types.IntegerLiteral) else 1 if step.literal_value > 0 else -1
        return signature(CountingRange(direction), *(types.int64 for _ in args))


def _make(context, builder, sig, args):
    value = cgutils.create_struct_proxy(sig.return_type)(context, builder)
    constant = lambda number: context.get_constant(types.int64, number)  # noqa: E731
    value.start = args[0] if len(args) > 1 else constant(0)
    value.stop = args[1] if len(args) > 1 else args[0]
    value.step = args[2] if len(args) > 2 else constant(1)
    return value._getvalue()


for _count in (1, 2, 3):
    lower_builtin(counting_range, *[types.int64] * _count)(_make)


@lower_builtin("getiter", CountingRange)
def _getiter(context, builder, sig, args):
    bounds = cgutils.create_struct_proxy(sig.args[0])(context, builder, args[0])
    iterator = cgutils.create_struct_proxy(sig.return_type)(context, builder)
    iterator.next = cgutils.alloca_once(builder, bounds.start.type)
    builder.store(bounds.start, iterator.next)
    iterator.stop = bounds.stop
    iterator.step = bounds.step
    return iterator._getvalue()


@lower_builtin("iternext", CountingIterator)
@iternext_impl(RefType.UNTRACKED)
def _iternext(context, builder, sig, args, result):
    iterator = cgutils.create_struct_proxy(sig.args[0])(context, builder, args[0])
    direction = sig.args[0].direction
    current = builder.load(iterator.next)
    upward = builder.icmp_signed("<", current, iterator.stop)
    downward = builder.icmp_signed(">", current, iterator.stop)
    if direction == 0:
        rising = builder.icmp_signed(">", iterator.step, context.get_constant(types.int64, 0))
        valid = builder.select(rising, upward, downward)
    else:
        valid = upward if direction > 0 else downward
    result.set_valid(valid)
    # The next value is stored before the body runs, as nothing reads it after the last iteration; without a branch
    # here the loop has one block less.
    result.yield_(current)
    builder.store(builder.add(current, iterator.step, flags=["nsw"]), iterator.next)


def separate_types(arguments: tuple[types.Type, ...]) -> tuple[types.Type, ...]:
    """The types of `*arguments`, which Numba gives one by one or as those of a single tuple."""
    if len(arguments) == 1 and isinstance(arguments[0], (types.UniTuple, types.Tuple)):
        return tuple(arguments[0].types)
    return arguments


def _extremum(name: str, comparison: str):
    """Python's `min` or `max` of two or more numbers of one kind; of integers the result is int64."""

    def typing(context, *numbers):
        numbers = separate_types(numbers)
        plain = {types.unliteral(number) for number in numbers}
        if len(numbers) < 2:
            return None
        if all(isinstance(kind, types.Integer) for kind in plain):
            kind = types.int64
        elif len(plain) == 1 and isinstance(next(iter(plain)), types.Float):
            (kind,) = plain
        else:
            return None

        def lower(context, builder, sig, args):
            (values,) = args
            values = [
                context.cast(builder, builder.extract_value(values, position), given, kind)
                for position, given in enumerate(sig.args[0])
            ]
            compare = builder.icmp_signed if kind is types.int64 else builder.fcmp_ordered
            best = values[0]
            for value in values[1:]:
                best = builder.select(compare(comparison, value, best), value, best)
            return best

        return kind(types.StarArgTuple(numbers)), lower

    typing.__name__ = name
    return intrinsic(typing)


smallest = _extremum("smallest", "<")
largest = _extremum("largest", ">")

# Kernel text says the names on the left. Numba refuses a builtin's name with another meaning, so the front end renames.
REPLACEMENTS = {
    "range": ("counting_range", counting_range),
    "min": ("smallest", smallest),
    "max": ("largest", largest),
}
