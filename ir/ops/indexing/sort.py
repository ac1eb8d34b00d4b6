"""sort by any comparator, and topk.

Common comparators (one or several keys, ascending or descending, NaN last or in total order) are recognized and sorted
by NumPy; others are applied to whole arrays in a sorting network.
"""

from __future__ import annotations

import numpy as np

from hloom.ir.build import Builder, Value
from hloom.ir.errors import AttributeValueError, DTypeError, ShapeError
from hloom.ir.interpret import evaluate
from hloom.ir.module import Computation, Instruction
from hloom.ir.op_table import No, op
from hloom.ir.ops.bounding import sort_bounded
from hloom.ir.ops.elementwise.selection import OTHER_SIGNS
from hloom.ir.ops.factoring import along_dimensions
from hloom.ir.ops.indexing.gather import gather_attributes
from hloom.ir.ops.indexing.windows import Windows
from hloom.ir.ops.rules import require_count, require_kind
from hloom.ir.records import record
from hloom.ir.sizes.expressions import least
from hloom.ir.spmd.factors import leading
from hloom.ir.types import COMPLEX, FLOATS, PRED, Shape, TupleShape, as_dtype


def _sort_infer(operands, attributes, shape):
    if not operands:
        raise ShapeError("sort takes at least one operand", "none", "pass the arrays")
    for operand in operands:
        require_kind("sort", operand, ())
        if operand.dims != operands[0].dims:
            raise ShapeError("sort takes operands of one shape", ", ".join(map(repr, operands)), "broadcast them")
    dimensions, rank = tuple(attributes.get("dimensions", ())), operands[0].rank
    if len(dimensions) != 1 or not 0 <= dimensions[0] < rank:
        raise AttributeValueError(
            "sort takes one dimension of its operands",
            f"dimensions={dimensions} of {operands[0]!r}",
            f"name one between 0 and {rank - 1}" if rank else "reshape the scalar to one dimension",
        )
    comparator = attributes.get("to_apply")
    if comparator is None:
        raise AttributeValueError("sort takes a comparator to_apply", "none", "pass to_apply=")
    expected = [Shape(o.dtype) for o in operands for _ in range(2)]
    if [p.shape for p in comparator.parameters] != expected or comparator.shape is not Shape(PRED):
        raise DTypeError(
            "sort takes a comparator of two scalars an operand to pred",
            f"parameters {[p.shape for p in comparator.parameters]} to {comparator.shape!r}, expected {expected}",
            "make its parameters scalars of the operands' dtypes, in pairs",
        )
    return operands[0] if len(operands) == 1 else TupleShape(operands)


# --- comparators --------------------------------------------------------------------------------------------------

_comparators: dict[tuple, Computation] = {}


def comparator(dtypes, num_keys: int = 1, descending: bool = False) -> Computation:
    """The computation that orders lexicographically by the first `num_keys` operands; the same object each time.

    -0.0 and 0.0 are equal, NaN comes last (first when descending), complex numbers are ordered by real, then imaginary
    part.
    """
    key = (tuple(map(as_dtype, dtypes)), num_keys, descending)
    if key not in _comparators:
        builder = Builder("descending" if descending else "ascending")
        pairs = []
        for k, dtype in enumerate(key[0]):
            a, b = (Value(builder, builder.parameter(Shape(dtype), f"{side}{k}")) for side in "ab")
            pairs.append((b, a) if descending else (a, b))
        parts = []
        for a, b in pairs[:num_keys]:
            complex_ = a.dtype in COMPLEX
            parts += [(a.op(p), b.op(p)) for p in ("real", "imag")] if complex_ else [(a, b)]
        last, *earlier = reversed(parts)
        result = _less(*last)
        for a, b in earlier:
            result = _less(a, b).op("or", _same(a, b).op("and", result))
        _comparators[key] = builder.finish(result.instruction)
    return _comparators[key]


