"""Functions with custom vmap rules."""

from __future__ import annotations

import functools
from collections.abc import Callable

from hloom.compiler.transforms.custom import CustomBatch
from hloom.errors import ArgumentError, BatchingError, ShapeError, TreeError
from hloom.tracing.custom_rules import Call, reordered
from hloom.tracing.trace import as_array, current_trace, trace_function
from hloom.tree import pytrees as tree


class custom_vmap:
    """A function whose vmap is defined by a rule. Derivatives are those of the function itself.

        @hl.custom_batching.custom_vmap
        def solve(a, b): ...

        @solve.def_vmap
        def rule(axis_size, in_batched, a, b):
            return solve_many(a, b), True

    The rule receives the batch size, for each argument a tree of bools that say which arrays have a batch axis (the
    first), and the arguments. It returns the result and such a tree for it.
    Raises BatchingError when vmap finds no rule, TreeError and ShapeError for results that do not match.
    """

    def __init__(self, fun):
        if not callable(fun):
            raise ArgumentError("custom_vmap takes a function", f"{type(fun).__name__}", "pass a function")
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.vmap_rule: Callable | None = None

    def def_vmap(self, vmap_rule):
        """Defines the rule; returns it."""
        self.vmap_rule = vmap_rule
        return vmap_rule

    def __call__(self, *args, **kwargs):
        if current_trace() is None:
            return self.fun(*args, **kwargs)
        call = Call.of(self.fun, args, kwargs, (), "custom_vmap")
        traced = call.trace()
        call.outside = list(traced.captures)
        return call.emit(traced, self.rule(call, traced))

    def rule(self, call: Call, traced) -> CustomBatch:
        """The rule of a traced call."""
        shapes = [o.shape for o in traced.computation.outputs()]

        def make(size, mapped):
            vmap_rule = self.vmap_rule
            if vmap_rule is None:
                raise BatchingError(
                    f"vmap of the custom_vmap function '{call.name}'", "it has no rule yet", "define one with def_vmap"
                )
            return self._trace_rule(vmap_rule, call, traced.out_tree, shapes, size, mapped)

        return CustomBatch(call.name, make)

    def _trace_rule(self, vmap_rule: Callable, call: Call, out_tree, out_shapes, size: int, mapped):
        what = f"the vmap rule of '{call.name}'"
        count = len(call.leaves)
        if any(mapped[count:]):
            raise BatchingError(
                f"vmap of the custom_vmap function '{call.name}' over a value that it uses from outside",
                "the rule knows the arguments only",
                "pass the value as an argument of the function",
            )
        flags = mapped[:count]
        leaves = [leaf._shape for leaf in call.leaves]
        shapes = [s.with_dims((size, *s.dims)) if m else s for s, m in zip(leaves, flags, strict=True)]
        in_batched, _ = tree.unflatten(call.structure, flags)
        found = {}

        def run(*flat):
            arguments, _ = tree.unflatten(call.structure, flat)
            returned = vmap_rule(size, list(in_batched), *arguments)
            if not isinstance(returned, (tuple, list)) or len(returned) != 2:
                raise TreeError(
                    f"{what} returns (result, which arrays of it are batched)", f"{returned!r:.80}", "return a pair"
                )
            result, batched = returned
            results, structure = tree.flatten(result)
            if structure != out_tree:
                raise TreeError(
                    f"the result of {what} has the structure {tree.written(out_tree)}",
                    tree.written(structure),
                    "return that tree",
                )
            truth = [batched] * len(results) if isinstance(batched, bool) else tree.leaves(batched)
            if len(truth) != len(results):
                raise TreeError(
                    f"{what} says of each array of its result whether it is batched", f"{batched!r}", "name all"
                )
            found["batched"] = [bool(t) for t in truth]
            results = [as_array(r, f"a result of {what}") for r in results]
            for k, (r, t, s) in enumerate(zip(results, found["batched"], out_shapes, strict=True)):
                wanted = (size, *s.dims) if t else s.dims
                if r._shape.dims != wanted or r.dtype != s.dtype:
                    raise ShapeError(
                        f"result {k} of {what} is {s.with_dims(wanted)!r}", f"{r._shape!r}", "return an array like it"
                    )
            return results

        traced = trace_function(
            run, shapes, tree.structure((tuple(shapes), {})), f"{call.name}_vmap", adopts=call.outside
        )
        order = [next(k for k, t in enumerate(call.outside) if t is capture) for capture in traced.captures]
        return reordered(traced.computation, count, order, call.outside), found["batched"]
