"""scatter: combines updates into windows of an array at computed positions, sequentially.

Updates whose window is not entirely within the operand are dropped. Several updates of one element are combined in the
order of their indices (HLO leaves the order open; hloom guarantees it, interpreted or compiled).
"""

from __future__ import annotations

import math

import numpy as np

from hloom.ir.build import Value, assignment_computation, combiner_opcode, scalar_computation
from hloom.ir.errors import DifferentiationError, DTypeError, ShapeError
from hloom.ir.interpret import evaluate
from hloom.ir.module import Computation
from hloom.ir.op_table import No, op
from hloom.ir.ops.bounding import refused
from hloom.ir.ops.indexing.gather import (
    SCATTER_NAMES,
    batch_windows,
    check_windows,
    gather_attributes,
    inside_mask,
    scatter_attributes,
)
from hloom.ir.ops.indexing.windows import Windows, computed_places, window_sizes
from hloom.ir.ops.rules import UFUNCS, require_combiner, require_kind
from hloom.ir.sizes.expressions import least
from hloom.ir.spmd.factors import FactorRule, RuleBuilder
from hloom.ir.types import DTYPES, NARROW_FLOATS, Shape, TupleShape


def scatter_windows(operand_dims, indices_dims, updates_dims, attributes) -> Windows:
    """The `Windows` for a scatter's attributes; the windows' array is the updates."""
    offset, collapsed, mapped, batching, indices_batching = (tuple(attributes.get(n, ())) for n in SCATTER_NAMES)
    sizes, places = [], iter(offset)
    for d, size in enumerate(operand_dims):
        if d in batching:
            sizes.append(least(size, 1))
        elif d in collapsed:
            sizes.append(1)
        else:
            place = next(places, len(updates_dims))
            sizes.append(updates_dims[place] if 0 <= place < len(updates_dims) else 0)
    vector = attributes.get("index_vector_dim", len(indices_dims))
    operand, indices = tuple(operand_dims), tuple(indices_dims)
    return Windows(operand, indices, offset, collapsed, mapped, batching, indices_batching, vector, tuple(sizes))


def windows_of(instruction) -> Windows:
    """The `Windows` of a scatter instruction."""
    count = len(instruction.operands) // 2
    operand, indices, updates = (instruction.operands[k].dims for k in (0, count, count + 1))
    return scatter_windows(operand, indices, updates, instruction.attributes)


def _scatter_infer(operands, attributes, shape):
    if len(operands) < 3 or len(operands) % 2 == 0:
        raise ShapeError(
            "scatter takes arrays, start indexes and as many updates as arrays",
            f"{len(operands)} operands: {', '.join(map(repr, operands))}",
            "pass one update for each array",
        )
    for operand in operands:
        require_kind("scatter", operand, ())
    count = len(operands) // 2
    arrays, indices, updates = operands[:count], operands[count], operands[count + 1 :]
    for array, update in zip(arrays, updates, strict=True):
        if array.dims != arrays[0].dims or update.dims != updates[0].dims:
            raise ShapeError(
                "scatter takes arrays of one shape, and updates of one shape",
                f"{', '.join(map(repr, arrays))} with {', '.join(map(repr, updates))}",
                "broadcast them",
            )
        if array.dtype != update.dtype:
            raise DTypeError("scatter takes updates of their array's dtype", f"{array!r}, {update!r}", "convert them")
    w = scatter_windows(arrays[0].dims, indices.dims, updates[0].dims, attributes)
    check_windows("scatter", w, SCATTER_NAMES, indices)
    if updates[0].rank != w.rank or w.dims() != updates[0].dims:
        raise ShapeError(
            "scatter takes updates with the shape of the indices, and of a window in update_window_dims",
            f"updates {updates[0]!r}, indexes {indices!r}, expected rank {w.rank}, {w.dims()}",
            "check update_window_dims and the shape of the updates",
        )
    if any(size > length for size, length in zip(w.sizes, w.operand, strict=True) if length or size > 1):
        raise ShapeError(
            "scatter takes windows that fit into the operand",
            f"windows {w.sizes} of {arrays[0]!r}",
            "slice the updates",
        )
    require_combiner("scatter", "to_apply", attributes.get("to_apply"), [Shape(a.dtype) for a in arrays])
    return arrays[0] if count == 1 else TupleShape(arrays)