def _less(a, b):
    less = a.compare("LT", b)
    if a.dtype not in FLOATS:
        return less
    return less.op("or", a.compare("EQ", a).op("and", b.compare("NE", b)))


def _same(a, b):
    same = a.compare("EQ", b)
    if a.dtype not in FLOATS:
        return same
    return same.op("or", a.compare("NE", a).op("and", b.compare("NE", b)))


@record(frozen=True)
class Key:
    """operand: its index. part: '', 'real' or 'imag'. total: -NaN < -inf < ... < -0.0 < 0.0 < ... < NaN."""

    operand: int
    part: str
    descending: bool
    total: bool


_known: dict[int, tuple[Computation, list[Key] | None]] = {}


def sort_keys(computation: Computation) -> list[Key] | None:
    """The sort keys of a comparator, the primary one first; None if it is not recognized."""
    found = _known.get(id(computation))
    if found is None:
        if len(_known) > 4096:
            _known.clear()
        found = _known[id(computation)] = (computation, _keys(computation.root))
    return found[1]


def _keys(root: Instruction) -> list[Key] | None:
    single = _single(root)
    if single:
        return [single]
    if root.opcode == "or":
        for first, rest in (root.operands, root.operands[::-1]):
            key = _single(first)
            if key is None or rest.opcode != "and":
                continue
            for same, following in (rest.operands, rest.operands[::-1]):
                below = _keys(following) if _is_same(same, key) else None
                if below:
                    return [key, *below]
    return None


def _single(root: Instruction) -> Key | None:
    """The key of less(a, b): a comparison, or one that also puts NaN last."""
    if root.opcode == "compare":
        return _comparison(root, ("LT", "GT"))
    if root.opcode != "or":
        return None
    for less, nan in (root.operands, root.operands[::-1]):
        key = _comparison(less, ("LT", "GT"))
        if key is None or key.total or nan.opcode != "and":
            continue
        a, b = less.operands if less["direction"] == "LT" else less.operands[::-1]
        for is_number, is_nan in (nan.operands, nan.operands[::-1]):
            if _is_self(is_number, "EQ", a) and _is_self(is_nan, "NE", b):
                return key
    return None


def _is_self(root: Instruction, direction: str, x: Instruction) -> bool:
    return root.opcode == "compare" and root["direction"] == direction and root.operands == (x, x)


