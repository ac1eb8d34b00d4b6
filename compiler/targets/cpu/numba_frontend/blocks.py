"""Blocks of memory and addresses for kernel sources that Numba compiles; `microkernels.fma` documents the names."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable

from llvmlite import ir
from numba.core import types
from numba.core.errors import TypingError
from numba.extending import intrinsic

from hloom.compiler.targets.cpu.microkernels import fma
from hloom.compiler.targets.cpu.microkernels.ir_building import BYTE, BYTES, ELEMENTS, I64, VOID
from hloom.compiler.targets.cpu.microkernels.names import argument_count, move_of, symbol_of
from hloom.compiler.targets.cpu.numba_frontend.builtins import separate_types
from hloom.compiler.targets.cpu.numba_frontend.frontend import external


def _integer(value: int) -> ir.Constant:
    return ir.Constant(I64, value)


def _check_int64(arguments, name) -> None:
    for argument in arguments:
        if isinstance(argument, types.Tuple | types.UniTuple):
            _check_int64(argument.types, name)
            continue
        if not isinstance(argument, types.Integer | types.IntegerLiteral):
            raise TypingError(f"{name} takes int64 addresses, strides and counts, not {argument}")


def _block(name: str, count: int):
    """A call of a block function, which the kernel is linked with."""
    return external(symbol_of(name), "void", ["s64"] * count, lambda given: _check_int64(given, name))


def _copy(name: str, dtype: str, count: int):
    """Copies of `count` elements, in as few vectors as their powers of two."""

    @intrinsic
    def copy(typing, source, target):
        _check_int64((source, target), name)

        def emit(context, builder, signature, arguments):
            source, target = (builder.inttoptr(x, BYTES) for x in arguments)
            done = 0
            while done < count:
                lanes = min(1 << ((count - done).bit_length() - 1), 64)
                _move(builder, dtype, lanes, source, target, _integer(done))
                done += lanes
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), emit

    return copy


def _copy_first(name: str, dtype: str, columns: int):
    """Copies of the first `count` <= `columns` elements: one branch for each power of two, which a loop that copies
    many rows of the same length predicts."""

    @intrinsic
    def copy_first(typing, source, target, count):
        _check_int64((source, target, count), name)

        def emit(context, builder, signature, arguments):
            source, target, count = arguments
            source, target = builder.inttoptr(source, BYTES), builder.inttoptr(target, BYTES)
            lanes = 1 << (columns.bit_length() - 1)
            while lanes:
                has = builder.icmp_unsigned("!=", builder.and_(count, _integer(lanes)), _integer(0))
                with builder.if_then(has):
                    # The elements before these are those of the larger powers of two.
                    _move(builder, dtype, lanes, source, target, builder.and_(count, _integer(-2 * lanes)))
                lanes //= 2
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), emit

    return copy_first


def _zero(name: str, dtype: str, count: int):
    vector = ir.VectorType(ELEMENTS[dtype][0], count & -count)

    @intrinsic
    def zero(typing, target):
        _check_int64((target,), name)

        def emit(context, builder, signature, arguments):
            for x in range(0, count, vector.count):
                place = builder.inttoptr(builder.add(arguments[0], _integer(x * ELEMENTS[dtype][2])), BYTES)
                builder.store(ir.Constant(vector, None), place, align=ELEMENTS[dtype][2])
            return context.get_dummy_value()

        return types.void(types.int64), emit

    return zero


def _move(builder: ir.IRBuilder, dtype: str, lanes: int, source, target, first) -> None:
    """One vector from source to target, both at element `first`."""
    element, _, size = ELEMENTS[dtype]
    offset = builder.mul(first, _integer(size))
    here, there = (builder.gep(pointer, [offset], source_etype=BYTE) for pointer in (source, target))
    builder.store(builder.load(here, align=size, typ=ir.VectorType(element, lanes)), there, align=size)


@intrinsic
def address(typing, pointer):
    """The byte address (int64) of a kernel's pointer."""
    if not isinstance(pointer, types.CPointer):
        raise TypingError(f"address() takes a pointer, not {pointer}")

    def emit(context, builder, signature, arguments):
        return builder.ptrtoint(arguments[0], I64)

    return types.int64(pointer), emit


@intrinsic
def quotient(typing, dividend, divisor):
    """dividend // divisor of int64 that are not negative: one instruction, where `//` looks after signs and zero."""
    _check_int64((dividend, divisor), "quotient")

    def emit(context, builder, signature, arguments):
        return builder.udiv(*arguments)

    return types.int64(types.int64, types.int64), emit


@intrinsic
def call_kernel(typing, function, lo, hi, *words):
    """Call a kernel of another module by its address, for the items lo <= item < hi: `words` are its parameters, all
    as int64 (pointers as addresses)."""
    _check_int64((function, lo, hi, *words), "call_kernel")
    given = separate_types(words)

    def emit(context, builder, signature, arguments):
        function, lo, hi, *rest = arguments
        values = [builder.extract_value(rest[0], i) for i in range(len(given))]
        with builder.goto_entry_block():
            block = builder.alloca(I64, ir.Constant(I64, len(values)))
        for i, value in enumerate(values):
            builder.store(value, builder.gep(block, [_integer(i)]))
        kind = ir.FunctionType(VOID, [I64.as_pointer(), I64, I64])
        builder.call(builder.inttoptr(function, kind.as_pointer()), [block, lo, hi])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.StarArgTuple([types.int64] * len(given))), emit


@intrinsic
def prefetch(typing, place):
    """Ask for the cache line at a byte address, which need not be one of ours."""
    _check_int64((place,), "prefetch")

    def emit(context, builder, signature, arguments):
        fma.prefetch(builder, builder.inttoptr(arguments[0], BYTES), 3)
        return context.get_dummy_value()

    return types.void(types.int64), emit


_SINGLE = {"address": address, "quotient": quotient, "call_kernel": call_kernel, "prefetch": prefetch}
_MOVES = {"copy": _copy, "copy_first": _copy_first, "zero": _zero}


@functools.cache
def resolve(name: str):
    """The Numba intrinsic of a name (`tile_f32_6x16`, `copy_f32_16`, `address`, ...). Raises KeyError for another name
    or dtype."""
    if name in _SINGLE:
        return _SINGLE[name]
    if (count := argument_count(name)) is not None:
        return _block(name, count)
    if move := move_of(name):
        return _MOVES[move.kind](name, move.dtype, move.elements)
    raise KeyError(name)


def namespace(names: Iterable[str]) -> dict[str, object]:
    """Those of some names that are names of this module."""
    found = {}
    for name in names:
        with contextlib.suppress(KeyError):
            found[name] = resolve(name)
    return found
