"""Collectives: ops by which the participants of one program exchange values.

A participant is a device (HLO: a replica or partition) or, under `vmap` with a named axis, one of the batch elements:
then the instruction has the attribute `axis_name`, and batching over that axis replaces it. A program on one device has
one participant, for which collectives are the identity; `hloom.ir.spmd` has programs for several devices.

Source: HLO operation semantics, openxla.org/xla/operation_semantics.
"""

from __future__ import annotations

import numpy as np

from hloom.ir.build import Value, combiner_opcode, scalar_computation
from hloom.ir.errors import AttributeValueError, DifferentiationError, ParticipantsError, ShapeError
from hloom.ir.op_table import OPS, No, elementwise_batch, op
from hloom.ir.ops.batching import shifted
from hloom.ir.ops.factoring import exchanged_factors
from hloom.ir.ops.rules import linear_jvp, require_combiner, require_count, require_kind, zero_jvp
from hloom.ir.spmd.factors import pointwise
from hloom.ir.spmd.participants import current, exchange
from hloom.ir.types import DTYPES, Shape, TupleShape

EXCHANGE = No("it exchanges values with other participants")
U32 = DTYPES["u32"]
COLLECTIVES = frozenset(
    "all-reduce all-gather reduce-scatter all-to-all collective-permute collective-broadcast".split()
)
NUMBERS = ("partition-id", "replica-id")  # of the device running the program
# `why`: the purpose of a collective created by partitioning.
GROUPS = {
    "replica_groups": "groups?", "channel_id": "int?", "use_global_device_ids": "flag", "axis_name": "frontend_names",
    "axis_size": "frontend_int", "axis_groups": "frontend_groups", "why": "hidden",
}  # fmt: skip


def group_size(attributes) -> int:
    """The number of participants that exchange values. `replica_groups` names them; without groups it is the only
    one."""
    groups = attributes.get("replica_groups", ())
    return len(groups[0]) if groups else 1


def _check_groups(name: str, attributes) -> int:
    groups = attributes.get("replica_groups", ())
    members = sorted(m for group in groups for m in group)
    whole = members == list(range(len(members)))
    if name == "collective-broadcast":  # the others get zeros
        whole = len(set(members)) == len(members)
    uneven = len({len(g) for g in groups}) > 1 and name != "all-reduce"
    if uneven or not whole:
        sizes = "" if name == "all-reduce" else " of one size"
        raise AttributeValueError(
            f"{name} takes groups{sizes} in which each participant is once", f"{groups}", "check replica_groups"
        )
    return group_size(attributes)


def _alone(name: str, attributes) -> None:
    """Raises ParticipantsError if other participants are needed, as there is only one."""
    groups = attributes.get("replica_groups", ())
    pairs = attributes.get("source_target_pairs", ())
    needed = 1 + max([m for group in (*groups, *pairs) for m in group], default=0)
    if needed > 1:
        raise ParticipantsError(
            f"{name} among {needed} participants was to run",
            "hloom runs a program on one device",
            "use vmap with axis_name, whose batch elements are participants, or a program for one device",
        )
    if attributes.get("axis_name"):
        raise ParticipantsError(
            f"{name} over the axis {', '.join(map(repr, attributes['axis_name']))} was to run",
            "no vmap around it has an axis of that name",
            "apply vmap with this axis_name around the function",
        )


def _identity(name: str):
    def reference(*operands, shape, **attributes):
        if (participant := current()) is not None and not attributes.get("axis_name"):
            return exchange(participant, name, operands, shape, attributes)
        _alone(name, attributes)
        return tuple(operands) if isinstance(shape, TupleShape) else np.asarray(operands[0])

    return reference


def _size(instruction) -> int:
    """The number of participants of the named axis, or of a group."""
    return instruction.attributes.get("axis_size") or group_size(instruction.attributes)


# --- shared rules -------------------------------------------------------------------------------------------------


