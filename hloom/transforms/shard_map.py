"""shard_map: a function of the shards of arrays on the devices of a mesh."""

from __future__ import annotations

import functools

from hloom.errors import ArgumentError, ShapeError
from hloom.sharding.shardings import Mesh, PartitionSpec, get_mesh
from hloom.tracing.conversion import reshape_to
from hloom.tracing.signatures import function_name, wraps
from hloom.tracing.trace import as_array, bind
from hloom.transforms.vmap import vmap
from hloom.tree import pytrees as tree


def shard_map(f=None, *, mesh: Mesh | None = None, in_specs=None, out_specs=None, check_vma: bool = True, **options):
    """The function that splits its arguments over a mesh, applies f to the shards and joins the results.

    mesh: by default the current one (`hl.set_mesh`). in_specs: a PartitionSpec for each argument, or a prefix of its
    tree; along a mesh axis that it does not name, every device gets the whole. out_specs: the same for the result; a
    result must be equal along axes that its spec does not name. check_vma: False uses the first device's result there
    without a check. In f, the collectives of `hloom.lax` find the mesh's axes by their names.

    Arrays of hloom are whole and on one device; the shards are batch elements of one compiled program, as for `vmap`.
    Raises ShapeError where a dimension cannot be split, ArgumentError for specs that do not match, BatchingError for
    results that differ where they must be equal.
    """
    if f is None:
        return functools.partial(
            shard_map, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=check_vma, **options
        )
    check = options.get("check_rep", check_vma)
    name = function_name(f)

    @wraps(f)
    def sharded(*args):
        grid = get_mesh() if mesh is None else mesh
        if grid.empty or in_specs is None or out_specs is None:
            raise ArgumentError(
                f"shard_map of '{name}' requires a mesh, in_specs and out_specs",
                "one of them is missing",
                "pass mesh=, or call it within hl.set_mesh(mesh)",
            )
        sizes = dict(zip(grid.axis_names, grid.axis_sizes, strict=True))
        given = args[0] if len(args) == 1 and isinstance(in_specs, PartitionSpec) else args
        leaves, structure = tree.flatten(given)
        specs = _spread(in_specs, given, f"in_specs of shard_map of '{name}'")
        parts = [_split(as_array(x), spec, sizes, name) for x, spec in zip(leaves, specs, strict=True)]

        def one(*flat):
            found = tree.unflatten(structure, flat)
            return f(found) if given is not args else f(*found)

        for axis in reversed(grid.axis_names):
            one = vmap(
                one,
                tuple(0 if axis in _names(spec) else None for spec in specs),
                tree.map(lambda spec, axis=axis: 0 if not check or axis in _names(spec) else None, out_specs),
                axis_name=axis,
                axis_size=sizes[axis],
            )
        result = one(*parts)
        outs, out_tree = tree.flatten(result)
        found = _spread(out_specs, result, f"out_specs of shard_map of '{name}'")
        whole = [_join(x, spec, sizes, check) for x, spec in zip(outs, found, strict=True)]
        return tree.unflatten(out_tree, whole)

    return sharded


def _entries(spec) -> list[tuple[str, ...]]:
    """The names that split each dimension."""
    return [() if e is None else e if isinstance(e, tuple) else (e,) for e in spec]


def _names(spec) -> list[str]:
    return [name for entry in _entries(spec) for name in entry]


def _spread(specs, value, what: str) -> list[PartitionSpec]:
    """The spec of each leaf of a tree; None stands for one that names nothing."""
    found = tree.broadcast(specs, value, is_leaf=lambda s: s is None or isinstance(s, PartitionSpec))
    found = tree.leaves(found, is_leaf=lambda s: s is None or isinstance(s, PartitionSpec))
    found = [PartitionSpec() if s is None else s for s in found]
    wrong = [s for s in found if not isinstance(s, PartitionSpec)]
    if wrong:
        raise ArgumentError(f"{what} are PartitionSpecs", f"{wrong[0]!r:.80}", "write P('axis', None)")
    return found


def _split(x, spec, sizes: dict[str, int], name: str):
    """x with a first dimension for each axis of the mesh that splits it, in the mesh's order."""
    if len(spec) > x.ndim:
        raise ArgumentError(f"shard_map of '{name}': a spec has one entry per dimension", f"{spec!r} for {x._shape!r}",
                            "pass as many as there are")  # fmt: skip
    dims: list[int] = []
    positions: dict[str, int] = {}
    rest = []
    for size, entry in zip(x.shape, [*_entries(spec), *[()] * (x.ndim - len(spec))], strict=True):
        for axis in entry:
            if axis not in sizes or size % sizes[axis]:
                raise ShapeError(
                    f"shard_map of '{name}' splits dimension {size} of {x._shape!r} over mesh axis {axis!r}",
                    f"the mesh has {sizes}",
                    "use mesh axes whose sizes divide those of the array",
                )
            positions[axis] = len(dims)
            dims.append(sizes[axis])
            size //= sizes[axis]
        rest.append(len(dims))
        dims.append(size)
    return _transposed(reshape_to(x, tuple(dims)), [positions[a] for a in sizes if a in positions] + rest)


def _join(x, spec, sizes: dict[str, int], check: bool):
    """The whole array of the shards that `_split` returns."""
    front = [axis for axis in sizes if not check or axis in _names(spec)]
    kept = [axis for axis in front if axis in _names(spec)]
    for position in reversed(range(len(front))):
        if front[position] not in kept:
            x = x[(slice(None),) * position + (0,)]
    order, dims = [], []
    local = x.shape[len(kept) :]
    for k, (size, entry) in enumerate(zip(local, [*_entries(spec), *[()] * (len(local) - len(spec))], strict=True)):
        order += [*(kept.index(axis) for axis in entry), len(kept) + k]
        for axis in entry:
            size *= sizes[axis]
        dims.append(size)
    return reshape_to(_transposed(x, order), tuple(dims))


def _transposed(x, order):
    return x if order == list(range(len(order))) else bind("transpose", x, dimensions=tuple(order))
