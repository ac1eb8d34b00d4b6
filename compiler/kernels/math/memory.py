"""Loads and stores of dtypes without a register type of their own, and stack arrays."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from hloom.compiler.kernels.codegen.source import STREAM_MARK
from hloom.compiler.kernels.math.bits import from_bits, to_bits
from hloom.compiler.kernels.math.registry import COMPLEX, FLOATS, FUNCTIONS, INTEGERS, REGISTER, Function


def _enter(name: str, typing: Callable, parameters: tuple[str, ...], result: str, reference: str, **options) -> None:
    typing.__name__ = typing.__qualname__ = name
    typing.__doc__ = reference
    python = intrinsic(**options)(typing) if options else intrinsic(typing)
    FUNCTIONS[name] = Function(name, python, parameters, result, "intrinsic", 0.0, reference)


def _element(builder, pointer, index, width):
    """Address of element `index` of `width` bits, whatever the pointer's declared element type is."""
    return builder.gep(builder.bitcast(pointer, ir.IntType(width).as_pointer()), [index])


def load(dtype: str, width: int, register: Callable = from_bits) -> Callable:
    """Typing of a load of `width` bits; register(builder, dtype, bits) makes them a register of `dtype`."""

    def typing(context, pointer, index):
        if not isinstance(pointer, types.CPointer):
            return None

        def emit(context, builder, signature, values):
            pointer, index = values
            bits = builder.load(_element(builder, pointer, index, width))
            if dtype == "pred":
                return builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))
            return register(builder, dtype, bits)

        return REGISTER[dtype](pointer, types.int64), emit

    return typing


def _store(dtype: str, streamed: bool = False) -> Callable:
    def typing(context, pointer, index, value):
        if not isinstance(pointer, types.CPointer):
            return None

        def emit(context, builder, signature, values):
            pointer, index, value = values
            if dtype in ("f16", "bf16"):
                value = to_bits(builder, dtype, value)
            elif dtype == "pred":
                value = builder.zext(value, ir.IntType(8))
            if value.type != pointer.type.pointee:
                pointer = builder.bitcast(pointer, value.type.as_pointer())
            stored = builder.store(value, builder.gep(pointer, [index]))
            if streamed:
                mark = builder.module.add_metadata(["hloom", "streamed"])
                stored.set_metadata(STREAM_MARK.removeprefix("!"), mark)
            return context.get_dummy_value()

        return types.void(pointer, types.int64, REGISTER[dtype]), emit

    return typing


for _dtype, _width in (("f16", 16), ("bf16", 16), ("pred", 8)):
    _enter(f"load_{_dtype}", load(_dtype, _width), (f"{_dtype}*", "s64"), _dtype, "element of a pointer")
    _enter(f"store_{_dtype}", _store(_dtype), (f"{_dtype}*", "s64", _dtype), "", "round to nearest even, store")

for _dtype in ("pred", *INTEGERS, "f16", "bf16", *FLOATS):
    _parameters = (f"{_dtype}*", "s64", _dtype)
    _note = "non-temporal store, where the target has such stores: for results that do not fit into the caches"
    _enter(f"stream_{_dtype}", _store(_dtype, True), _parameters, "", _note)


def _scratch(dtype: str) -> Callable:
    """The array stands in the entry block, so a call inside a loop takes no more stack in each iteration."""

    def typing(context, count):
        if not isinstance(count, types.IntegerLiteral):
            return None
        element = types.uint8 if dtype == "pred" else types.uint16 if dtype in ("f16", "bf16") else REGISTER[dtype]

        def emit(context, builder, signature, values):
            kind = context.get_data_type(element)
            with builder.goto_entry_block():
                array = builder.alloca(kind, ir.Constant(ir.IntType(64), count.literal_value), name=f"scratch_{dtype}")
            array.align = 64
            return array

        return types.CPointer(element)(count), emit

    return typing


for _dtype in ("pred", *INTEGERS, "f16", "bf16", *FLOATS, *COMPLEX):
    _note = "pointer to a stack array of that many elements (a literal), 64-byte aligned, contents undefined"
    _enter(f"scratch_{_dtype}", _scratch(_dtype), ("s64",), f"{_dtype}*", _note, prefer_literal=True)