def _others(build, instruction) -> dict:
    """The attributes of the instruction without the axis of this batch."""
    names = tuple(n for n in instruction["axis_name"] if n != build.axis_name)
    return {**instruction.attributes, "axis_name": names}


def _is_named(build, instruction) -> bool:
    return build.axis_name is not None and build.axis_name in instruction.attributes.get("axis_name", ())


def _moved(build, instruction, operands, mapped):
    """Batching over an axis not named by the collective: each participant has a batch."""
    attributes = dict(instruction.attributes)
    if "dimensions" in attributes:
        attributes["dimensions"] = shifted(attributes["dimensions"])
    first, *rest = build.spread_all(operands, mapped)
    shape = (
        instruction.shape.with_dims((build.size, *instruction.dims)) if isinstance(instruction.shape, Shape) else None
    )
    return first.op(instruction.opcode, *rest, shape=shape, **attributes)


def rows(value, numbers):
    """The rows `numbers` of the first dimension in this order; None is a row of zeros."""
    bounds = [(0, size, 1) for size in value.dims[1:]]
    zero = None
    parts = []
    for number in numbers:
        if number is None:
            if zero is None:
                zero = value.filled(0, value.shape.with_dims((1, *value.dims[1:])))
            parts.append(zero)
        else:
            parts.append(value.op("slice", slice=((number, number + 1, 1), *bounds)))
    return parts[0] if len(parts) == 1 else parts[0].op("concatenate", *parts[1:], dimensions=(0,))


# --- groups of batch elements: `axis_groups`, of equal size; dimensions are then [group, member, ...] -----------------


