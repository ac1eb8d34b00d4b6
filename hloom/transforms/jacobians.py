"""Jacobians and Hessians, and the transposes of linear functions."""

from __future__ import annotations

import math

import numpy as np

from hloom.arrays.array import Array
from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.compiler.transforms.inline import inline_calls
from hloom.compiler.transforms.vjp import transposed
from hloom.errors import ArgumentError, DifferentiationError, ShapeError, TreeError
from hloom.ir.types import COMPLEX, INEXACT
from hloom.tracing.signatures import function_name, with_positions, wraps
from hloom.tracing.trace import apply_computation, as_array, bind, trace_function
from hloom.transforms.gradient import argument_positions, checked_argnums, jvp, vjp
from hloom.transforms.vmap import vmap
from hloom.tree import pytrees as tree


def jacfwd(fun, argnums=0, has_aux: bool = False, holomorphic: bool = False):
    """The function that computes the Jacobian of `fun` in forward mode, one input element at a time (vectorized).

    argnums: the position of the argument to differentiate with respect to, or a tuple; each may be a tree of arrays.
    has_aux: `fun` returns (result, anything), and the Jacobian function (Jacobian, anything).
    holomorphic: the function is complex and differentiable as such; otherwise the arguments have to be real.

    The result has the tree of the function's result; in place of each array of shape m it has the tree of the
    argument, with arrays of shape (*m, *n) in place of arrays of shape n. Good for fewer inputs than outputs.
    Raises DifferentiationError for integers, for complex arguments without holomorphic, for ops without derivatives.

    >>> hl.jacfwd(lambda x: hnp.array([x[0] * x[1], x[0] ** 2]))(hnp.array([3.0, 5.0]))
    Array([[5., 3.],
           [6., 0.]], dtype=float32)
    """
    what = _what("jacfwd", fun)
    argnums = checked_argnums(argnums, "jacfwd")

    @wraps(fun)
    def jacobian(*args, **kwargs):
        chosen, partial = _chosen(fun, argnums, args, kwargs, what)
        leaves, structure = tree.flatten(chosen)
        leaves = [as_array(leaf, f"an argument of {what}") for leaf in leaves]
        _check_dtypes(leaves, "argument", what, holomorphic)
        aux = []

        def push(*tangents):
            result = jvp(partial, chosen, tree.unflatten(structure, tangents), has_aux=has_aux)
            if has_aux:
                return result[1], result[2]
            return result[1]

        if not leaves:
            raise ArgumentError(
                f"{what} with respect to an argument", "it has no arrays", "pass an argument with arrays"
            )
        basis = _basis(leaves)
        found = vmap(push, out_axes=(-1, None) if has_aux else -1)(*basis)
        if has_aux:
            found, aux = found

        def split(leaf):
            return _by_argument(_pieces(leaf, leaves, -1), structure, argnums)

        result = tree.map(split, found)
        return (result, aux) if has_aux else result

    return jacobian


def jacrev(fun, argnums=0, has_aux: bool = False, holomorphic: bool = False, allow_int: bool = False):
    """The function that computes the Jacobian of `fun` in reverse mode, one output element at a time (vectorized).

    The arguments, the result and the errors are as those of `jacfwd`; without holomorphic the results have to be real.
    allow_int: allows integer arguments; their parts are False everywhere. Good for fewer outputs than inputs.

    >>> hl.jacrev(lambda x: hnp.array([x[0] * x[1], x[0] ** 2]))(hnp.array([3.0, 5.0]))
    Array([[5., 3.],
           [6., 0.]], dtype=float32)
    """
    what = _what("jacrev", fun)
    argnums = checked_argnums(argnums, "jacrev")

    @wraps(fun)
    def jacobian(*args, **kwargs):
        chosen, partial = _chosen(fun, argnums, args, kwargs, what)
        arguments, structure = tree.flatten(chosen)
        if not allow_int:
            arguments = [as_array(leaf, f"an argument of {what}") for leaf in arguments]
            _check_dtypes(arguments, "argument", what, holomorphic or any(a.dtype in COMPLEX for a in arguments))
        if has_aux:
            result, back, aux = vjp(partial, *chosen, has_aux=True)
        else:
            result, back = vjp(partial, *chosen)
        leaves, out_structure = tree.flatten(result)
        _check_dtypes(leaves, "result", what, holomorphic)
        basis = _basis(leaves)
        found = tree.leaves(vmap(lambda *rows: back(tree.unflatten(out_structure, rows)))(*basis)) if leaves else []
        columns = [_pieces(leaf, leaves, 0) for leaf in found]
        rows = [_by_argument([column[k] for column in columns], structure, argnums) for k in range(len(leaves))]
        jacobians = tree.unflatten(out_structure, rows)
        return (jacobians, aux) if has_aux else jacobians

    return jacobian


jacobian = jacrev


def hessian(fun, argnums=0, has_aux: bool = False, holomorphic: bool = False):
    """The function that computes the matrix of second derivatives: jacfwd of jacrev. Trees nest as in `jacfwd`.

    >>> hl.hessian(lambda x: x[0] ** 2 * x[1])(hnp.array([3.0, 5.0]))
    Array([[10.,  6.],
           [ 6.,  0.]], dtype=float32)
    """
    return jacfwd(jacrev(fun, argnums, has_aux, holomorphic), argnums, has_aux, holomorphic)


