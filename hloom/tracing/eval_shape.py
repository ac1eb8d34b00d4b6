"""Shapes without arrays: the shapes of a function's results, found by tracing it."""

from __future__ import annotations

from hloom.arrays.array import Array
from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.tracing.conversion import argument_array
from hloom.tracing.signatures import argument_hints, function_name
from hloom.tracing.trace import Tracer, trace_function
from hloom.tree import pytrees as tree


def eval_shape(function, *args, **kwargs):
    """The tree of ShapeDtypeStructs of the result of `function(*args, **kwargs)`. Nothing is computed.

    Arguments and results are trees of arrays, numbers or ShapeDtypeStructs. Raises tracing errors, such as
    TracerBoolError for Python control flow on a value.

        hl.eval_shape(lambda x, y: x @ y, hl.ShapeDtypeStruct((2, 3), "f32"), hl.ShapeDtypeStruct((3, 4), "f32"))

    >>> weights = hl.ShapeDtypeStruct((1024, 512), hnp.float32)
    >>> hl.eval_shape(lambda w: hnp.matmul(w, w.T), weights)
    ShapeDtypeStruct(shape=(1024, 1024), dtype=float32)
    """
    name = function_name(function)
    leaves, in_tree = tree.flatten((args, kwargs))
    hints = argument_hints(function, args, kwargs)
    flat = []
    for leaf, hint in zip(leaves, hints, strict=True):
        if not isinstance(leaf, (Array, Tracer, ShapeDtypeStruct)):
            leaf = argument_array(leaf, hint, f"'{name}'")
        flat.append(leaf)
    returned: dict = {}

    def run(*given, **named):
        found, returned["tree"] = tree.flatten(function(*given, **named))
        returned["structs"] = {k: leaf for k, leaf in enumerate(found) if isinstance(leaf, ShapeDtypeStruct)}
        return [0 if k in returned["structs"] else leaf for k, leaf in enumerate(found)]

    traced = trace_function(run, flat, in_tree, name, hints=hints)
    results = [
        returned["structs"][k] if k in returned["structs"] else ShapeDtypeStruct(output.dims, output.dtype, weak)
        for k, (output, weak) in enumerate(zip(traced.computation.outputs(), traced.weak, strict=True))
    ]
    return tree.unflatten(returned["tree"], results)