# --- combiners ----------------------------------------------------------------------------------------------------


def combiner_kind(combiner: Computation) -> str | None:
    """'overwrite', 'add', 'multiply', ... or None for any other computation or several operands."""
    if len(combiner.parameters) == 2:
        if combiner.root is combiner.parameters[1]:
            return "overwrite"
        opcode = combiner_opcode(combiner)
        return opcode if opcode in UFUNCS else None
    return None


def _scatter_reference(*operands, shape, to_apply, **attributes):
    count = len(operands) // 2
    arrays, indices, updates = operands[:count], operands[count], operands[count + 1 :]
    w = scatter_windows(arrays[0].shape, indices.shape, updates[0].shape, attributes)
    starts = w.starts(indices)
    inside = w.inside(starts)
    starts = [np.where(inside, s, 0) for s in starts]
    lead = len(w.operand) - w.trailing()
    width = math.prod(w.operand[lead:])
    results = [np.array(a, order="C") for a in arrays]  # a view in another order would be copied by reshape
    if updates[0].size:
        positions = w.positions(starts)
        inner = positions.ndim - inside.ndim
        valid = np.broadcast_to(inside.reshape(inside.shape + (1,) * inner), positions.shape).reshape(-1)
        flat = [np.transpose(u, w.order()).reshape(positions.size, width) for u in updates]
        positions = positions.reshape(-1)
        if not valid.all():
            positions, flat = positions[valid], [f[valid] for f in flat]
        if attributes.get("unique_indices") and not _are_distinct(positions):
            attributes = {**attributes, "unique_indices": False}  # a broken promise does no harm here
        rows = [r.reshape(-1, width) for r in results]
        _combine(rows, positions, flat, to_apply, bool(attributes.get("unique_indices")))
    return tuple(results) if count > 1 else results[0]


def _are_distinct(positions: np.ndarray) -> bool:
    ordered = np.sort(positions)
    return not (ordered[1:] == ordered[:-1]).any()


def _combine(rows, positions, updates, combiner, unique: bool) -> None:
    """Combines row k of each of `updates` into row positions[k] of each of `rows`, k in ascending order."""
    kind = combiner_kind(combiner)
    with np.errstate(all="ignore"):
        if kind == "overwrite":
            rows[0][positions] = updates[0]
        elif kind and rows[0].dtype not in NARROW_FLOATS and not unique:
            # One-dimensional, contiguous: the fast case of NumPy's ufunc.at.
            width = rows[0].shape[1]
            if width != 1:
                positions = (positions[:, None] * width + np.arange(width)).reshape(-1)
            UFUNCS[kind].at(rows[0].reshape(-1), positions, updates[0].reshape(-1))
        else:
            for chosen in [slice(None)] if unique else _rounds(positions):
                _apply(rows, positions[chosen], [u[chosen] for u in updates], combiner)


def _rounds(positions: np.ndarray):
    """Index arrays: the first update of each position, then the second of those that have one, and so on."""
    order = np.argsort(positions, kind="stable")
    ordered = positions[order]
    first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if ordered.size else np.empty(0, int)
    counts = np.diff(np.r_[first, ordered.size])
    for number in range(int(counts.max(initial=0))):
        yield order[first[counts > number] + number]


def _apply(rows, positions, updates, combiner) -> None:
    elements = [r[positions] for r in rows]
    found = evaluate(combiner, [*elements, *updates], lifted=elements[0].shape)
    for row, value in zip(rows, found if len(rows) > 1 else (found,), strict=True):
        row[positions] = value


# --- derivatives --------------------------------------------------------------------------------------------------


def _gathered(x, indices, w: Windows, like):
    """The elements of x at the updates, and zero for dropped updates."""
    sorted_ = like.get("indices_are_sorted", False)
    found = x.op("gather", indices, **gather_attributes(w, sorted_))
    return inside_mask(indices, w).where(found, found.like(0))


def _scatter(operand, indices, updates, like, combiner: Computation):
    return operand.op("scatter", indices, updates, **{**like, "to_apply": combiner})


