"""`jax.experimental.custom_partitioning`: functions that say themselves how devices share their work."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from hloom.arrays.array import Array
from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.errors import ArgumentError
from hloom.ir.module import Computation
from hloom.ir.spmd.sharding import Sharding as Layout
from hloom.sharding.explicit import lenient
from hloom.sharding.meshes import AbstractMesh
from hloom.sharding.shardings import NamedSharding, PartitionSpec, over_several
from hloom.tracing.eval_shape import eval_shape
from hloom.tracing.trace import Traced, as_array, current_trace, resumed, trace_function
from hloom.transforms.shard_map import shard_map
from hloom.tree import pytrees as tree


class custom_partitioning:
    """A function with rules for arrays over several devices (`def_partition`).

    `partition` says what each device computes. In a jitted function it is asked when the program is compiled, for the
    layouts that propagation found; the layouts it returns are those of arguments and results. Within a gradient the
    operations of the function are differentiated, and partitioned by their own rules. static_argnums: arguments that
    are Python values.
    """

    def __init__(self, fun: Callable, static_argnums=()):
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.static_argnums = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
        self._partition: Callable | None = None
        self._infer: Callable | None = None

    def def_partition(
        self, partition, infer_sharding_from_operands=None, propagate_user_sharding=None, decode_shardings: bool = True,
        sharding_rule=None, *, reduction_factors=(), need_replication_factors=(), permutation_factors=(),
        **factor_sizes,
    ):  # fmt: skip
        """partition(*statics, mesh, arg_shapes, result_shape) -> (mesh, function of the parts, shardings of the result,
        shardings of the arguments), where the shapes are ShapeDtypeStructs with shardings.

        infer_sharding_from_operands(*statics, mesh, arg_shapes, shape) returns the shardings of the result; without it
        the result is whole on each device. The other arguments are JAX's rules for its partitioner; hloom's own
        partitioner knows the operations inside.
        """
        self._partition, self._infer = partition, infer_sharding_from_operands
        return partition

    def __call__(self, *args, **kwargs):
        args = self._by_position(args, kwargs)
        statics = [args[k] for k in self.static_argnums]
        given = tuple(a for k, a in enumerate(args) if k not in self.static_argnums)
        if self._partition is None:
            raise ArgumentError(
                f"custom_partitioning of '{self.fun.__name__}'", "it has no rules", "call its def_partition first"
            )
        leaves = [as_array(leaf) for leaf in tree.leaves(given)]
        if current_trace() is not None:
            return self._recorded(statics, given, leaves)
        places = [leaf.sharding for leaf in leaves if isinstance(leaf, Array) and leaf.is_sharded]
        if not places:
            return self.fun(*args)
        whole = NamedSharding(places[0].mesh, PartitionSpec())
        found = [leaf.sharding if over_several(leaf.sharding) else whole for leaf in leaves]
        result = eval_shape(lambda *dynamic: self.fun(*self._with_statics(statics, dynamic)), *given)
        return self._on_parts(statics, given, found, result, [None] * len(tree.leaves(result)))(*given)

    def _on_parts(self, statics: list, given: tuple, places: list, result, result_places: list) -> Callable:
        """The function of whole arrays that `partition` returns for arguments and results of these layouts.

        result: a tree of shapes; result_places: None where the layout is what `infer_sharding_from_operands` says.
        """
        mesh = places[0].mesh
        leaves, structure = tree.flatten(given)
        shapes = tree.unflatten(
            structure, [ShapeDtypeStruct(x.shape, x.dtype, sharding=s) for x, s in zip(leaves, places, strict=True)]
        )
        found: Any = NamedSharding(mesh, PartitionSpec())
        if self._infer is not None:
            found = self._infer(*statics, mesh, shapes, result)
        wanted = tree.leaves(tree.broadcast(found, result))
        outputs, out_structure = tree.flatten(result)
        described = [
            ShapeDtypeStruct(x.shape, x.dtype, sharding=place or own)
            for x, place, own in zip(outputs, result_places, wanted, strict=True)
        ]
        mesh, on_parts, out_places, in_places = self._partition(  # type: ignore[misc]
            *statics, mesh, shapes, tree.unflatten(out_structure, described)
        )
        return shard_map(
            on_parts, mesh=mesh, in_specs=tree.map(_spec, tuple(in_places)), out_specs=tree.map(_spec, out_places),
            check_vma=False,
        )  # fmt: skip

    def _recorded(self, statics: list, given: tuple, leaves: list):
        """The call in the current trace, with its rule."""
        structure = tree.structure((given, {}))
        name = self.fun.__name__
        traced = trace_function(lambda *x: self.fun(*self._with_statics(statics, x)), leaves, structure, name)
        if traced.captures:  # the rule knows the arguments only
            return self.fun(*self._with_statics(statics, given))
        rule = _Rule(self, statics, given, traced)
        trace = current_trace()
        assert trace is not None
        found = trace.emit("call", leaves, None, {"to_apply": traced.computation, "partition": rule})
        return traced.unflatten(list(found) if isinstance(found, tuple) else [found])

    def _by_position(self, args: tuple, kwargs: dict) -> tuple:
        if not kwargs:
            return args
        bound = inspect.signature(self.fun).bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.args

    def _with_statics(self, statics: list, dynamic: tuple) -> list:
        args = list(dynamic)
        for k, value in sorted(zip(self.static_argnums, statics, strict=True)):
            args.insert(k, value)
        return args


class _Rule:
    """How a call of a function is partitioned (`hloom.compiler.passes.spmd.custom`)."""

    def __init__(self, owner: custom_partitioning, statics: list, given: tuple, traced: Traced):
        def shape_of(x):
            return ShapeDtypeStruct.like(as_array(x))

        self.owner, self.statics = owner, statics
        self.given = tree.map(shape_of, given)
        outputs = [ShapeDtypeStruct(o.shape.dims, o.shape.dtype) for o in traced.computation.outputs()]
        self.result = tree.unflatten(traced.out_tree, outputs)

    def partitioned(self, operands: list[Layout], results: list[Layout], devices: tuple[str, ...]) -> Computation:
        places, result_places = ([_named(s) for s in found] for found in (operands, results))
        on_parts = self.owner._on_parts(self.statics, self.given, places, self.result, result_places)
        leaves, structure = tree.flatten((self.given, {}))
        with resumed(None), lenient():
            return trace_function(on_parts, leaves, structure, self.owner.fun.__name__).computation


def _named(layout: Layout) -> NamedSharding:
    mesh = AbstractMesh(layout.mesh.sizes, layout.mesh.names)
    return NamedSharding(mesh, PartitionSpec(*(axes or None for axes in layout.dims)))


def _spec(place: NamedSharding) -> PartitionSpec:
    return place.spec


__all__ = ["custom_partitioning"]
__dir__ = __all__.copy
