"""Sliding windows: `jax.lax.reduce_window`, and select-and-scatter, the derivative of pooling."""

from __future__ import annotations

from hloom.errors import ShapeError, TracerConversionError
from hloom.ir.build import scalar_computation
from hloom.ir.types import Shape
from hloom.ir.window import WindowDimension, dilated, window_output
from hloom.lax.linear.convolution import static_integers, static_padding
from hloom.lax.operands import NUMBERS, as_operand, constant
from hloom.lax.reduction import highest, lowest
from hloom.lax.table import docstring, documented
from hloom.tracing.signatures import function_name
from hloom.tracing.trace import bind, trace_function
from hloom.tree import pytrees as tree


def _window(name: str, dims, sizes, strides, padding, base_dilation=None, window_dilation=None):
    rank = len(dims)
    ones = (1,) * rank
    sizes = static_integers(sizes, rank, name, "window_dimensions")
    strides = static_integers(ones if strides is None else strides, rank, name, "window_strides")
    base = static_integers(ones if base_dilation is None else base_dilation, rank, name, "base_dilation")
    steps = static_integers(ones if window_dilation is None else window_dilation, rank, name, "window_dilation")
    extents = [dilated(e, max(b, 1)) for e, b in zip(dims, base, strict=True)]
    reaches = [dilated(n, max(s, 1)) for n, s in zip(sizes, steps, strict=True)]
    pads = static_padding(padding, extents, reaches, [max(s, 1) for s in strides], name)
    return tuple(
        WindowDimension(n, stride, low, high, b, step)
        for n, stride, (low, high), b, step in zip(sizes, strides, pads, base, steps, strict=True)
    )


def reduce_window_shape_tuple(
    operand_shape, window_dimensions, window_strides, padding, base_dilation=None, window_dilation=None
) -> tuple[int, ...]:
    """The shape of a reduce_window: the number of window positions. Raises ShapeError, AttributeValueError.

    >>> hl.lax.reduce_window_shape_tuple((8, 8), (2, 2), (2, 2), [(0, 0), (0, 0)])
    (4, 4)
    """
    window = _window(
        "reduce_window_shape_tuple", operand_shape, window_dimensions, window_strides, padding, base_dilation,
        window_dilation,
    )  # fmt: skip
    return window_output("reduce_window_shape_tuple", operand_shape, window)


def _combiner(name: str, computation, structure_of, scalars):
    """The traced computation of (accumulators, elements)."""
    _, in_tree = tree.flatten(((structure_of, structure_of), {}))
    traced = trace_function(computation, scalars * 2, in_tree, function_name(computation))
    if traced.captures:
        raise TracerConversionError(
            f"the computation of {name} used a traced value from outside",
            f"{traced.captures[0]!r}",
            "apply it before or after; a combiner sees two scalars only",
        )
    return traced.computation


def reduce_window(
    operand,
    init_value,
    computation,
    window_dimensions,
    window_strides=None,
    padding="VALID",
    base_dilation=None,
    window_dilation=None,
):
    """operand (an array, or a tree of arrays of equal shape) reduced over a sliding window.

    computation(accumulator, element) -> accumulator: associative, on scalars or trees of scalars; init_value: its
    neutral element, a scalar per array. window_dimensions, window_strides, base_dilation, window_dilation: an integer
    for each dimension (1 for dimensions without a window); padding: 'VALID', 'SAME', 'SAME_LOWER' or (low, high)
    pairs. Padding is ignored. Raises ShapeError, DTypeError, AttributeValueError.

    >>> hl.lax.reduce_window(hnp.arange(6), 0, hl.lax.add, (2,), (2,), "VALID")
    Array([1, 5, 9], dtype=int32)
    """
    leaves, structure = tree.flatten(operand)
    starts, start_structure = tree.flatten(init_value)
    arrays = [as_operand(x, "reduce_window") for x in leaves]
    if not arrays or len(starts) != len(arrays) or start_structure != structure:
        raise ShapeError(
            "reduce_window takes an initial value for each operand",
            f"{len(starts)} initial values for {len(arrays)} operands",
            "give init_value the structure of operand",
        )
    pairs = zip(starts, arrays, strict=True)
    starts = [constant(s, a.dtype) if type(s) in NUMBERS else as_operand(s, "reduce_window") for s, a in pairs]
    window = _window(
        "reduce_window", arrays[0].shape, window_dimensions, window_strides, padding, base_dilation, window_dilation
    )
    to_apply = _combiner("reduce_window", computation, operand, [Shape(a.dtype) for a in arrays])
    result = bind("reduce-window", *arrays, *starts, window=window, to_apply=to_apply)
    return tree.unflatten(structure, list(result) if isinstance(result, tuple) else [result])


def _known(name: str, opcode: str, neutral, text: str, printed: str):
    def function(
        operand, window_dimensions, window_strides=None, padding="VALID", base_dilation=None, window_dilation=None
    ):
        x = as_operand(operand, name)
        window = _window(name, x.shape, window_dimensions, window_strides, padding, base_dilation, window_dilation)
        return bind(
            "reduce-window",
            x,
            constant(neutral(x.dtype), x.dtype),
            weak=x.weak,
            window=window,
            to_apply=scalar_computation(opcode, x.dtype),
        )

    example = "{f}(hnp.array([1, 5, 2, 4]), (2,), (2,))", f"Array({printed}, dtype=int32)"
    text = f"{text} in each window; arguments and errors as for `reduce_window`."
    return documented(function, name, docstring(text, example, f"hl.lax.{name}"))


reduce_window_sum = _known("reduce_window_sum", "add", lambda dtype: 0, "The sum", "[6, 6]")
_NAN = "(NaN if there is one)"
reduce_window_max = _known("reduce_window_max", "maximum", lowest, f"The largest element {_NAN}", "[5, 4]")
reduce_window_min = _known("reduce_window_min", "minimum", highest, f"The smallest element {_NAN}", "[1, 2]")


def select_and_scatter(operand, select, window_dimensions, window_strides, padding, source, init_value, scatter):
    """An array of operand's shape, filled with init_value, to which each element of `source` is scattered, at the
    element of operand selected in the corresponding window.

    select(selected, element) -> pred: whether to keep the first; scatter(old, new) -> element: combines several sources
    for one element. source has one element per window position. Raises ShapeError, DTypeError.
    """
    name = "select_and_scatter"
    x, s = as_operand(operand, name), as_operand(source, name)
    start = constant(init_value, x.dtype) if type(init_value) in NUMBERS else as_operand(init_value, name)
    window = _window(name, x.shape, window_dimensions, window_strides, padding)
    scalars = [Shape(x.dtype)]
    return bind(
        "select-and-scatter",
        x,
        s,
        start,
        window=window,
        select=_combiner(name, select, 0, scalars),
        scatter=_combiner(name, scatter, 0, scalars),
    )