def _scatter_jvp(build, instruction, primals, tangents):
    if len(primals) != 3:
        raise DifferentiationError(
            "the derivative of a scatter of several arrays was asked for",
            f"{len(primals) // 2} arrays",
            "scatter each array by itself",
            source=instruction.source,
        )
    rule = {
        "add": _add_jvp,
        "overwrite": _overwrite_jvp,
        "multiply": _multiply_jvp,
        "minimum": _extreme_jvp,
        "maximum": _extreme_jvp,
    }.get(combiner_kind(instruction["to_apply"]) or "")
    if rule is None:
        raise DifferentiationError(
            "the derivative of a scatter with this computation was asked for",
            f"{instruction['to_apply'].name}, which is none of add, multiply, minimum, maximum and overwriting",
            "use one of these, or x.at[i].set(f(x[i])) where the indexes are distinct",
            source=instruction.source,
        )
    operand, indices, updates = primals
    t_operand, _, t_updates = tangents
    like = instruction.attributes
    return rule(build, windows_of(instruction), like, operand, indices, updates, t_operand, t_updates)


def _zero(like):
    return like.like(0)


def _add_jvp(build, w, like, operand, indices, updates, t_operand, t_updates):
    if t_updates is None:
        return t_operand
    return _scatter(t_operand or _zero(operand), indices, t_updates, like, like["to_apply"])


def _are_distinct_places(w: Windows, like) -> bool:
    """Whether no two windows overlap: this is promised, or there is only one (per batch element)."""
    windows = [w.indices[d] for d in w.index_dimensions if d not in w.indices_batching]
    return bool(like.get("unique_indices")) or math.prod(windows) <= 1


def _overwrite_jvp(build, w, like, operand, indices, updates, t_operand, t_updates):
    """For unique indices the scatter of the tangents. Otherwise only the last update of an element counts, which is
    found by scattering the updates' positions in the same way."""
    if _are_distinct_places(w, like):
        return _scatter(t_operand or _zero(operand), indices, t_updates or _zero(updates), like, like["to_apply"])
    builder = operand.builder
    count = math.prod(updates.dims)
    wide = np.dtype(np.int32 if count < 2**31 - 1 else np.int64)
    numbers = Value(builder, builder.emit("iota", shape=Shape(wide, (count,)), iota_dimension=0)) + 1
    numbers = numbers.reshape(updates.dims)
    none = Value(builder, builder.splat(0, Shape(wide, operand.dims)))
    last = _scatter(none, indices, numbers, like, assignment_computation(wide))
    result = None
    if t_operand is not None:
        result = last.compare("EQ", 0).where(t_operand, _zero(t_operand))
    if t_updates is None:
        return result
    wins = _gathered(last, indices, w, like).compare("EQ", numbers)
    chosen = wins.where(t_updates, _zero(t_updates))
    return _scatter(result or _zero(operand), indices, chosen, like, scalar_computation("add", operand.dtype))


def _multiply_jvp(build, w, like, operand, indices, updates, t_operand, t_updates):
    total = None
    if t_operand is not None:
        total = _scatter(t_operand, indices, updates, like, like["to_apply"])
    if t_updates is None:
        return total
    if not _are_distinct_places(w, like):
        raise DifferentiationError(
            "the derivative of scatter-multiply with respect to its updates was asked for",
            "the indices may be repeated",
            "pass unique_indices=True if they are distinct",
            source=operand.builder.source,
        )
    term = t_updates * _gathered(operand, indices, w, like)
    return _scatter(total or _zero(operand), indices, term, like, scalar_computation("add", operand.dtype))


def _extreme_jvp(build, w, like, operand, indices, updates, t_operand, t_updates):
    """The mean of the tangents of all elements that attain the extremum."""
    y = build.primal
    zero, one = _zero(operand), operand.like(1)
    kept = operand.compare("EQ", y).where(one, zero)
    reached = updates.compare("EQ", _gathered(y, indices, w, like))
    reached = reached.op("and", inside_mask(indices, w)).where(updates.like(1), _zero(updates))
    plus = scalar_computation("add", operand.dtype)
    share = one / _scatter(kept, indices, reached, like, plus).op("maximum", one)
    total = None if t_operand is None else t_operand * kept
    if t_updates is not None:
        total = _scatter(total or zero, indices, t_updates * reached, like, plus)
    return total * share


