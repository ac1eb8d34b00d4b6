"""`jax.experimental.custom_partitioning`: functions that say themselves how devices share their work."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from hloom.arrays.array import Array
from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.errors import ArgumentError
from hloom.sharding.shardings import NamedSharding, PartitionSpec, over_several
from hloom.tracing.eval_shape import eval_shape
from hloom.tracing.trace import as_array, current_trace
from hloom.transforms.shard_map import shard_map
from hloom.tree import pytrees as tree


class custom_partitioning:
    """A function with rules for arrays over several devices (`def_partition`).

    Called on such arrays outside of a trace, `partition` says what each device computes. In a jitted function the
    layouts are not known when it is traced: there its operations are partitioned as those of any other function, by
    their own rules. static_argnums: arguments that are Python values.
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
        places = [leaf.sharding for leaf in leaves if isinstance(leaf, Array) and leaf.is_sharded]
        if current_trace() is not None or not places:
            return self.fun(*args)
        mesh = places[0].mesh
        whole = NamedSharding(mesh, PartitionSpec())

        def described(leaf):
            array = as_array(leaf)
            place = array.sharding if over_several(array.sharding) else whole
            return ShapeDtypeStruct(array.shape, array.dtype, sharding=place)

        shapes = tree.map(described, given)
        result = eval_shape(lambda *dynamic: self.fun(*self._with_statics(statics, dynamic)), *given)
        found: Any = whole if self._infer is None else self._infer(*statics, mesh, shapes, result)
        result = tree.map(
            lambda shape, place: ShapeDtypeStruct(shape.shape, shape.dtype, sharding=place), result,
            tree.broadcast(found, result),
        )  # fmt: skip
        mesh, on_parts, out_places, in_places = self._partition(*statics, mesh, shapes, result)
        mapped = shard_map(
            on_parts, mesh=mesh, in_specs=tree.map(_spec, tuple(in_places)), out_specs=tree.map(_spec, out_places),
            check_vma=False,
        )  # fmt: skip
        return mapped(*given)

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


def _spec(place: NamedSharding) -> PartitionSpec:
    return place.spec


__all__ = ["custom_partitioning"]
__dir__ = __all__.copy
