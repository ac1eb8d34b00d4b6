"""What native functions (the driver) need beyond kernel text: memory by address, atomics, calls through a pointer.

All addresses and values are int64. `load(address, index)` reads word `index` of 8 bytes.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import llvmlite.ir as ir
from numba.core import types
from numba.core.extending import intrinsic

_I64 = ir.IntType(64)


def _word(builder, address, index):
    return builder.gep(builder.inttoptr(address, _I64.as_pointer()), [index])


_INTRINSICS: dict[str, object] = {}


def _define(parameters: int, result: types.Type, name: str = ""):
    """Decorator: enters an intrinsic of `parameters` int64 values, from emit(builder, module, values).

    name: that of `emit` by default.
    """

    def enter(emit):
        entered = name or emit.__name__

        def lower(context, builder, signature, values):
            value = emit(builder, builder.module, values)
            return context.get_dummy_value() if value is None else value

        signature = result(*[types.int64] * parameters)
        names = ", ".join(f"a{position}" for position in range(parameters))
        scope: dict[str, Any] = {"signature": signature, "lower": lower}
        # Numba reads the number of parameters from the Python signature.
        exec(f"def {entered}(typing{', ' + names if names else ''}):\n    return signature, lower", scope)
        _INTRINSICS[entered] = intrinsic(scope[entered])

    return enter


@_define(2, types.int64)
def load(builder, module, values):
    return builder.load(_word(builder, *values))


@_define(3, types.void)
def store(builder, module, values):
    builder.store(values[2], _word(builder, *values[:2]))


@_define(1, types.int64)
def load_byte(builder, module, values):
    return builder.zext(builder.load(builder.inttoptr(values[0], ir.IntType(8).as_pointer())), _I64)


@_define(2, types.void)
def store_byte(builder, module, values):
    """store_byte(address, value): its lowest 8 bits."""
    byte = ir.IntType(8)
    builder.store(builder.trunc(values[1], byte), builder.inttoptr(values[0], byte.as_pointer()))


def _ordered(prefix: str, ordering: str) -> None:
    """Enters PREFIX_load and PREFIX_store: atomic, in one of LLVM's orderings."""

    def load(builder, module, values):
        return builder.load_atomic(_word(builder, *values), ordering, 8)

    def store(builder, module, values):
        builder.store_atomic(values[2], _word(builder, *values[:2]), ordering, 8)

    _define(2, types.int64, f"{prefix}_load")(load)
    _define(3, types.void, f"{prefix}_store")(store)


_ordered("atomic", "seq_cst")
_ordered("relaxed", "monotonic")


@_define(3, types.int64)
def atomic_add(builder, module, values):
    """Add and give the value before."""
    return builder.atomic_rmw("add", _word(builder, *values[:2]), values[2], "seq_cst")


@_define(4, types.boolean)
def compare_exchange(builder, module, values):
    """compare_exchange(address, index, expected, new): whether the word held `expected` and now holds `new`."""
    pair = builder.cmpxchg(_word(builder, *values[:2]), values[2], values[3], "seq_cst", "seq_cst")
    return builder.extract_value(pair, 1)


@_define(4, types.void)
def call_kernel(builder, module, values):
    """call_kernel(kernel, args, lo, hi) through the kernel's address."""
    kind = ir.FunctionType(ir.VoidType(), [_I64, _I64, _I64])
    builder.call(builder.inttoptr(values[0], kind.as_pointer()), values[1:])


@_define(4, types.int64)
def call_function(builder, module, values):
    """call_function(address, a, b, c): what the C function at an address returns. One that has fewer parameters ignores
    the rest."""
    kind = ir.FunctionType(_I64, [_I64, _I64, _I64])
    return builder.call(builder.inttoptr(values[0], kind.as_pointer()), values[1:])


@_define(8, types.int64)
def call_function_of_7(builder, module, values):
    """call_function_of_7(address, a, b, c, d, e, f, g): `call_function` with seven arguments."""
    kind = ir.FunctionType(_I64, [_I64] * 7)
    return builder.call(builder.inttoptr(values[0], kind.as_pointer()), values[1:])


@_define(3, types.void)
def copy_bytes(builder, module, values):
    """copy_bytes(target, source, count); the places may overlap."""
    kind = ir.FunctionType(_I64, [_I64, _I64, _I64])
    move = module.globals.get("memmove") or ir.Function(module, kind, "memmove")
    builder.call(move, values)


@_define(0, types.void)
def pause(builder, module, values):
    """Tell the processor that this is a waiting loop."""
    arch = llvm.get_process_triple().split("-")[0]
    text = {"x86_64": "pause", "aarch64": "isb", "arm64": "isb"}.get(arch, "")
    builder.asm(ir.FunctionType(ir.VoidType(), []), text, "~{memory}", [], side_effect=True)


def _crc32c(name: str, instruction: str, operand: str) -> None:
    """Enters NAME(crc, value): one step of CRC-32C (Castagnoli) by the instruction of SSE4.2, without the inversions at
    the start and at the end. The caller asks whether the processor has it; where no x86-64 has, the crc comes back."""

    def emit(builder, module, values):
        if not llvm.get_process_triple().startswith("x86_64"):
            return values[0]
        kind = ir.FunctionType(_I64, [_I64, _I64])
        return builder.asm(kind, f"{instruction} {operand}, $0", "=r,0,r", values, side_effect=False)

    _define(2, types.int64, name)(emit)


_crc32c("crc32c_word", "crc32q", "$2")
_crc32c("crc32c_byte", "crc32b", "${2:b}")


def namespace() -> dict[str, object]:
    """The names that a native function's text may use."""
    return dict(_INTRINSICS)
