"""The names that only matrix products have, as intrinsics: shared arrays, 16 bytes at a time, copies that do not wait,
tensor cores. Importing this module needs the extra `cuda`.

What LLVM has no instruction for is PTX in the text of an `asm`. Addresses of shared memory are 32-bit numbers there.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, types
from numba.cuda.extending import intrinsic

from hloom.compiler.kernels.math.registry import REGISTER

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
    """The block's dynamic shared memory: as much as the launch asks for, and one array of it."""
    element = _element(dtype)

    def shared(context, count):
        if not isinstance(count, types.IntegerLiteral):
            return None

        def emit(context, builder, signature, values):
            kind = ir.ArrayType(context.get_data_type(element), 0)
            array = ir.GlobalVariable(builder.module, kind, "dynamic_shared", _SHARED)
            array.linkage, array.align = "external", 16
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


def _shared_part(dtype: str):
    """Shared memory from an element of this dtype on."""
    element = _element(dtype)

    def shared_part(context, pointer, start):
        def emit(context, builder, signature, values):
            whole = builder.bitcast(values[0], context.get_data_type(element).as_pointer())
            return builder.gep(whole, [values[1]])

        return types.CPointer(element)(pointer, types.int64), emit

    return intrinsic(shared_part)


def _vector(builder, pointer: ir.Value, index: ir.Value, count: int) -> ir.Value:
    return builder.bitcast(builder.gep(pointer, [index]), ir.VectorType(pointer.type.pointee, count).as_pointer())


def _load(dtype: str, count: int):
    element = _element(dtype)

    def load(context, pointer, index):
        def emit(context, builder, signature, values):
            pointer, index = values
            whole = builder.load(_vector(builder, pointer, index, count), align=count * _BYTES[dtype])
            parts = [builder.extract_element(whole, ir.Constant(_WORD, x)) for x in range(count)]
            return context.make_tuple(builder, signature.return_type, parts)

        return types.UniTuple(element, count)(pointer, types.int64), emit

    return intrinsic(load)


def _zeros(dtype: str):
    """A tuple of so many zeros (a literal)."""
    element = _element(dtype)

    def zeros(context, count):
        if not isinstance(count, types.IntegerLiteral):
            return None

        def emit(context, builder, signature, values):
            zero = ir.Constant(context.get_data_type(element), 0)
            return context.make_tuple(builder, signature.return_type, [zero] * count.literal_value)

        return types.UniTuple(element, count.literal_value)(count), emit

    return intrinsic(zeros)


def _parts(builder, value: ir.Value) -> list[ir.Value]:
    return [builder.extract_value(value, x) for x in range(len(value.type))]


def _put_together(builder, pointer: ir.Value, index: ir.Value, parts: list[ir.Value], size: int) -> None:
    """One store of neighbours."""
    whole = ir.Constant(ir.VectorType(parts[0].type, len(parts)), ir.Undefined)
    for x, part in enumerate(parts):
        whole = builder.insert_element(whole, part, ir.Constant(_WORD, x))
    builder.store(whole, _vector(builder, pointer, index, len(parts)), align=len(parts) * size)


def _store_row(dtype: str):
    """A row (a literal) of a square tuple, 16 bytes."""
    width = 16 // _BYTES[dtype]

    def store_row(context, pointer, index, block, row):
        if not isinstance(row, types.IntegerLiteral):
            return None

        def emit(context, builder, signature, values):
            parts = _parts(builder, values[2])[row.literal_value * width :][:width]
            _put_together(builder, values[0], values[1], parts, _BYTES[dtype])
            return context.get_dummy_value()

        return types.void(pointer, types.int64, block, row), emit

    return intrinsic(store_row)


def _scatter(dtype: str):
    """The elements of a tuple, `step` apart."""

    def scatter(context, pointer, index, step, block):
        def emit(context, builder, signature, values):
            pointer, index, step, block = values
            for part in _parts(builder, block):
                builder.store(part, builder.gep(pointer, [index]))
                index = builder.add(index, step)
            return context.get_dummy_value()

        return types.void(pointer, types.int64, types.int64, block), emit

    return intrinsic(scatter)


@intrinsic
def store_sums(context, pointer, index, step, sums):
    """The four sums of a fragment: two neighbours, and two `step` further on."""

    def emit(context, builder, signature, values):
        pointer, index, step, sums = values
        parts = _parts(builder, sums)
        _put_together(builder, pointer, index, parts[:2], 4)
        _put_together(builder, pointer, builder.add(index, step), parts[2:], 4)
        return context.get_dummy_value()

    return types.void(pointer, types.int64, types.int64, sums), emit


