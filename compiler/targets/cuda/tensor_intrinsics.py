"""The names that only matrix products have, as intrinsics: shared arrays, 16 bytes at a time, copies that do not wait,
tensor cores. Importing this module needs the extra `cuda`.

What LLVM has no instruction for is PTX in the text of an `asm`. Addresses of shared memory are 32-bit numbers there.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import types
from numba.cuda.extending import intrinsic

from hloom.compiler.kernels.vmath.registry import REGISTER

_WORD, _LONG, _FLOAT, _VOID = ir.IntType(32), ir.IntType(64), ir.FloatType(), ir.VoidType()
_SHARED, _GLOBAL = 3, 1  # address spaces
_BYTES = {"f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8, "u64": 8, "f16": 2, "bf16": 2}


def _element(dtype: str):
    return types.uint16 if dtype in ("f16", "bf16") else REGISTER[dtype]


def _asm(builder, result: ir.Type, text: str, constraints: str, values: list[ir.Value]):
    """PTX that is neither moved across a barrier nor done under another condition than where it stands."""
    kind = ir.FunctionType(result, [value.type for value in values])
    return builder.asm(kind, text, constraints, values, True)


def _shared_address(builder, pointer: ir.Value, index: ir.Value) -> ir.Value:
    place = builder.addrspacecast(builder.gep(pointer, [index]), _space(pointer.type, _SHARED))
    return builder.ptrtoint(place, _WORD)


def _space(pointer: ir.PointerType, number: int) -> ir.PointerType:
    return pointer.pointee.as_pointer(number)


def _shared(dtype: str):
    element = _element(dtype)

    def shared(context, count):
        if not isinstance(count, types.IntegerLiteral):
            return None

        def emit(context, builder, signature, values):
            kind = ir.ArrayType(context.get_data_type(element), count.literal_value)
            module = builder.module
            array = ir.GlobalVariable(module, kind, module.get_unique_name("shared"), _SHARED)
            array.linkage, array.align, array.initializer = "internal", 16, ir.Constant(kind, ir.Undefined)
            first = builder.gep(array, [ir.Constant(_WORD, 0)] * 2)
            return builder.addrspacecast(first, kind.element.as_pointer())

        return types.CPointer(element)(count), emit

    return intrinsic(shared)


def _shared_as(dtype: str):
    element = _element(dtype)

    def shared_as(context, pointer):
        def emit(context, builder, signature, values):
            return builder.bitcast(values[0], context.get_data_type(element).as_pointer())

        return types.CPointer(element)(pointer), emit

    return intrinsic(shared_as)


def _vector(builder, pointer: ir.Value, index: ir.Value, count: int) -> ir.Value:
    return builder.bitcast(builder.gep(pointer, [index]), ir.VectorType(pointer.type.pointee, count).as_pointer())


def _load(dtype: str, count: int):
    element = _element(dtype)

    def load(context, pointer, index):
        def emit(context, builder, signature, values):
            whole = builder.load(_vector(builder, *values, count), align=count * _BYTES[dtype])
            parts = [builder.extract_element(whole, ir.Constant(_WORD, x)) for x in range(count)]
            return context.make_tuple(builder, signature.return_type, parts)

        return types.UniTuple(element, count)(pointer, types.int64), emit

    return intrinsic(load)


def _store(dtype: str, count: int):
    element = _element(dtype)

    def emit(context, builder, signature, values):
        pointer, index, *parts = values
        whole = ir.Constant(ir.VectorType(parts[0].type, count), ir.Undefined)
        for x, part in enumerate(parts):
            whole = builder.insert_element(whole, part, ir.Constant(_WORD, x))
        builder.store(whole, _vector(builder, pointer, index, count), align=count * _BYTES[dtype])
        return context.get_dummy_value()

    def store4(context, pointer, index, a, b, c, d):
        return types.void(pointer, types.int64, *[element] * 4), emit

    def store2(context, pointer, index, a, b):
        return types.void(pointer, types.int64, *[element] * 2), emit

    return intrinsic(store4 if count == 4 else store2)


@intrinsic
def copy_ahead(context, to, to_index, source, source_index, inside):
    """16 bytes from global to shared memory, or zeros where `inside` is not so; arrives before `wait_ahead` returns."""
    if to != source or not isinstance(to, types.CPointer):
        return None

    def emit(context, builder, signature, values):
        to, to_index, source, source_index, inside = values
        place = builder.addrspacecast(builder.gep(source, [source_index]), _space(source.type, _GLOBAL))
        size = builder.select(inside, ir.Constant(_WORD, 16), ir.Constant(_WORD, 0))
        operands = [_shared_address(builder, to, to_index), builder.ptrtoint(place, _LONG), size]
        _asm(builder, _VOID, "cp.async.cg.shared.global [$0], [$1], 16, $2;", "r,l,r,~{memory}", operands)
        return context.get_dummy_value()

    return types.void(to, types.int64, source, types.int64, types.boolean), emit


@intrinsic
def close_ahead(context):
    """The copies asked for since the last call are a group."""

    def emit(context, builder, signature, values):
        _asm(builder, _VOID, "cp.async.commit_group;", "~{memory}", [])
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def wait_ahead(context, groups):
    """All groups of this thread but the last `groups` (a literal) have arrived."""
    if not isinstance(groups, types.IntegerLiteral):
        return None

    def emit(context, builder, signature, values):
        _asm(builder, _VOID, f"cp.async.wait_group {groups.literal_value};", "~{memory}", [])
        return context.get_dummy_value()

    return types.void(groups), emit


def _struct(context, builder, signature, result: ir.Value, count: int):
    parts = [builder.extract_value(result, x) for x in range(count)]
    return context.make_tuple(builder, signature.return_type, parts)


def _load_matrix(turned: bool):
    def load_matrix4(context, pointer, index):
        def emit(context, builder, signature, values):
            text = f"ldmatrix.sync.aligned.m8n8.x4{'.trans' if turned else ''}.shared.b16 {{$0, $1, $2, $3}}, [$4];"
            result = _asm(
                builder, ir.LiteralStructType([_WORD] * 4), text, "=r,=r,=r,=r,r,~{memory}",
                [_shared_address(builder, *values)],
            )  # fmt: skip
            return _struct(context, builder, signature, result, 4)

        return types.UniTuple(types.uint32, 4)(pointer, types.int64), emit

    return intrinsic(load_matrix4)


def _multiply(dtype: str):
    shape = "m16n8k8" if dtype == "tf32" else "m16n8k16"
    text = (
        f"mma.sync.aligned.{shape}.row.col.f32.{dtype}.{dtype}.f32 "
        "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};"
    )

    def mma(context, a0, a1, a2, a3, b0, b1, c0, c1, c2, c3):
        def emit(context, builder, signature, values):
            constraints = ",".join(["=f"] * 4 + ["r"] * 6 + ["f"] * 4)
            result = _asm(builder, ir.LiteralStructType([_FLOAT] * 4), text, constraints, values)
            return _struct(context, builder, signature, result, 4)

        return types.UniTuple(types.float32, 4)(*[types.uint32] * 6, *[types.float32] * 4), emit

    return intrinsic(mma)


@intrinsic
def tf32_bits(context, value):
    """A float32 rounded to tf32, as a word."""

    def emit(context, builder, signature, values):
        return builder.asm(ir.FunctionType(_WORD, [_FLOAT]), "cvt.rna.tf32.f32 $0, $1;", "=r,f", values, False)

    return types.uint32(types.float32), emit


NAMES: dict[str, object] = {
    **{f"shared_{dtype}": _shared(dtype) for dtype in _BYTES},
    **{f"shared_as_{dtype}": _shared_as(dtype) for dtype in _BYTES},
    **{f"load{16 // size}_{dtype}": _load(dtype, 16 // size) for dtype, size in _BYTES.items() if size > 2},
    **{f"store{16 // size}_{dtype}": _store(dtype, 16 // size) for dtype, size in _BYTES.items() if size > 2},
    "store2_f32": _store("f32", 2),
    "copy_ahead": copy_ahead, "close_ahead": close_ahead, "wait_ahead": wait_ahead,
    "load_matrix4": _load_matrix(False), "load_matrix4_turned": _load_matrix(True),
    **{f"mma_{dtype}": _multiply(dtype) for dtype in ("f16", "bf16", "tf32")},
    "tf32_bits": tf32_bits,
}  # fmt: skip