def linear_transpose(fun, *primals, reduce_axes=()):
    """The transpose of a function that is linear in all of its arguments.

    primals: arrays or ShapeDtypeStructs with the arguments' shapes; their values are not used.
    Returns a function from a cotangent (a tree like the result) to the tuple of the arguments' cotangents.
    Raises DifferentiationError, which names the op and its line, where the function is not linear.

    >>> a = hnp.array([[1.0, 2.0], [3.0, 4.0]])
    >>> transposed = hl.linear_transpose(lambda x: a @ x, hnp.zeros(2))
    >>> transposed(hnp.array([1.0, 0.0]))
    (Array([1., 2.], dtype=float32),)
    """
    what = _what("linear_transpose", fun)
    leaves, structure = tree.flatten((primals, {}))
    leaves = [v if isinstance(v, ShapeDtypeStruct) else as_array(v, f"an argument of {what}") for v in leaves]
    shapes = [leaf._shape for leaf in leaves]
    for shape in shapes:
        if shape.dtype not in INEXACT:
            raise DifferentiationError(
                f"{what}", f"an argument {shape!r}", "transpose functions of floats or complex numbers"
            )
    traced = trace_function(fun, shapes, structure, function_name(fun))
    computation = inline_calls(traced.computation)
    made = transposed(computation, [True] * len(leaves) + [False] * len(traced.captures))
    outputs = computation.outputs()

    def transpose(cotangent):
        given, found = tree.flatten(cotangent)
        if found != traced.out_tree:
            raise TreeError(
                f"the cotangent of {what}",
                f"{tree.written(found)}, expected {tree.written(traced.out_tree)}",
                "pass a tree like the result",
            )
        flat = []
        for value, output in zip(given, outputs, strict=True):
            if output.dtype in INEXACT:
                array = as_array(value, f"the cotangent of {what}")
                if array._shape.dims != output.dims:
                    raise ShapeError(
                        f"the cotangent of {what}", f"{array._shape!r}, expected {output.shape!r}", "reshape it"
                    )
                flat.append(array if array.dtype == output.dtype else _converted(array, output.shape))
        results = apply_computation(made, [*traced.captures, *flat])
        return tree.unflatten(structure, results)[0]

    return transpose


def _converted(array, shape):
    return bind("convert", array, shape=shape)


def _what(name: str, fun) -> str:
    if not callable(fun):
        raise ArgumentError(f"{name} of a function", f"{type(fun).__name__}", "pass a function")
    return f"{name} of '{function_name(fun)}'"


def _chosen(fun, argnums, args, kwargs, what: str):
    """(the arguments to differentiate with respect to, the function of only those)."""
    positions = argument_positions(argnums, len(args), what)

    @wraps(fun)
    def partial(*chosen):
        return fun(*with_positions(args, positions, chosen), **kwargs)

    return tuple(args[p] for p in positions), partial


def _check_dtypes(leaves, role: str, what: str, holomorphic: bool) -> None:
    for leaf in leaves:
        if leaf.dtype not in INEXACT:
            raise DifferentiationError(
                f"{what}: its {role}s are floats",
                f"{leaf._shape!r}: integers and booleans have no derivatives",
                "pass float arrays, or convert them with astype",
            )
        if leaf.dtype in COMPLEX and not holomorphic:
            raise DifferentiationError(
                f"{what}: its {role}s are real",
                f"{leaf._shape!r}",
                "set holomorphic=True for analytic functions, or take real and imaginary parts",
            )


def _basis(leaves) -> list[Array]:
    """For each array of shape n the rows (total, *n) of the identity on all of their elements."""
    sizes = [math.prod(leaf.shape) for leaf in leaves]
    total, start, found = sum(sizes), 0, []
    for leaf, size in zip(leaves, sizes, strict=True):
        rows = np.zeros((total, size), leaf._shape.dtype)
        rows[np.arange(start, start + size), np.arange(size)] = 1
        device = None if leaf.is_sharded else getattr(leaf, "_device", None)
        found.append(Array(rows.reshape((total, *leaf.shape)), leaf.weak, device))
        start += size
    return found


def _pieces(array, leaves, axis: int) -> list:
    """The array split along its first (0) or last (-1) axis, one part per leaf, that axis unflattened to its shape."""
    dims = array.shape
    rest = dims[1:] if axis == 0 else dims[:-1]
    start, found = 0, []
    for leaf in leaves:
        size = math.prod(leaf.shape)
        whole = [(0, n, 1) for n in dims]
        whole[axis] = (start, start + size, 1)
        part = bind("slice", array, weak=array.weak, slice=tuple(whole))
        target = (*leaf.shape, *rest) if axis == 0 else (*rest, *leaf.shape)
        found.append(bind("reshape", part, weak=array.weak, shape=array._shape.with_dims(target)))
        start += size
    return found


def _by_argument(parts, structure, argnums):
    arguments = tree.unflatten(structure, parts)
    return arguments if isinstance(argnums, tuple) else arguments[0]
