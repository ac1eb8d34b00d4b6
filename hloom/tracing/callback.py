"""Python functions in compiled programs: pure_callback, io_callback; `hloom.tracing.debug` has print and callback.

Each is a custom call whose target holds the function. The program calls it with NumPy arrays, or with Arrays where
`hl.config.callback_arrays` is set.
"""

from __future__ import annotations

import itertools
import weakref

import numpy as np

from hloom.arrays.interchange import from_numpy
from hloom.config import config
from hloom.errors import ArgumentError, AttributeValueError, TreeError, UnsupportedError
from hloom.ir.ops.programs.structure import HostFunction
from hloom.ir.types import Shape, TupleShape, as_dtype
from hloom.tracing.signatures import function_name
from hloom.tracing.trace import as_array, bind
from hloom.tree import pytrees as tree

_known: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
_numbers = itertools.count(1)
VMAP_METHODS = (None, "sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized")


def pure_callback(callback, result_shape_dtypes, *args, sharding=None, vmap_method=None, vectorized=None, **kwargs):
    """The result of a Python function of arrays, also inside of jit, loops and branches.

    callback: pure; gets NumPy arrays (Arrays with `hl.config.callback_arrays`) in the trees of args and kwargs, and
        returns arrays of the declared shapes and dtypes.
    result_shape_dtypes: a tree of objects with `shape` and `dtype`, such as hl.ShapeDtypeStruct.
    vmap_method: the behaviour under vmap. None: an error. 'sequential': one call per batch element. 'expand_dims': one
        call, unbatched arguments have a first axis of size 1. 'broadcast_all': one call, all arguments have the batch
        axis. 'legacy_vectorized': one call, unbatched arguments have no batch axis.

    It may run more than once, or not at all where its result is not needed. It has no derivative: define one with
    hl.custom_jvp. Raises the callback's exception, with the line of this call; ShapeError for results whose shape was
    not declared.

        hl.pure_callback(np.sin, hl.ShapeDtypeStruct(x.shape, x.dtype), x)

    >>> host = lambda x: np.sort(x)[::-1]
    >>> f = hl.jit(lambda x: hl.pure_callback(host, x, x))
    >>> f(hnp.array([2, 3, 1]))
    Array([3, 2, 1], dtype=int32)
    """
    if vectorized is not None and vmap_method is None:
        vmap_method = "legacy_vectorized" if vectorized else "sequential"
    if vmap_method not in VMAP_METHODS:
        raise AttributeValueError(
            "pure_callback takes a vmap_method", f"{vmap_method!r}", f"one of {', '.join(map(repr, VMAP_METHODS))}"
        )
    method = "sequential" if vmap_method == "sequential_unrolled" else vmap_method
    return _call("pure_callback", callback, result_shape_dtypes, args, kwargs, method, effect=False)


def io_callback(callback, result_shape_dtypes, *args, sharding=None, ordered: bool = False, **kwargs):
    """The result of a Python function with side effects: it runs exactly once each time the program reaches it.

    As pure_callback; vmap calls it once per batch element. The calls of a program happen in program order, so `ordered`
    changes nothing.

    >>> seen = []
    >>> f = hl.jit(lambda x: hl.io_callback(lambda v: seen.append(v.tolist()), None, x))
    >>> f(hnp.array([1, 2]))
    >>> seen
    [[1, 2]]
    """
    return _call("io_callback", callback, result_shape_dtypes, args, kwargs, "sequential", effect=True)


def _call(kind: str, callback, result_shape_dtypes, args, kwargs, method, effect: bool):
    if not callable(callback):
        raise ArgumentError(f"{kind} takes a function", f"{type(callback).__name__}", "pass a function")
    shapes, out_tree = tree.flatten(result_shape_dtypes)
    shapes = [shape_of(s, kind) for s in shapes]
    leaves, in_tree = tree.flatten((args, kwargs))
    name = function_name(callback)
    leaves = [as_array(leaf, f"an argument of {kind} of '{name}'") for leaf in leaves]

    def function(*arrays):
        given, named = tree.unflatten(in_tree, _handed_over(arrays))
        results, found = tree.flatten(callback(*given, **named))
        if found != out_tree:
            raise TreeError(
                f"{kind}: '{name}' has to return the structure {tree.written(out_tree)}",
                tree.written(found),
                "return that",
            )
        return tuple(_fitting(r, s) for r, s in zip(results, shapes, strict=True))

    key = (kind, callback, in_tree, out_tree, tuple(shapes), method)
    target = _target(kind, name, function, key, method)
    results = bind(
        "custom-call",
        *leaves,
        shape=TupleShape(shapes),
        custom_call_target=target,
        custom_call_has_side_effect=effect,
    )
    return tree.unflatten(out_tree, results)