def _turned(groups) -> tuple[int, int, int] | None:
    """(a, size, c) if the groups are the columns of a matrices of `size` rows and c columns, in order."""
    size, count = len(groups[0]), len(groups) * len(groups[0])
    c = groups[0][1] - groups[0][0] if size > 1 else 1
    if c < 1 or count % (size * c):
        return None
    numbers = np.arange(count).reshape(count // (size * c), size, c).transpose(0, 2, 1).reshape(-1, size)
    return (count // (size * c), size, c) if np.array_equal(numbers, np.array(groups)) else None


def _grouped(value, groups):
    """The batch elements of a value as [group, member, ...]."""
    rest = value.dims[1:]
    turned = _turned(groups)
    if turned is None:
        value = rows(value, [member for group in groups for member in group])
    elif turned[2] != 1:
        order = (0, 2, 1, *range(3, 3 + len(rest)))
        value = value.reshape((*turned, *rest)).transpose(order)
    return value.reshape((len(groups), len(groups[0]), *rest))


def _ungrouped(build, groups, value):
    """The inverse of `_grouped`."""
    rest = value.dims[2:]
    turned = _turned(groups)
    if turned is None:
        where = {member: k for k, member in enumerate(member for group in groups for member in group)}
        return rows(value.reshape((build.size, *rest)), [where[k] for k in range(build.size)])
    if turned[2] != 1:
        a, size, c = turned
        value = value.reshape((a, c, size, *rest)).transpose((0, 2, 1, *range(3, 3 + len(rest))))
    return value.reshape((build.size, *rest))


def _same(value, groups):
    """A value per group, broadcast to its members."""
    dims = value.dims
    return value.broadcast((dims[0], len(groups[0]), *dims[1:]), (0, *range(2, len(dims) + 1)))


def _folded(value, first: int, dimension: int):
    """A value whose dimension `first` becomes the major part of another, with index `dimension` in the result."""
    order = [k for k in range(len(value.dims)) if k != first]
    order.insert(dimension, first)
    moved = value.transpose(order)
    dims = list(moved.dims)
    dims[dimension : dimension + 2] = [dims[dimension] * dims[dimension + 1]]
    return moved.reshape(dims)


def _declare(name: str, **parts) -> None:
    attributes = {
        **GROUPS,
        "axis_size": "frontend_int",
        "axis_groups": "frontend_groups",
        **parts.pop("attributes", {}),
    }
    parts.setdefault("reference", _identity(name))
    parts.setdefault("factors", exchanged_factors)
    op(name, family="library", dialects="hlo", code=EXCHANGE, attributes=attributes, flops=0, **parts)


# --- all-reduce ---------------------------------------------------------------------------------------------------


def _all_reduce_infer(operands, attributes, shape):
    _check_groups("all-reduce", attributes)
    if not operands:
        raise ShapeError("all-reduce takes at least one array", "none", "pass the arrays")
    for operand in operands:
        require_kind("all-reduce", operand, ())
    for operand in operands:
        require_combiner("all-reduce", "to_apply", attributes.get("to_apply"), [Shape(operand.dtype)])
    return operands[0] if len(operands) == 1 else TupleShape(operands)


def _combiner(instruction) -> str | None:
    return combiner_opcode(instruction["to_apply"])


def _all_reduce_jvp(build, instruction, primals, tangents):
    results = []
    many = len(primals) > 1
    for primal, tangent in zip(primals, tangents, strict=True):
        results.append(None if tangent is None else _one_all_reduce_jvp(build, instruction, primal, tangent, many))
    return results if many else results[0]


def _one_all_reduce_jvp(build, instruction, primal, tangent, many: bool):
    opcode = _combiner(instruction)
    attributes = {**instruction.attributes, "to_apply": scalar_computation("add", primal.dtype)}
    if opcode == "add":
        return tangent.op("all-reduce", **attributes)
    if opcode in ("maximum", "minimum"):
        # The mean over the participants that attain the extremum.
        result = primal.op("all-reduce", **instruction.attributes)
        reached = primal.compare("EQ", result).convert(primal.dtype)
        return (tangent * reached).op("all-reduce", **attributes) / reached.op("all-reduce", **attributes)
    raise DifferentiationError(
        f"the derivative of an all-reduce with combiner '{instruction['to_apply'].name}' was asked for",
        "sums, maxima and minima have one",
        "gather the values with all_gather and reduce them",
        source=instruction.source,
    )


def _all_reduce_transpose(build, instruction, g, operands):
    given = g if isinstance(g, list) else [g]
    return [
        c.op("all-reduce", **instruction.attributes) if o is None and c is not None else None
        for c, o in zip(given, operands, strict=True)
    ]


def _all_reduce_batch(build, instruction, operands, mapped):
    values = build.spread_all(operands, mapped)
    if not _is_named(build, instruction):
        return values[0].op("all-reduce", *values[1:], **instruction.attributes).results()
    attributes, groups = _others(build, instruction), instruction.attributes.get("axis_groups")
    found = []
    for value in values:
        start = _neutral(instruction, value)
        if groups:
            reduced = _reduced(_grouped(value, groups), instruction, start, 1)
            found.append(_ungrouped(build, groups, _same(reduced, groups)))
        else:
            found.append(_reduced(value, instruction, start))
    if attributes["axis_name"]:
        result = found[0].op("all-reduce", *found[1:], **attributes)
        found = [result] if len(found) == 1 else [result.op("get-tuple-element", index=k) for k in range(len(found))]
    marked = found if groups else [build.unmapped(f) for f in found]
    return marked if isinstance(instruction.shape, TupleShape) else marked[0]


def _neutral(instruction, value):
    opcode = _combiner(instruction)
    if opcode is None or OPS[opcode].identity is None:
        raise AttributeValueError(
            "all-reduce combines by one op such as add or maximum", instruction["to_apply"].name, "use all_gather"
        )
    return value.builder.constant(OPS[opcode].neutral(value.dtype))


def _reduced(value, instruction, start, dimension: int = 0):
    to_apply = instruction["to_apply"]
    emit = value.builder.emit
    return Value(value.builder, emit("reduce", value.instruction, start, dimensions=(dimension,), to_apply=to_apply))


_declare(
    "all-reduce",
    infer=_all_reduce_infer,
    jvp=_all_reduce_jvp,
    transpose=_all_reduce_transpose,
    batch=_all_reduce_batch,
    attributes={"to_apply": "computation"},
)

# --- all-gather and reduce-scatter --------------------------------------------------------------------------------


def _one_dimension(name: str, operand, attributes) -> int:
    dimensions = attributes.get("dimensions", ())
    if len(dimensions) != 1 or not 0 <= dimensions[0] < operand.rank:
        raise AttributeValueError(f"{name} takes one dimension of {operand!r}", f"{dimensions}", "name an existing one")
    return dimensions[0]


def _members(name: str, attributes, result: int, part: int) -> int:
    """The number of devices that exchange values. With a channel and without use_global_device_ids the groups name
    replicas, all of whose partitions take part; their number follows only from the shapes."""
    count = attributes.get("axis_size") or _check_groups(name, attributes)
    if (attributes.get("channel_id") or 0) > 0 and not attributes.get("use_global_device_ids"):
        times = result // max(part, 1)
        return times if times > 0 and times % count == 0 else count
    return count


def _scaled(shape: Shape, d: int, times: int) -> Shape:
    return shape.with_dims((*shape.dims[:d], shape.dims[d] * times, *shape.dims[d + 1 :]))


def _all_gather_infer(operands, attributes, shape):
    require_count("all-gather", operands, 1)
    require_kind("all-gather", operands[0], ())
    d = _one_dimension("all-gather", operands[0], attributes)
    own = operands[0].dims[d]
    count = _members("all-gather", attributes, own if shape is None else shape.dims[d], own)
    return _scaled(operands[0], d, count)


def _all_gather_transpose(build, instruction, g, operands):
    return [g.op("reduce-scatter", **instruction.attributes, to_apply=scalar_computation("add", g.dtype))]


def _all_gather_batch(build, instruction, operands, mapped):
    if not _is_named(build, instruction):
        return _moved(build, instruction, operands, mapped)
    (value,) = build.spread_all(operands, mapped)
    (d,), groups = instruction["dimensions"], instruction.attributes.get("axis_groups")
    if groups:
        return _ungrouped(build, groups, _same(_folded(_grouped(value, groups), 1, d + 1), groups))
    return build.unmapped(build.merge(value, d))


_declare(
    "all-gather",
    infer=_all_gather_infer,
    jvp=linear_jvp,
    transpose=_all_gather_transpose,
    batch=_all_gather_batch,
    attributes={"dimensions": "ints"},
)


def _reduce_scatter_infer(operands, attributes, shape):
    require_count("reduce-scatter", operands, 1)
    require_kind("reduce-scatter", operands[0], ())
    d = _one_dimension("reduce-scatter", operands[0], attributes)
    require_combiner("reduce-scatter", "to_apply", attributes.get("to_apply"), [Shape(operands[0].dtype)])
    own = operands[0].dims[d]
    count = _members("reduce-scatter", attributes, own, own if shape is None else shape.dims[d])
    if own % count:
        raise ShapeError(
            f"reduce-scatter gives each of {count} participants a part of dimension {d}",
            f"{operands[0]!r}",
            f"make the size a multiple of {count}",
        )
    dims = list(operands[0].dims)
    dims[d] //= count
    return operands[0].with_dims(dims)


def _reduce_scatter_transpose(build, instruction, g, operands):
    attributes = {k: v for k, v in instruction.attributes.items() if k != "to_apply"}
    return [g.op("all-gather", **attributes)]


def _reduce_scatter_batch(build, instruction, operands, mapped):
    if not _is_named(build, instruction):
        return _moved(build, instruction, operands, mapped)
    (value,) = build.spread_all(operands, mapped)
    (d,), groups = instruction["dimensions"], instruction.attributes.get("axis_groups")
    if groups:
        found = _reduced(_grouped(value, groups), instruction, _neutral(instruction, value), 1)
        dims, size = found.dims, len(groups[0])
        opened = found.reshape((*dims[: d + 1], size, dims[d + 1] // size, *dims[d + 2 :]))
        order = (0, d + 1, *(k for k in range(1, len(dims) + 1) if k != d + 1))
        return _ungrouped(build, groups, opened.transpose(order))
    return build.split(_reduced(value, instruction, _neutral(instruction, value)), d)


_declare(
    "reduce-scatter",
    infer=_reduce_scatter_infer,
    jvp=linear_jvp,
    transpose=_reduce_scatter_transpose,
    batch=_reduce_scatter_batch,
    attributes={"dimensions": "ints", "to_apply": "computation"},
)

# --- all-to-all ---------------------------------------------------------------------------------------------------


def _all_to_all_infer(operands, attributes, shape):
    count = attributes.get("axis_size") or _check_groups("all-to-all", attributes)
    for operand in operands:
        require_kind("all-to-all", operand, ())
    if "dimensions" not in attributes:  # the form with one operand per participant
        return TupleShape(operands)
    require_count("all-to-all", operands, 1)
    d = _one_dimension("all-to-all", operands[0], attributes)
    if operands[0].dims[d] % count:
        raise ShapeError(
            f"all-to-all cuts dimension {d} into {count} parts",
            f"{operands[0]!r}",
            f"make the size a multiple of {count}",
        )
    return operands[0]


def _all_to_all_jvp(build, instruction, primals, tangents):
    given = [p.like(0) if t is None else t for p, t in zip(primals, tangents, strict=True)]
    return given[0].op("all-to-all", *given[1:], **instruction.attributes).results()


def _all_to_all_transpose(build, instruction, g, operands):
    given = g if isinstance(g, list) else [g]
    filled = [
        type(next(c for c in given if c is not None))(build, build.splat(0, o.shape)) if c is None else c
        for c, o in zip(given, instruction.operands, strict=True)
    ]
    result = filled[0].op("all-to-all", *filled[1:], **instruction.attributes)
    if not isinstance(instruction.shape, TupleShape):
        return [result]
    return [result.op("get-tuple-element", index=k) if o is None else None for k, o in enumerate(operands)]


def _all_to_all_batch(build, instruction, operands, mapped):
    if isinstance(instruction.shape, TupleShape):
        first, *rest = build.spread_all(operands, mapped)
        return first.op("all-to-all", *rest, **instruction.attributes).results()
    if not _is_named(build, instruction):
        return _moved(build, instruction, operands, mapped)
    (value,) = build.spread_all(operands, mapped)
    (d,) = instruction["dimensions"]
    # [group, sender, ..., receiver x part, ...] -> [group, receiver, ..., sender x part, ...]
    groups = instruction.attributes.get("axis_groups") or (tuple(range(build.size)),)
    value = _grouped(value, groups)
    dims, size = value.dims, len(groups[0])
    opened = value.reshape((*dims[: d + 2], size, dims[d + 2] // size, *dims[d + 3 :]))
    order = list(range(len(dims) + 1))
    order[1], order[d + 2] = order[d + 2], order[1]
    return _ungrouped(build, groups, opened.transpose(order).reshape(dims))


_declare(
    "all-to-all",
    infer=_all_to_all_infer,
    jvp=_all_to_all_jvp,
    transpose=_all_to_all_transpose,
    batch=_all_to_all_batch,
    attributes={"dimensions": "ints?"},
)

# --- permutations and broadcasts ----------------------------------------------------------------------------------


def _same_infer(name: str):
    def infer(operands, attributes, shape):
        require_count(name, operands, 1)
        require_kind(name, operands[0], ())
        if name == "collective-permute":
            pairs = attributes.get("source_target_pairs", ())
            for side, what in ((0, "source"), (1, "target")):
                found = [p[side] for p in pairs]
                if len(set(found)) != len(found) or any(len(p) != 2 for p in pairs):
                    raise AttributeValueError(
                        f"{name} takes pairs in which each participant is a {what} once", f"{pairs}", "check the pairs"
                    )
        else:
            _check_groups(name, attributes)
        return operands[0]

    return infer


def _permute_reference(x, shape, **attributes):
    if (participant := current()) is not None and not attributes.get("axis_name"):
        return exchange(participant, "collective-permute", (x,), shape, attributes)
    _alone("collective-permute", attributes)
    return x if attributes["source_target_pairs"] else np.zeros_like(x)


def _permute_transpose(build, instruction, g, operands):
    pairs = tuple((t, s) for s, t in instruction["source_target_pairs"])
    return [g.op("collective-permute", **{**instruction.attributes, "source_target_pairs": pairs})]


def _permute_batch(build, instruction, operands, mapped):
    if not _is_named(build, instruction):
        return elementwise_batch(build, instruction, operands, mapped)
    (value,) = build.spread_all(operands, mapped)
    source = {t: s for s, t in instruction["source_target_pairs"]}
    return rows(value, [source.get(k) for k in range(build.size)])


_declare(
    "collective-permute",
    infer=_same_infer("collective-permute"),
    reference=_permute_reference,
    jvp=linear_jvp,
    transpose=_permute_transpose,
    batch=_permute_batch,
    attributes={"source_target_pairs": "groups"},
)


def _broadcast_batch(build, instruction, operands, mapped):
    if not _is_named(build, instruction):
        return elementwise_batch(build, instruction, operands, mapped)
    (value,) = build.spread_all(operands, mapped)
    groups = instruction.attributes.get("axis_groups")
    if groups:
        first = _grouped(value, groups)
        bounds = [(0, size, 1) for size in first.dims]
        bounds[1] = (0, 1, 1)
        sent = first.op("slice", slice=tuple(bounds)).reshape((first.dims[0], *first.dims[2:]))
        return _ungrouped(build, groups, _same(sent, groups))
    source = instruction.attributes.get("axis_source", 0)
    return build.unmapped(rows(value, [source]).reshape(value.dims[1:]))


def _broadcast_transpose(build, instruction, g, operands):
    """The sum of the cotangents goes to the source."""
    names = {k: v for k, v in instruction.attributes.items() if k in ("axis_name", "axis_size", "replica_groups")}
    total = g.op("all-reduce", **names, to_apply=scalar_computation("add", g.dtype))
    own = Value(build, build.emit("partition-id", **{k: v for k, v in names.items() if k != "replica_groups"}))
    groups = instruction.attributes.get("replica_groups", ())
    source = groups[0][0] if groups else instruction.attributes.get("axis_source", 0)
    return [own.compare("EQ", source).where(total, total.like(0))]


_declare(
    "collective-broadcast",
    infer=_same_infer("collective-broadcast"),
    jvp=linear_jvp,
    transpose=_broadcast_transpose,
    batch=_broadcast_batch,
    attributes={"axis_source": "frontend_int"},
)

# --- participant ids ----------------------------------------------------------------------------------------------


def _number_infer(operands, attributes, shape):
    require_count("the number of a participant", operands, 0)
    return Shape(U32, ())


def _number_reference(name: str):
    def reference(shape, **attributes):
        if (participant := current()) is not None and not attributes.get("axis_name"):
            return exchange(participant, name, (), shape, attributes)
        _alone(name, attributes)
        return np.zeros((), U32)

    return reference


def _number_batch(build, instruction, operands, mapped):
    """axis_ids: the indices of the participants, if they are not 0, 1, ..."""
    ids = instruction.attributes.get("axis_ids")
    return build.iota(U32) if ids is None else Value(build.builder, build.builder.constant(np.array(ids, U32)))


for name in NUMBERS:
    _declare(
        name,
        infer=_number_infer,
        reference=_number_reference(name),
        jvp=zero_jvp,
        transpose=No("it has no operands"),
        batch=_number_batch,
        factors=pointwise,
        attributes={"axis_ids": "hidden"},
    )
