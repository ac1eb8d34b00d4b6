"""shard_map: a function of the shards of arrays on the devices of a mesh."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.compiler.transforms.varying import varying_axes
from hloom.dispatch.sharded import run_op
from hloom.errors import ArgumentError, BatchingError, ShapeError, TreeError
from hloom.ir.module import Computation, below
from hloom.ir.records import record
from hloom.ir.spmd.axes import with_groups
from hloom.ir.spmd.sharding import DeviceMesh
from hloom.ir.spmd.sharding import Sharding as Layout
from hloom.ir.types import Shape
from hloom.sharding.explicit import hidden
from hloom.sharding.meshes import AbstractMesh, AxisType, Mesh, current_mesh, get_mesh, use_abstract_mesh
from hloom.sharding.shardings import NamedSharding, PartitionSpec
from hloom.tracing.active import brings_twins, named_axis
from hloom.tracing.exact import exact_arguments
from hloom.tracing.signatures import argument_hints, function_name, wraps
from hloom.tracing.trace import Traced, as_array, bind, current_trace, trace_function, typed_sharding
from hloom.tree import pytrees as tree


class _Infer:
    """`jax.sharding.Infer`: in_specs as the arguments are laid out."""

    def __repr__(self) -> str:
        return "Infer"


Infer = _Infer()


def shard_map(
    f=None,
    *,
    mesh: Mesh | AbstractMesh | None = None,
    in_specs: Any = Infer,
    out_specs: Any = None,
    axis_names=frozenset(),
    check_vma: bool = True,
    **options,
):
    """The function that splits its arguments over a mesh, applies f on each device to its shards, joins the results.

    mesh: by default the current one (`hl.set_mesh`). in_specs: a PartitionSpec for each argument, or a prefix of its
    tree; along a mesh axis that it does not name, every device gets the whole. Without it, as the arguments are laid
    out. out_specs: the same for the result; a result must be equal along axes that its spec does not name.
    axis_names: the axes that f is written for, by default all; along the others the compiler splits what f does
    (f sees arrays that are whole along them, and specs do not name them). check_vma: False uses the first device's
    result where all must be equal, without a check. In f, the collectives of `hloom.lax` find the axes by their names.

    Raises ShapeError where a dimension cannot be split or an axis is not of the mesh, ArgumentError for specs that do
    not match, BatchingError for results that differ where they must be equal.

    >>> mesh = hl.make_mesh((1,), ("i",))
    >>> total = hl.shard_map(lambda x: hl.lax.psum(x.sum(), "i"), mesh=mesh, in_specs=hl.P("i"), out_specs=hl.P())
    >>> total(hnp.arange(4.0))
    Array(6., dtype=float32)
    """
    if f is None:
        return functools.partial(
            shard_map, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names=axis_names, check_vma=check_vma,
            **options,
        )  # fmt: skip
    check = options.pop("check_rep", check_vma)
    manual = frozenset(axis_names)
    if "auto" in options:  # the older name of the other axes
        manual = frozenset(mesh.axis_names if mesh is not None else ()) - frozenset(options.pop("auto"))
    if options:
        raise ArgumentError("the options of shard_map", f"{next(iter(options))}=", "see help(shard_map)")
    name = function_name(f)

    @wraps(f)
    def sharded(*args, **kwargs):
        grid = _mesh(mesh, name, out_specs)
        names = _manual_names(grid, manual, name)
        if kwargs:
            raise ArgumentError(
                f"shard_map of '{name}' takes arguments by position",
                f"{', '.join(kwargs)} by name",
                "pass it by position",
            )
        return _Sharded(f, name, grid, in_specs, out_specs, names, check)(args)

    return sharded


def on_shards(f, mesh: Mesh, in_specs: tuple, out_specs: Callable[[list[Shape]], list[PartitionSpec]]):
    """shard_map without checks, where the specs of the results are known once f is traced: out_specs(their shapes)."""

    def sharded(*args):
        return _Sharded(f, function_name(f), mesh, in_specs, out_specs, mesh.axis_names, False)(args)

    return sharded


def smap(f=None, *, in_axes: Any = Infer, out_axes: Any, axis_name: str):
    """shard_map along one axis of the current mesh; in_axes, out_axes: the dimensions that it splits (None: whole).

    >>> mesh = hl.make_mesh((1,), ("i",))
    >>> f = hl.smap(lambda x: hl.lax.psum(x, "i"), in_axes=0, out_axes=None, axis_name="i")
    >>> with hl.set_mesh(mesh):
    ...     y = f(hnp.arange(4))
    >>> y.shape
    (4,)
    """
    if f is None:
        return functools.partial(smap, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name)

    def specs(axes):
        return tree.map(
            lambda k: PartitionSpec() if k is None else PartitionSpec(*[None] * k, axis_name), axes, is_leaf=_is_none
        )

    found = in_axes if in_axes is Infer else specs(in_axes)
    return shard_map(f, in_specs=found, out_specs=specs(out_axes), axis_names={axis_name})


def _is_none(value) -> bool:
    return value is None


def _mesh(mesh, name: str, out_specs) -> Mesh | AbstractMesh:
    """The mesh that was passed, or the current one. Raises ArgumentError."""
    grid = mesh if mesh is not None else get_mesh()
    if isinstance(grid, AbstractMesh) or grid.empty:
        around = current_mesh()
        concrete = get_mesh()
        if not concrete.empty and (grid.empty or concrete.shape_tuple == grid.shape_tuple):
            grid = concrete
        elif around is not None and grid.empty:
            grid = around
    if grid.empty or out_specs is None:
        raise ArgumentError(
            f"shard_map of '{name}' requires a mesh, in_specs and out_specs",
            "one of them is missing",
            "pass mesh=, or call it within hl.set_mesh(mesh)",
        )
    return grid


def _manual_names(grid, manual: frozenset, name: str) -> tuple:
    """The axes that the function is written for, in the mesh's order. Raises ArgumentError."""
    unknown = [n for n in manual if n not in grid.axis_names]
    if unknown:
        raise ArgumentError(
            f"axis_names of shard_map of '{name}'", f"{unknown[0]!r}; the mesh has {grid.axis_names}", "name its axes"
        )
    return tuple(n for n in grid.axis_names if not manual or n in manual)