def _comparison(root: Instruction, directions) -> Key | None:
    if root.opcode != "compare" or root["direction"] not in directions:
        return None
    (a, total), (b, also) = (_canonical(o) for o in root.operands)
    part = ""
    if a.opcode in ("real", "imag") and b.opcode == a.opcode:
        part, a, b = a.opcode, a.operands[0], b.operands[0]
    if a.opcode != "parameter" or b.opcode != "parameter" or total != also:
        return None
    i, j = a["index"], b["index"]
    if i == j or i // 2 != j // 2:
        return None
    by_total_order = root.attributes.get("type") == "TOTALORDER" and not total
    return Key(i // 2, part, (root["direction"] == "GT") != (i > j), by_total_order)


def _canonical(x: Instruction) -> tuple[Instruction, bool]:
    """(x without select(x != x, nan, select(x == 0, 0, x)), whether it had that)."""
    if x.opcode != "select":
        return x, False
    is_nan, nan, inner = x.operands
    if not (_is_constant(nan, np.isnan) and inner.opcode == "select" and is_nan.opcode == "compare"):
        return x, False
    is_zero, zero, value = inner.operands
    if not (_is_constant(zero, lambda v: v == 0) and _is_self(is_nan, "NE", value) and is_zero.opcode == "compare"):
        return x, False
    left, right = is_zero.operands
    plain = is_zero["direction"] == "EQ" and left is value and _is_constant(right, lambda v: v == 0)
    return (value, True) if plain else (x, False)


def _is_constant(x: Instruction, test) -> bool:
    if x.opcode in ("broadcast", "reshape"):
        x = x.operands[0]
    if x.opcode != "constant" or x["value"].size != 1 or x.dtype not in FLOATS:
        return False
    return bool(test(x["value"].astype(np.float64).reshape(())[()]))


def _is_same(root: Instruction, key: Key) -> bool:
    """Whether root compares two elements for equality in `key`."""
    if root.opcode == "or":
        for same, nan in (root.operands, root.operands[::-1]):
            if _is_same_compare(same, key) and nan.opcode == "and":
                a, b = same.operands
                if all(any(_is_self(o, "NE", x) for o in nan.operands) for x in (a, b)):
                    return True
        return False
    return _is_same_compare(root, key)


def _is_same_compare(root: Instruction, key: Key) -> bool:
    found = _comparison(root, ("EQ",)) if root.opcode == "compare" else None
    return found is not None and (found.operand, found.part, found.total) == (key.operand, key.part, key.total)


# --- reference ----------------------------------------------------------------------------------------------------


def ordinal(x: np.ndarray, total: bool = False, descending: bool = False) -> np.ndarray:
    """Unsigned integers in the order of x: NaN last and -0.0 equal to 0.0, or the total order of its bits."""
    if x.dtype in OTHER_SIGNS:
        return ordinal(x.astype(np.float32), total, descending)
    if x.dtype == PRED:
        bits = x.view(np.uint8)
    elif x.dtype in FLOATS:
        if not total:
            x = np.where(np.isnan(x), np.asarray(np.nan, x.dtype), x + np.asarray(0, x.dtype))  # -0.0 + 0.0 = 0.0
        unsigned = np.dtype(f"u{x.dtype.itemsize}")
        raw = np.ascontiguousarray(x).view(unsigned)
        top = unsigned.type(1 << (unsigned.itemsize * 8 - 1))
        if not total:
            raw = np.where(np.isnan(x), unsigned.type(top - 1), raw)
        bits = np.where(raw & top, ~raw, raw | top)
    elif x.dtype.kind == "i":
        unsigned = np.dtype(f"u{x.dtype.itemsize}")
        bits = np.ascontiguousarray(x).view(unsigned) ^ unsigned.type(1 << (unsigned.itemsize * 8 - 1))
    elif x.dtype.kind == "u":
        bits = x
    else:  # 4-bit integers
        bits = (x.astype(np.int16) + 8).astype(np.uint8)
    return ~bits if descending and x.dtype != PRED else (1 - bits if descending else bits)


def sorting_order(keys: list[np.ndarray], axis: int) -> np.ndarray:
    """The stable order of unsigned keys along an axis, the primary key first."""
    count = keys[0].shape[axis]
    if len(keys) == 1 and keys[0].dtype.itemsize <= 4 and count < 2**32:
        # Key and index packed into one number: NumPy sorts these several times faster than argsort.
        places = np.arange(count, dtype=np.uint64).reshape([-1 if k == axis else 1 for k in range(keys[0].ndim)])
        packed = (keys[0].astype(np.uint64) << np.uint64(32)) | places
        packed.sort(axis=axis)
        return (packed & np.uint64(0xFFFFFFFF)).astype(np.int64)
    if len(keys) == 1:
        return np.argsort(keys[0], axis=axis, kind="stable")
    return np.lexsort(keys[::-1], axis=axis)


def _sort_reference(*operands, shape, dimensions, to_apply, is_stable=False):
    (axis,) = dimensions
    keys = sort_keys(to_apply)
    if operands[0].shape[axis] < 2 or not operands[0].size:
        return operands if len(operands) > 1 else operands[0]
    with np.errstate(all="ignore"):
        if keys and len(operands) == 1 and is_plain_sort(operands[0], keys):
            result = np.array(operands[0])
            sort_plainly(result, axis, keys[0])
            return result
        if keys:
            arrays = []
            for key in keys:
                x = operands[key.operand]
                x = x if not key.part else (x.real if key.part == "real" else x.imag)
                arrays.append(ordinal(x, key.total, key.descending))
            order = sorting_order(arrays, axis)
        else:
            order = _network(operands, axis, to_apply)
    results = tuple(np.take_along_axis(x, order, axis) for x in operands)
    return results if len(operands) > 1 else results[0]


def is_plain_sort(x: np.ndarray, keys: list[Key] | None) -> bool:
    """Whether elements of x that are equal are identical, so that any order of them is the stable one."""
    if keys is None or len(keys) != 1:
        return False
    (key,) = keys
    if x.dtype.kind in "iub":
        return True
    if x.dtype not in (np.float32, np.float64) or key.total:
        return False
    bits = np.ascontiguousarray(x).view(f"i{x.dtype.itemsize}")
    lowest = np.iinfo(bits.dtype).min  # the bits of -0.0: found in one pass, where signbit and == 0 would need three
    return bits.min(initial=0) != lowest and not (key.descending and np.isnan(x).any())


def sort_plainly(x: np.ndarray, axis: int, key: Key) -> None:
    """Sorts an array for which `is_plain_sort` holds in place, along an axis."""
    x.sort(axis=axis)  # NaN last, as in every such order
    if key.descending:
        x[...] = np.flip(x, axis)


def _network(operands, axis: int, to_apply: Computation) -> np.ndarray:
    """The stable order by Batcher's odd-even merge sort, each stage one evaluation of the comparator on all pairs.

    Source: K. E. Batcher, Sorting networks and their applications, AFIPS 1968; Knuth, The Art of Computer Programming
    vol. 3, 5.2.2, Algorithm M.
    """
    columns = [np.moveaxis(x, axis, 0) for x in operands]
    count, rest = columns[0].shape[0], columns[0].shape[1:]
    order = np.array(np.broadcast_to(np.arange(count).reshape(-1, *[1] * len(rest)), (count, *rest)))
    columns = [np.array(c) for c in columns]
    for lower, upper in _stages(count):
        pairs, swapped = [], []
        for column in columns:
            a, b = column[lower], column[upper]
            pairs += [a, b]
            swapped += [b, a]
        less = np.asarray(evaluate(to_apply, pairs, lifted=pairs[0].shape))
        more = np.asarray(evaluate(to_apply, swapped, lifted=pairs[0].shape))
        i, j = order[lower], order[upper]
        swap = more & ~less | (more == less) & (i > j)
        for column in [*columns, order]:
            a, b = column[lower], column[upper]
            column[lower], column[upper] = np.where(swap, b, a), np.where(swap, a, b)
    return np.moveaxis(order, 0, axis)


def _stages(count: int):
    """(lower indices, upper indices) of the pairs that each stage of the network compares."""
    top = 1 << max((count - 1).bit_length() - 1, 0)
    p = top
    while p > 0:
        q, r, d = top, 0, p
        while True:
            i = np.arange(max(count - d, 0))
            lower = i[(i & p) == r]
            if lower.size:
                yield lower, lower + d
            if q == p:
                break
            d, q, r = q - p, q >> 1, p
        p >>= 1


# --- derivatives, batches -----------------------------------------------------------------------------------------


def along(dims: tuple[int, ...], result: tuple[int, ...], axis: int) -> dict:
    """The attributes of the gather that takes along an axis: result[.., i, ..] = x[.., indices[.., i, ..], ..].

    dims: x's shape; result: that of the indices, equal except along the axis.
    """
    others = tuple(d for d in range(len(dims)) if d != axis)
    sizes = tuple(least(d, 1) if k != axis else 1 for k, d in enumerate(dims))
    return gather_attributes(Windows(dims, result, (), (axis,), (axis,), others, others, len(result), sizes))


def _sort_jvp(build, instruction, primals, tangents):
    """The tangents in the order of the sorted values, found by sorting indices along with them."""
    (axis,) = instruction["dimensions"]
    first = primals[0]
    builder = first.builder
    dims = first.dims
    wide = np.dtype(np.int32 if dims[axis] < 2**31 else np.int64)
    places = Value(builder, builder.emit("iota", shape=Shape(wide, dims), iota_dimension=axis))
    old = instruction["to_apply"]
    wider = Builder(old.name)
    parameters = [wider.parameter(p.shape, p.hint) for p in old.parameters]
    for hint in ("place_a", "place_b"):
        wider.parameter(Shape(wide), hint)
    to_apply = wider.finish(wider.inline(old, parameters))
    ordered = first.op("sort", *primals[1:], places, **{**instruction.attributes, "to_apply": to_apply})
    order = ordered.op("get-tuple-element", index=len(primals))
    taken = [t and t.op("gather", order, **along(dims, dims, axis)) for t in tangents]
    return taken if len(primals) > 1 else taken[0]


def _sort_batch(build, instruction, operands, mapped):
    given = [o if m else build.spread(o) for o, m in zip(operands, mapped, strict=True)]
    attributes = {**instruction.attributes, "dimensions": tuple(d + 1 for d in instruction["dimensions"])}
    return given[0].op("sort", *given[1:], **attributes).results()


NOT_LINEAR = No("its tangent is made of gathers")

op(
    "sort",
    family="library",
    infer=_sort_infer,
    reference=_sort_reference,
    code=No("a step of its own"),
    jvp=_sort_jvp,
    transpose=NOT_LINEAR,
    batch=_sort_batch,
    factors=along_dimensions,
    bounded=sort_bounded,
    attributes={"dimensions": "ints", "is_stable": "flag", "to_apply": "computation"},
    flops=16,
    dialects="hlo",
)


# --- topk ---------------------------------------------------------------------------------------------------------


def _topk_infer(operands, attributes, shape):
    require_count("topk", operands, 1)
    (operand,) = operands
    require_kind("topk", operand, ("pred", "signed", "unsigned", "float"))
    k = attributes.get("k", -1)
    if not operand.rank or not 0 <= k <= operand.dims[-1]:
        raise AttributeValueError(
            "topk takes k between 0 and the size of its operand's last dimension",
            f"k={k} of {operand!r}",
            "choose a smaller k",
        )
    dims = (*operand.dims[:-1], k)
    return TupleShape([operand.with_dims(dims), Shape(np.dtype(np.int32), dims)])


def _topk_reference(x, shape, k, largest=True):
    """The k largest of each row in descending order by the total order of floats, equal ones by index."""
    with np.errstate(all="ignore"):
        keys = ordinal(x, total=True, descending=largest)
        count = x.shape[-1]
        if 0 < k < count // 8 and keys.dtype.itemsize <= 4:
            packed = (keys.astype(np.uint64) << np.uint64(32)) | np.arange(count, dtype=np.uint64)
            packed = np.sort(np.partition(packed, k - 1, axis=-1)[..., :k], axis=-1)
            order = (packed & np.uint64(0xFFFFFFFF)).astype(np.int64)
        else:
            order = sorting_order([keys], x.ndim - 1)[..., :k]
    return np.take_along_axis(x, order, -1), order.astype(np.int32)


def _topk_jvp(build, instruction, primals, tangents):
    order = build.primal.op("get-tuple-element", index=1)
    x = primals[0]
    return [tangents[0] and tangents[0].op("gather", order, **along(x.dims, order.dims, len(x.dims) - 1)), None]


def _topk_batch(build, instruction, operands, mapped):
    return operands[0].op("topk", **instruction.attributes).results()


op(
    "topk",
    family="library",
    infer=_topk_infer,
    reference=_topk_reference,
    code=No("a step of its own"),
    jvp=_topk_jvp,
    transpose=NOT_LINEAR,
    batch=_topk_batch,
    factors=lambda instruction: leading(instruction, len(instruction.operands[0].shape.dims) - 1),
    attributes={"k": "int", "largest": "flag"},
    flops=16,
    dialects="hlo",
)