def _outer(dtype: str):
    """c[x, y] + a[x] * b[y], rounded once."""
    kind = {"f32": _FLOAT, "f64": ir.DoubleType()}.get(dtype)

    def outer(context, a, b, c):
        def emit(context, builder, signature, values):
            rows, columns, sums = (_parts(builder, value) for value in values)
            results = []
            for x, row in enumerate(rows):
                for y, column in enumerate(columns):
                    total = sums[x * len(columns) + y]
                    if kind is None:
                        results.append(builder.add(total, builder.mul(row, column)))
                        continue
                    function = cgutils.get_or_insert_function(
                        builder.module, ir.FunctionType(kind, [kind] * 3), f"llvm.fma.{dtype}"
                    )
                    results.append(builder.call(function, [row, column, total]))
            return context.make_tuple(builder, signature.return_type, results)

        return c(a, b, c), emit

    return intrinsic(outer)


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


def _load_matrix(turned: bool):
    def load_matrix4(context, pointer, index):
        def emit(context, builder, signature, values):
            text = f"ldmatrix.sync.aligned.m8n8.x4{'.trans' if turned else ''}.shared.b16 {{$0, $1, $2, $3}}, [$4];"
            result = _asm(
                builder, ir.LiteralStructType([_WORD] * 4), text, "=r,=r,=r,=r,r,~{memory}",
                [_shared_address(builder, *values)],
            )  # fmt: skip
            return context.make_tuple(builder, signature.return_type, _parts(builder, result))

        return types.UniTuple(types.uint32, 4)(pointer, types.int64), emit

    return intrinsic(load_matrix4)


@intrinsic
def load_tf32(context, pointer, index, one, other):
    """The elements at an index, `one` and `other` further on, and both, rounded to tf32."""

    def emit(context, builder, signature, values):
        pointer, index, one, other = values
        words = []
        for place in (index, builder.add(index, one)):
            words.append(place)
        words += [builder.add(place, other) for place in words]
        loaded = [builder.load(builder.gep(pointer, [place])) for place in words]
        kind = ir.FunctionType(_WORD, [_FLOAT])
        words = [builder.asm(kind, "cvt.rna.tf32.f32 $0, $1;", "=r,f", [value], False) for value in loaded]
        return context.make_tuple(builder, signature.return_type, words)

    return types.UniTuple(types.uint32, 4)(pointer, types.int64, types.int64, types.int64), emit


def _multiply(dtype: str):
    """c + a b, where b is the first or the second half (a literal) of four words."""
    shape = "m16n8k8" if dtype == "tf32" else "m16n8k16"
    text = (
        f"mma.sync.aligned.{shape}.row.col.f32.{dtype}.{dtype}.f32 "
        "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};"
    )

    def mma(context, a, b, half, c):
        if not isinstance(half, types.IntegerLiteral):
            return None

        def emit(context, builder, signature, values):
            a, b, _, c = values
            factors = _parts(builder, a) + _parts(builder, b)[2 * half.literal_value :][:2]
            constraints = ",".join(["=f"] * 4 + ["r"] * 6 + ["f"] * 4)
            kind = ir.LiteralStructType([_FLOAT] * 4)
            result = _asm(builder, kind, text, constraints, factors + _parts(builder, c))
            return context.make_tuple(builder, signature.return_type, _parts(builder, result))

        return c(a, b, half, c), emit

    return intrinsic(mma)


NAMES: dict[str, object] = {
    **{f"shared_{dtype}": _shared(dtype) for dtype in _BYTES},
    **{f"shared_as_{dtype}": _shared_as(dtype) for dtype in _BYTES},
    "shared_part_f32": _shared_part("f32"),
    **{f"load{16 // size}_{dtype}": _load(dtype, 16 // size) for dtype, size in _BYTES.items() if size > 2},
    **{f"{name}_{dtype}": make(dtype) for name, make in (("zeros", _zeros), ("outer", _outer), ("scatter", _scatter),
                                                        ("store_row", _store_row))
       for dtype, size in _BYTES.items() if size > 2},
    "store_sums": store_sums, "load_tf32": load_tf32,
    "copy_ahead": copy_ahead, "close_ahead": close_ahead, "wait_ahead": wait_ahead,
    "load_matrix4": _load_matrix(False), "load_matrix4_turned": _load_matrix(True),
    **{f"mma_{dtype}": _multiply(dtype) for dtype in ("f16", "bf16", "tf32")},
}  # fmt: skip