@record(frozen=True, eq=False)
class _Sharded:
    """A function of shards with all of its options, ready to be called."""

    function: Callable
    name: str
    mesh: Mesh | AbstractMesh
    in_specs: Any
    out_specs: Any
    manual: tuple
    check: bool

    def __call__(self, args: tuple):
        specs_for_one = isinstance(self.in_specs, PartitionSpec)
        given = args[0] if len(args) == 1 and specs_for_one else args
        leaves, structure = tree.flatten(given)
        arrays = [as_array(x, f"an argument of shard_map of '{self.name}'") for x in leaves]
        specs = self._in_specs(arrays, given)
        parts = [self._part(x, s) for x, s in zip(arrays, specs, strict=True)]

        def run(*flat):
            found = tree.unflatten(structure, flat)
            return self.function(found) if given is not args else self.function(*found)

        traced = self._trace(run, parts, argument_hints(self.function, args, {}))
        shapes = [o.shape for o in traced.computation.outputs()]
        outs = self._out_specs(traced, shapes[: len(traced.weak)])
        outs = [*outs, *(outs[k] for k in traced.twins)]
        specs = [*specs, *(specs[k] for k in traced.wide)]
        if self.check:
            self._check_equal(traced.computation, specs, outs)
        operands = [*arrays, *exact_arguments(arrays, traced.wide), *traced.captures]
        if self.mesh.size == 1:  # nothing is split: the function of one device, whose collectives are with itself
            alone = DeviceMesh(tuple(map(str, self.mesh.axis_names)), (1,) * len(self.mesh.axis_names))
            results = bind("call", *operands, to_apply=with_groups(traced.computation, alone))
        else:
            specs = [*specs, *[PartitionSpec()] * len(traced.captures)]
            attributes: dict[str, Any] = {
                "to_apply": traced.computation,
                "in_shardings": self._layouts(specs, [x._shape for x in operands]),
                "out_shardings": self._layouts(outs, shapes),
                "manual_axes": tuple(map(str, self.manual)),
            }
            if current_trace() is None:
                results = run_op("manual-computation", operands, None, attributes, False)
            else:
                results = bind("manual-computation", *operands, **attributes)
        return traced.unflatten(list(results) if isinstance(results, tuple) else [results])

    # --- specs ---

    def _in_specs(self, arrays: list, given) -> list[PartitionSpec]:
        if self.in_specs is Infer or self.in_specs is None:
            found = [typed_sharding(x) for x in arrays]
            return [s.spec if isinstance(s, NamedSharding) else PartitionSpec() for s in found]
        return self._spread(self.in_specs, given, "in_specs")

    def _out_specs(self, traced: Traced, shapes: list[Shape]) -> list[PartitionSpec]:
        if callable(self.out_specs):
            return self.out_specs(shapes)
        value = tree.unflatten(traced.out_tree, [0] * traced.out_tree.num_leaves)
        found = self._spread(self.out_specs, value, "out_specs")
        for k, (shape, spec) in enumerate(zip(shapes, found, strict=True)):
            self._check_rank(spec, shape, f"result {k} of '{self.name}'")
        return found

    def _spread(self, specs, value, what: str) -> list[PartitionSpec]:
        """The spec of each leaf of a tree; None represents a spec without axis names."""
        what = f"{what} of shard_map of '{self.name}'"

        def is_leaf(s):
            return s is None or isinstance(s, PartitionSpec)

        if isinstance(specs, list) and isinstance(value, tuple):
            specs = tuple(specs)
        try:
            found = tree.leaves(tree.broadcast(specs, value, is_leaf=is_leaf), is_leaf=is_leaf)
        except TreeError as error:
            raise TreeError(
                f"{what} are a prefix of the tree that they describe", error.found,
                "pass a PartitionSpec for each argument or result, or one for all",
            ) from None  # fmt: skip
        found = [PartitionSpec() if s is None else s for s in found]
        wrong = [s for s in found if not isinstance(s, PartitionSpec)]
        if wrong:
            raise ArgumentError(f"{what} are PartitionSpecs", f"{wrong[0]!r:.80}", "write P('axis', None)")
        for spec in found:
            if unknown := self._unknown(spec):
                near = difflib.get_close_matches(str(unknown[0]), map(str, self.mesh.axis_names), 1)
                raise ShapeError(
                    f"{what} name axes of the mesh",
                    f"{spec!r}, with {unknown[0]!r}; the mesh has {dict(self.mesh.shape_tuple)}",
                    f"did you mean {near[0]!r}?" if near else "name one of these, or None for a whole dimension",
                )
            NamedSharding(self.mesh, spec)  # raises for an axis that is named twice
            automatic = [n for n in spec.names() if n in self.mesh.axis_names and n not in self.manual]
            if automatic:
                raise ArgumentError(
                    f"{what} name the axes in axis_names, {self.manual}",
                    f"{spec!r}, with {automatic[0]!r}",
                    "leave it out: along the other axes the compiler splits the arrays",
                )
        return found

    def _unknown(self, spec: PartitionSpec) -> list:
        return [n for n in spec.names() if n not in self.mesh.axis_names]

    def _check_rank(self, spec: PartitionSpec, shape: Shape, what: str) -> None:
        if len(spec) > len(shape.dims):
            raise ArgumentError(
                f"shard_map of '{self.name}': a spec has one entry per dimension",
                f"{spec!r} for {what}, {shape!r}",
                "pass as many as there are",
            )

    def _part(self, x, spec: PartitionSpec) -> ShapeDtypeStruct:
        """The shape of the part of an argument on each device. Raises ArgumentError, ShapeError."""
        self._check_rank(spec, x._shape, "an argument")
        sizes = dict(self.mesh.shape_tuple)
        dims = list(x.shape)
        for d, axes in enumerate(spec.axes()):
            for axis in axes:
                if dims[d] % sizes[axis]:
                    raise ShapeError(
                        f"shard_map of '{self.name}' splits dimension {d} of {x._shape!r} over axis {axis!r}",
                        f"{dims[d]} elements over {sizes[axis]} devices; the mesh has {sizes}",
                        "use mesh axes whose sizes divide those of the array",
                    )
                dims[d] //= sizes[axis]
        return ShapeDtypeStruct(dims, x.dtype, x.weak)

    def _layouts(self, specs: Sequence[PartitionSpec], shapes: Sequence[Shape]) -> tuple[Layout, ...]:
        return tuple(
            NamedSharding(self.mesh, s).layout(len(shape.dims)) for s, shape in zip(specs, shapes, strict=True)
        )

    # --- the function on a device ---

    def _trace(self, run: Callable, parts: list[ShapeDtypeStruct], hints: list[str]) -> Traced:
        sizes = dict(self.mesh.shape_tuple)
        manual = dict.fromkeys(self.manual, AxisType.Manual)
        _, in_tree = tree.flatten((tuple(parts), {}))
        hints = hints if len(hints) == len(parts) else [""] * len(parts)
        with ExitStack() as stack:
            for axis in self.manual:
                stack.enter_context(named_axis(axis, sizes[axis]))
            stack.enter_context(hidden(self.manual))
            stack.enter_context(use_abstract_mesh(self.mesh.abstract_mesh.update_axis_types(manual)))
            traced = trace_function(
                run, parts, in_tree, self.name, False, hints, kind="shard_map", weak=True, twins=brings_twins()
            )
        for instruction in below(traced.computation.instructions):
            if instruction.opcode == "constant":
                instruction.sharding = None  # an array from outside is whole on each device
        return traced

    def _check_equal(self, computation: Computation, specs, outs) -> None:
        """Raises BatchingError for a result that may differ along an axis that its spec does not name."""
        manual = frozenset(self.manual)
        given = [frozenset(s.names()) for s in specs]
        given += [frozenset()] * (len(computation.parameters) - len(given))
        for k, (axes, spec) in enumerate(zip(varying_axes(computation, given), outs, strict=True)):
            differs = sorted((axes & manual) - frozenset(spec.names()), key=str)
            differs = [n for n in differs if dict(self.mesh.shape_tuple)[n] > 1]
            if differs:
                source = computation.outputs()[k].source
                raise BatchingError(
                    f"shard_map of '{self.name}': out_specs {spec!r} say that result {k} is the same on all devices "
                    f"along {', '.join(map(repr, differs))}",
                    "it may differ from device to device there" + (f" (computed at {source})" if source else ""),
                    f"reduce it with lax.psum(x, {differs[0]!r}), name the axis in out_specs, or pass check_vma=False",
                )


__all__ = ["Infer", "shard_map", "smap"]