def _scatter_transpose(build, instruction, g, operands):
    operand, indices, updates = instruction.operands
    w = windows_of(instruction)
    like = instruction.attributes
    kind = combiner_kind(like["to_apply"])
    at = operands[1]
    first = second = None
    if kind == "add":
        first = g
        second = _gathered(g, at, w, like)
    elif kind == "overwrite":  # created by jvp for unique indices only
        zeros = g.filled(0, updates.shape)
        first = _scatter(g, at, zeros, like, like["to_apply"])
        second = _gathered(g, at, w, like)
    elif kind == "multiply":
        first = _scatter(g, at, operands[2], like, like["to_apply"])
    return [first if operands[0] is None else None, None, second if operands[2] is None else None]


def _scatter_batch(build, instruction, operands, mapped):
    count = len(operands) // 2
    w = windows_of(instruction)
    arrays_mapped = any(mapped[:count]) or any(mapped[count + 1 :])
    if not arrays_mapped:
        arrays_mapped, mapped = True, [m if k == count else False for k, m in enumerate(mapped)]
    given = [o if k == count or mapped[k] else build.spread(o) for k, o in enumerate(operands)]
    batched = batch_windows(w, build.size, True, mapped[count])
    like = instruction.attributes if not mapped[count] else None
    unique = bool(instruction.attributes.get("unique_indices"))
    attributes = scatter_attributes(batched, instruction["to_apply"], like, unique)
    result = given[0].op("scatter", *given[1:], **attributes)
    return result.results()


def _scatter_factors(instruction) -> FactorRule:
    """Batching dimensions and full dimensions of the windows pass through. Along an indexed dimension each device
    applies the updates in its range; split updates yield partial results."""
    count = len(instruction.operands) // 2
    w = windows_of(instruction)
    kind = combiner_kind(instruction["to_apply"]) if count == 1 else None
    rule = RuleBuilder(instruction, kind if kind in UFUNCS else "add")
    arrays, updates = range(count), range(count + 1, 2 * count + 1)
    operand_of = dict(zip(w.indices_batching, w.operand_batching, strict=True))
    for place, d in zip(w.places, w.index_dimensions, strict=True):
        given = {count: d, **dict.fromkeys(updates, place)}
        if d in operand_of:
            rule.add({**dict.fromkeys(arrays, operand_of[d]), **given}, dict.fromkeys(arrays, operand_of[d]))
        else:
            rule.add(given, {}, "reduction" if kind in UFUNCS else "whole")
    place_of = dict(zip(w.window_dimensions, w.offset, strict=True))
    for d, size in enumerate(w.operand):
        if d in w.operand_batching:
            continue
        both = dict.fromkeys(arrays, d)
        if d in place_of and w.sizes[d] == size:
            rule.add({**both, **dict.fromkeys(updates, place_of[d])}, both)
        else:
            rule.add(both, both, "masked" if d in w.mapped else "whole")  # full: windows at its beginning
    return rule.finish()


def _scatter_bounded(build, instruction, operands):
    """Indices beyond a size are -1, which scatter drops."""
    count, w = len(operands) // 2, windows_of(instruction)
    window_sizes(instruction, w, operands[0].dims)
    arrays, indices, updates = operands[:count], operands[count], operands[count + 1 :]
    attributes, places = dict(instruction.attributes), computed_places(w)
    if places:
        if not w.mapped:
            raise refused(instruction, "its windows have no places")
        indices = indices.convert(DTYPES["s64"]) if indices.dtype.kind == "u" else indices
        indices = build.masked(indices, instruction.operands[count].dims, places, -1)
        attributes.pop("indices_are_sorted", None)
    return arrays[0].op("scatter", *arrays[1:], indices, *updates, **attributes).results()


op(
    "scatter",
    family="scatter",
    infer=_scatter_infer,
    reference=_scatter_reference,
    code=No("a kernel of its own walks the updates"),
    jvp=_scatter_jvp,
    transpose=_scatter_transpose,
    batch=_scatter_batch,
    factors=_scatter_factors,
    bounded=_scatter_bounded,
    attributes={
        "update_window_dims": "ints",
        "inserted_window_dims": "ints",
        "scatter_dims_to_operand_dims": "ints",
        "input_batching_dims": "ints?",
        "scatter_indices_batching_dims": "ints?",
        "index_vector_dim": "int",
        "indices_are_sorted": "flag",
        "unique_indices": "flag",
        "to_apply": "computation",
    },
    flops=1,
    dialects="hlo",
)
