"""custom_linear_solve and custom_root: solutions of equations with implicit differentiation."""

from __future__ import annotations

from hloom.compiler.transforms.linear_solve import LinearSolve, transposed_operator
from hloom.errors import ArgumentError, ShapeError, TreeError
from hloom.lax.reduction import stop_gradient
from hloom.tracing.custom_rules import with_parameters
from hloom.tracing.trace import apply_computation, as_array, current_trace, trace_function
from hloom.transforms import gradient
from hloom.transforms.custom_derivatives import closure_convert, custom_jvp
from hloom.tree import pytrees as tree


def custom_linear_solve(matvec, b, solve, transpose_solve=None, symmetric: bool = False, has_aux: bool = False):
    """The solution x of matvec(x) = b, computed by solve(matvec, b), with the derivatives of the linear system.

    matvec: a linear function between trees of arrays of the structure of b. solve(matvec, b) -> x; it need not be
    differentiable. transpose_solve(vecmat, b): solves with the transposed function, for reverse mode; not needed if
    matvec is symmetric. has_aux: solve returns (x, aux), and so does this function. Derivatives: with respect to b and
    all values that matvec closes over. Raises TreeError, ShapeError, DifferentiationError.

    >>> a = hnp.array([[2.0, 0.0], [0.0, 4.0]])
    >>> def solve(matvec, b):
    ...     return hnp.linalg.solve(a, b)
    >>> hl.lax.custom_linear_solve(lambda x: a @ x, hnp.array([2.0, 8.0]), solve, symmetric=True)
    Array([1., 2.], dtype=float32)
    """
    leaves, structure = tree.flatten(b)
    leaves = [as_array(leaf, "b of custom_linear_solve") for leaf in leaves]
    b = tree.unflatten(structure, leaves)
    trace = current_trace()
    if trace is None:
        return _split(solve(matvec, b), has_aux)
    count, shapes = len(leaves), [leaf._shape for leaf in leaves]
    in_tree = tree.structure(((b,), {}))
    operator = trace_function(matvec, shapes, in_tree, "matvec")
    _check_operator(operator, structure, shapes)
    used = operator.captures

    def traced_solve(method, computation, what: str):
        """The method traced with (b, values that matvec uses)."""

        def run(right, values):
            def apply(x):
                flat, own = tree.flatten(x)
                if own != structure:
                    raise TreeError(
                        f"{what} calls matvec with a tree of the structure of b", f"{own}", "check the tree"
                    )
                return tree.unflatten(structure, apply_computation(computation, [*flat, *values]))

            return _split(method(apply, right), has_aux)

        values = [t._shape for t in used]
        return trace_function(run, [*shapes, *values], tree.structure(((b, [0] * len(used)), {})), what)

    forward = traced_solve(solve, operator.computation, "solve")
    backward = None
    if symmetric:
        backward = forward
    elif transpose_solve is not None:
        backward = traced_solve(transpose_solve, transposed_operator(operator.computation, count), "transpose_solve")
    extra = {id(t): t for t in [*used, *forward.captures, *(backward.captures if backward else ())]}
    outside = list(extra.values())
    made = with_parameters(forward.computation, [*used, *forward.captures], outside)
    flipped = with_parameters(backward.computation, [*used, *backward.captures], outside) if backward else None
    matvec_computation = with_parameters(operator.computation, used, outside)
    name = getattr(solve, "__name__", "solve")
    rule = LinearSolve(name, count, matvec_computation, made, flipped and (lambda: flipped), symmetric)
    result = trace.emit("call", [*leaves, *outside], None, {"to_apply": made, "rule": rule})
    flat = list(result) if isinstance(result, tuple) else [result]
    return tree.unflatten(forward.out_tree, flat)


def _check_operator(operator, structure, shapes) -> None:
    """Raises TreeError or ShapeError if the traced matvec does not map the space of b to itself."""
    found = [o.shape for o in operator.computation.outputs()]
    if operator.out_tree != structure:
        raise TreeError(
            "custom_linear_solve takes a matvec with a result of the structure of b",
            f"{tree.written(operator.out_tree)}, expected {tree.written(structure)}",
            "return the same tree",
        )
    if found != shapes:
        raise ShapeError(
            "custom_linear_solve takes a matvec whose result has the shapes and dtypes of b",
            f"{', '.join(map(repr, found))}, expected {', '.join(map(repr, shapes))}",
            "convert or reshape the result",
        )


def _split(result, has_aux: bool):
    if has_aux and not (isinstance(result, tuple) and len(result) == 2):
        raise TreeError("a solve with has_aux=True returns (x, aux)", f"{result!r:.80}", "return a pair")
    return result


def custom_root(f, initial_guess, solve, tangent_solve, has_aux: bool = False):
    """A root x of f, computed by solve(f, initial_guess), with the derivatives of the implicit function.

    tangent_solve(g, y): solves g(x) = y for a linear function g on the arrays of x. Derivatives: with respect to all
    values that f closes over; none with respect to initial_guess. has_aux: solve returns (x, aux), and so does this
    function. Raises ArgumentError, TreeError.

    >>> def newton(f, x0):
    ...     return hl.lax.fori_loop(0, 20, lambda i, x: x - f(x) / hl.grad(f)(x), x0)
    >>> def root(a):
    ...     return hl.lax.custom_root(lambda x: x * x - a, 1.0, newton, lambda g, y: y / g(1.0))
    >>> root(4.0), hl.grad(root)(4.0)
    (Array(2., dtype=float32, weak_type=True), Array(0.25, dtype=float32, weak_type=True))
    """
    if not callable(f) or not callable(solve) or not callable(tangent_solve):
        raise ArgumentError("custom_root takes f, solve and tangent_solve as functions", f"{f!r:.60}", "pass functions")
    guess = tree.map(lambda leaf: stop_gradient(as_array(leaf, "initial_guess")), initial_guess)
    if current_trace() is None:
        return _split(solve(f, guess), has_aux)
    converted, values = closure_convert(f, guess)

    @custom_jvp
    def root(start, *values):
        return _split(solve(lambda x: converted(x, *values), start), has_aux)

    @root.defjvp
    def rule(primals, tangents):
        start, *values = primals
        result = root(start, *values)
        x = result[0] if has_aux else result
        _, moved = gradient.jvp(lambda *v: converted(x, *v), tuple(values), tuple(tangents[1:]))

        def linear(y):
            return gradient.jvp(lambda x: converted(x, *values), (x,), (y,))[1]

        right = tree.map(lambda leaf: -leaf, moved)
        change = tangent_solve(linear, right)
        if not has_aux:
            return result, change
        return result, (change, tree.map(lambda leaf: leaf * 0, result[1]))

    return root(guess, *values)
