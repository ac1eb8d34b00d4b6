"""Arguments of loops and branches: functions, trees of arrays, and carries with invariant types."""

from __future__ import annotations

from hloom.arrays.digits import DOUBLE
from hloom.errors import ArgumentError, DTypeError, ShapeError
from hloom.ir.types import Shape, promote
from hloom.lax.operands import convert, with_weakness
from hloom.tracing.exact import note_twin
from hloom.tracing.regions import Region, described, leaf_names, same_tree
from hloom.tracing.trace import as_array
from hloom.tree import pytrees as tree


def function_name(function, default: str) -> str:
    return getattr(function, "__name__", None) or type(function).__name__ or default


def require_function(function, name: str, what: str) -> None:
    if not callable(function):
        raise ArgumentError(f"{name} takes a function as its {what}", f"{type(function).__name__}", "pass a function")


def array_leaves(value, what: str, base: str):
    """(arrays, structure, names) of a tree of arrays and numbers."""
    leaves, structure = tree.flatten(value)
    names = leaf_names(value, base)
    return [as_array(v, f"{n} of {what}") for v, n in zip(leaves, names, strict=True)], structure, names


def checked_carry(leaves, names, body_shapes, body_weak, what: str):
    """(the initial carry, whose weakly typed leaves (Python scalars) take the dtype that the body returns; whether any
    changed).

    Raises ShapeError or DTypeError if the body changes the type of a leaf.
    """
    promoted, changed = [], False
    for leaf, name, shape, weak in zip(leaves, names, body_shapes, body_weak, strict=True):
        if leaf._shape is shape:
            promoted.append(leaf)
            continue
        if leaf.weak and leaf._shape.dims == shape.dims and _joins(leaf.dtype, shape.dtype, weak):
            promoted.append(convert(leaf, shape.dtype, weak))
            changed = True
            continue
        raise _changed(leaf, name, shape, weak, what)
    return promoted, changed


def _changed(leaf, name: str, shape: Shape, weak: bool, what: str) -> ShapeError | DTypeError:
    """The error for a leaf whose type the body changes."""
    error: type[ShapeError | DTypeError] = ShapeError if leaf._shape.dims != shape.dims else DTypeError
    repair = f"convert the body's {name} with astype, or start with an array of its dtype"
    if error is ShapeError:
        repair = f"broadcast or reshape {name} so that it keeps its shape"
    return error(
        f"{what}: every leaf of the carry has one type, before and after the body",
        f"{name} goes in as {described(leaf._shape, leaf.weak)} and comes out as {described(shape, weak)}",
        repair,
    )


def checked_return(before, after, what: str, base: str):
    """The result of a loop body for a value, for loops built from other loops: errors name the loop that the user
    wrote, and the value by its name there. Raises TreeError, ShapeError, DTypeError."""
    given, structure = tree.flatten(before)
    returned, found = tree.flatten(after)
    same_tree(found, structure, f"{what}: body_fun returns the structure of {base}")
    for old, new, name in zip(given, returned, leaf_names(before, base), strict=True):
        new = as_array(new, f"the body's {name} of {what}")
        keeps = old._shape is new._shape or (old._shape.dims == new._shape.dims and old.weak)
        if not (keeps and (old._shape is new._shape or _joins(old.dtype, new.dtype, new.weak))):
            raise _changed(old, name, new._shape, new.weak, what)
    return after


def _joins(weak_dtype, dtype, weak: bool) -> bool:
    """Whether a weakly typed scalar may take the dtype."""
    return promote((weak_dtype, True), (dtype, weak))[0] == dtype


def output_shapes(body: Region):
    return [o.shape for o in body.outputs]


def with_weakness_flags(values, weak):
    return [with_weakness(value, value.weak or flag) for value, flag in zip(values, weak, strict=True)]


# --- twins: `hloom.tracing.exact` ---------------------------------------------------------------------------------


def carried_twins(body: Region, count: int, *others: Region) -> list[int]:
    """Which of the `count` leaves of a loop's state have a twin: those whose twin is read or returned by a step."""
    found = {k for region in (body, *others) for k in region.wide}
    return sorted(k for k in found | set(body.twins) if k < count)


def results_of(builder, body: Region, results):
    """(the results of an inlined region, a function from result indices to the values in double width)."""
    own, exact = results[: len(body.weak)], dict(zip(body.twins, results[len(body.weak) :], strict=True))

    def wide(k: int):
        if k in exact:
            return exact[k]
        return builder.emit("convert", own[k], shape=own[k].shape.with_dtype(DOUBLE[own[k].dtype]))

    return own, wide


def with_twins(values, numbers, exact) -> list:
    """The values, with the twins of those at these indices that are weakly typed."""
    values = list(values)
    for k, value in zip(numbers, exact, strict=True):
        if values[k].weak:
            values[k] = note_twin(values[k], value)
    return values