def _handed_over(arrays):
    return [from_numpy(a) for a in arrays] if config.callback_arrays else arrays


def _target(kind: str, name: str, function, key, method) -> HostFunction:
    """The target of a function: the same for the same key, so that equal programs are compiled once."""
    try:
        found = _known.get(key)
    except TypeError:  # a callback that cannot be hashed
        key = found = None
    if found is None:
        found = HostFunction(f"hloom.{kind}.{name}.{next(_numbers)}")
        found.function, found.method = function, method
        if key is not None:
            _known[key] = found
    return found


def shape_of(value, kind: str) -> Shape:
    """The declared shape and dtype of a result. kind: of what."""
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        raise ArgumentError(
            f"{kind} takes the shapes and dtypes of its results",
            f"{value!r:.80}",
            "pass hl.ShapeDtypeStruct(shape, dtype)",
        )
    return Shape(as_dtype(value.dtype), tuple(value.shape))


def _fitting(value, shape: Shape) -> np.ndarray:
    """A result as an array; Python numbers and other widths of the declared kind are converted."""
    array = np.asarray(value)
    if array.dtype != shape.dtype and np.dtype(array.dtype).kind == np.dtype(shape.dtype).kind:
        array = array.astype(shape.dtype)
    return array


# --- debugging ----------------------------------------------------------------------------------------------------


def debug_callback(callback, *args, ordered: bool = False, partitioned: bool = False, **kwargs) -> None:
    """Calls a Python function with the values of args and kwargs when the program gets there; returns nothing.

    Inside of vmap it is called once per batch element; derivatives ignore it.

    >>> seen = []
    >>> f = hl.jit(lambda x: hl.debug.callback(lambda v: seen.append(int(v)), x.sum()))
    >>> f(hnp.array([1, 2]))
    >>> seen
    [3]
    """
    if not callable(callback):
        raise ArgumentError("debug.callback takes a function", f"{type(callback).__name__}", "pass a function")
    _debug(callback, args, kwargs, ("callback", callback))


def debug_print(fmt: str, *args, ordered: bool = False, partitioned: bool = False, **kwargs) -> None:
    """Prints `fmt.format(*args, **kwargs)` with the values that args have when the program gets there.

        hl.debug.print("loss {} after {n} steps", loss, n=step)

    Raises ArgumentError if the format names arguments that are not given.

    >>> @hl.jit
    ... def f(x):
    ...     hl.debug.print("sum {}", x.sum())
    ...     return 2 * x
    >>> f(hnp.array([1, 2]))
    sum 3
    Array([2, 4], dtype=int32)
    """
    if not isinstance(fmt, str):
        raise ArgumentError("debug.print takes a format string", f"{type(fmt).__name__}", "debug.print('x = {}', x)")
    try:
        fmt.format(*[_Anything()] * len(args), **dict.fromkeys(kwargs, _Anything()))
    except (IndexError, KeyError) as error:
        raise ArgumentError(
            f"debug.print of {fmt!r}",
            f"{len(args)} arguments and the names {', '.join(kwargs) or 'none'}: {error!r}",
            "pass a value for each pair of braces; {{ and }} are braces themselves",
        ) from None
    _debug(lambda *given, **named: print(fmt.format(*given, **named), flush=True), args, kwargs, ("print", fmt))


class _Anything:
    def __format__(self, spec: str) -> str:
        return ""

    def __getattr__(self, name: str):
        return self

    def __getitem__(self, key):
        return self


def _debug(callback, args, kwargs, key) -> None:
    leaves, structure = tree.flatten((args, kwargs))
    static = {k: leaf for k, leaf in enumerate(leaves) if isinstance(leaf, str)}
    arrays = [as_array(leaf, "an argument of debug") for k, leaf in enumerate(leaves) if k not in static]

    def function(*values):
        following = iter(_handed_over(values) if key[0] == "callback" else values)
        filled = [static[k] if k in static else next(following) for k in range(len(leaves))]
        given, named = tree.unflatten(structure, filled)
        callback(*given, **named)
        return ()

    name = function_name(callback)
    target = _target("debug", name.strip("<>"), function, (key, structure, tuple(static.items())), "sequential")
    bind("custom-call", *arrays, shape=TupleShape(()), custom_call_target=target, custom_call_has_side_effect=True)


def infeed(*args, **kwargs):
    """Not supported. Raises UnsupportedError."""
    raise UnsupportedError(
        "call of infeed",
        "a program of hloom has no queue from the host",
        "pass the values as arguments, or read them with hl.io_callback",
    )


def outfeed(*args, **kwargs):
    """Not supported. Raises UnsupportedError."""
    raise UnsupportedError(
        "call of outfeed",
        "a program of hloom has no queue to the host",
        "return the values, or hand them to a function with hl.io_callback",
    )
