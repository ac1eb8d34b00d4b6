"""Convolutions with `jax.lax`'s names: strides, dilations, groups and any order of dimensions, as in HLO."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hloom.dispatch.sharded import takes_out_sharding
from hloom.errors import ArgumentError, AttributeValueError, ShapeError
from hloom.ir.ops.linalg.convolution import Dimensions, Labels
from hloom.ir.sizes.expressions import Size, greatest
from hloom.ir.types import Shape, as_dtype
from hloom.ir.window import WindowDimension, dilated
from hloom.lax.movement import rev, transpose
from hloom.lax.operands import as_operand, whole_number
from hloom.lax.reduction import dot_general
from hloom.tracing.trace import bind


class ConvDimensionNumbers(NamedTuple):
    """The layout of a convolution's dimensions.

    lhs_spec, out_spec: dimension indices of (batch, features, space...); rhs_spec: of (output features, input features,
    space...).
    """

    lhs_spec: tuple[int, ...]
    rhs_spec: tuple[int, ...]
    out_spec: tuple[int, ...]


ConvGeneralDilatedDimensionNumbers = tuple[str, str, str] | ConvDimensionNumbers | None
"""The values that convolutions accept as dimension_numbers=."""


def conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers) -> ConvDimensionNumbers:
    """ConvDimensionNumbers from three strings such as ('NHWC', 'HWIO', 'NHWC').

    N and C name batch and features, O and I the kernel's output and input features, all other letters are spatial, in
    the kernel's order. None: ('NCHW', 'OIHW', 'NCHW'), for any number of spatial dimensions. Raises
    AttributeValueError, ShapeError.

    >>> hl.lax.conv_dimension_numbers((1, 28, 28, 3), (3, 3, 3, 8), ("NHWC", "HWIO", "NHWC")).lhs_spec
    (0, 3, 1, 2)
    """
    rank = len(lhs_shape)
    if len(rhs_shape) != rank or rank < 2:
        raise ShapeError(
            "a convolution takes an operand and a kernel of one rank, 2 or more",
            f"shapes {tuple(lhs_shape)} and {tuple(rhs_shape)}",
            "give both a batch or output dimension, features and the same number of spatial dimensions",
        )
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        specs = tuple(tuple(int(d) for d in spec) for spec in dimension_numbers)
        if any(sorted(spec) != list(range(rank)) for spec in specs):
            raise AttributeValueError(
                f"ConvDimensionNumbers takes permutations of the {rank} dimensions",
                f"{dimension_numbers}",
                "name each dimension once in each",
            )
        return ConvDimensionNumbers(*specs)
    if dimension_numbers is None:
        return ConvDimensionNumbers(*[tuple(range(rank))] * 3)
    lhs, rhs, out = _layouts(dimension_numbers, rank)
    space = [c for c in rhs if c not in "OI"]
    return ConvDimensionNumbers(
        tuple(lhs.index(c) for c in ["N", "C", *space]),
        tuple(rhs.index(c) for c in ["O", "I", *space]),
        tuple(out.index(c) for c in ["N", "C", *space]),
    )


def _layouts(dimension_numbers, rank: int):
    fits = isinstance(dimension_numbers, (tuple, list)) and len(dimension_numbers) == 3
    if fits and all(isinstance(s, str) and len(s) == len(set(s)) == rank for s in dimension_numbers):
        lhs, rhs, out = dimension_numbers
        space = set(rhs) - set("OI")
        if set("OI") <= set(rhs) and set(lhs) == set(out) == space | set("NC") and not space & set("NC"):
            return lhs, rhs, out
    raise AttributeValueError(
        f"a convolution takes three strings of {rank} different letters as its dimension_numbers",
        f"{dimension_numbers!r}",
        "write them as ('NHWC', 'HWIO', 'NHWC'): N, C and O, I, and the same letters for space in each",
    )


def _same_pads(extent: Size, size: Size, stride: int) -> tuple[Any, Any]:
    total = greatest((-(-extent // stride) - 1) * stride + size - extent, 0)
    return total // 2, total - total // 2


def padtype_to_pads(in_shape, window_shape, window_strides, padding) -> list[tuple[int, int]]:
    """(low, high) padding of each spatial dimension.

    padding: 'VALID' (none), 'SAME' or 'SAME_LOWER' (the size divided by the stride, rounded up, as many positions; the
    odd element goes to the end, or the start). Raises AttributeValueError for another name.

    >>> hl.lax.padtype_to_pads((8, 8), (3, 3), (2, 2), "SAME")
    [(0, 1), (0, 1)]
    """
    if hasattr(padding, "name"):
        padding = padding.name
    name = padding.upper() if isinstance(padding, str) else padding
    if name == "VALID":
        return [(0, 0)] * len(in_shape)
    if name not in ("SAME", "SAME_LOWER"):
        raise AttributeValueError(
            "padding is 'VALID', 'SAME', 'SAME_LOWER' or a pair of integers for each spatial dimension",
            f"{padding!r}",
            "name one of them",
        )
    pads = []
    for extent, size, stride in zip(in_shape, window_shape, window_strides, strict=True):
        small, large = _same_pads(extent, size, int(stride))
        pads.append((small, large) if name == "SAME" else (large, small))
    return pads


def static_integers(values, count: int, name: str, what: str) -> tuple[int, ...]:
    """A tuple of `count` static integers. Raises AttributeValueError, ArgumentError."""
    if not isinstance(values, (Sequence, np.ndarray)) or isinstance(values, str):
        raise ArgumentError(
            f"{name} takes {what} as a sequence of integers", f"{values!r:.60}", "pass a tuple of integers"
        )
    found = tuple(whole_number(v, name, what) for v in values)
    if len(found) != count:
        raise AttributeValueError(
            f"{name} takes {what} for each of {count} dimensions", f"{found}", f"pass {count} integers"
        )
    return found


def static_padding(padding, extents, sizes, strides, name: str) -> list[tuple[int, int]]:
    """(low, high) for each dimension, from a name or from pairs. Raises AttributeValueError, ArgumentError."""
    if isinstance(padding, str) or hasattr(padding, "name"):
        return padtype_to_pads(extents, sizes, strides, padding)
    try:
        pairs = [(whole_number(low, name, "padding"), whole_number(high, name, "padding")) for low, high in padding]
    except (TypeError, ValueError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(
            f"{name} takes padding as a name or (low, high) for each dimension", f"{padding!r:.60}", "pass pairs"
        ) from None
    if len(pairs) != len(extents):
        raise AttributeValueError(
            f"{name} takes (low, high) padding for each of {len(extents)} dimensions",
            f"{pairs}",
            f"pass {len(extents)} pairs, or 'SAME' or 'VALID'",
        )
    return pairs


@takes_out_sharding
def conv_general_dilated(
    lhs,
    rhs,
    window_strides,
    padding,
    lhs_dilation=None,
    rhs_dilation=None,
    dimension_numbers=None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision=None,
    preferred_element_type=None,
    out_sharding=None,
):
    """The convolution of neural networks (the kernel is not flipped), with all of HLO's attributes.

    lhs: an array of batch, features and space; rhs: the kernel, of output features, input features and space, of the
    same dtype. window_strides, lhs_dilation, rhs_dilation: an integer for each spatial dimension. padding: 'SAME',
    'SAME_LOWER', 'VALID' or (low, high) pairs, which may be negative. dimension_numbers: see `conv_dimension_numbers`.
    feature_group_count: number of groups of features that are convolved separately; batch_group_count: the same for the
    batch.
    preferred_element_type: dtype of sums and result. `precision` is accepted for compatibility with JAX: products are
    computed in the full precision of their dtype. Raises ShapeError, DTypeError, AttributeValueError.

    >>> images, kernel = hnp.ones((8, 28, 28, 3)), hnp.ones((3, 3, 3, 16))
    >>> hl.lax.conv_general_dilated(images, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")).shape
    (8, 14, 14, 16)
    """
    name = "conv_general_dilated"
    x, w = as_operand(lhs, name), as_operand(rhs, name)
    numbers = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    rank = x.ndim - 2
    labels = Labels(*(Dimensions(spec[0], spec[1], tuple(spec[2:])) for spec in numbers))
    strides = static_integers((1,) * rank if window_strides is None else window_strides, rank, name, "window_strides")
    spread = static_integers((1,) * rank if lhs_dilation is None else lhs_dilation, rank, name, "lhs_dilation")
    steps = static_integers((1,) * rank if rhs_dilation is None else rhs_dilation, rank, name, "rhs_dilation")
    sizes = [w.shape[d] for d in labels.rhs.spatial]
    extents = [dilated(x.shape[d], s) for d, s in zip(labels.lhs.spatial, spread, strict=True)]
    reaches = [dilated(n, s) for n, s in zip(sizes, steps, strict=True)]
    pads = static_padding(padding, extents, reaches, [max(s, 1) for s in strides], name)
    window = tuple(
        WindowDimension(n, stride, low, high, base, step)
        for n, stride, (low, high), base, step in zip(sizes, strides, pads, spread, steps, strict=True)
    )
    attributes: dict = {"window": window, "dim_labels": labels.text()}
    groups = whole_number(feature_group_count, name, "feature_group_count")
    batch_groups = whole_number(batch_group_count, name, "batch_group_count")
    if groups != 1:
        attributes["feature_group_count"] = groups
    if batch_groups != 1:
        attributes["batch_group_count"] = batch_groups
    shape = None
    if preferred_element_type is not None:
        batch = x.shape[labels.lhs.batch] // max(batch_groups, 1)
        places = [d.output(x.shape[k]) for d, k in zip(window, labels.lhs.spatial, strict=True)]
        dims = labels.out.arrange((batch, w.shape[labels.rhs.batch], *places))
        shape = Shape(as_dtype(preferred_element_type), dims)
    return bind("convolution", x, w, shape=shape, weak=x.weak and w.weak and shape is None, **attributes)


def conv(lhs, rhs, window_strides, padding: str, precision=None, preferred_element_type=None):
    """A convolution of NCHW arrays with an OIHW kernel. Raises ShapeError, DTypeError, AttributeValueError.

    >>> images, kernel = hnp.ones((1, 1, 4, 4)), hnp.ones((1, 1, 3, 3))
    >>> hl.lax.conv(images, kernel, (1, 1), "VALID")
    Array([[[[9., 9.],
             [9., 9.]]]], dtype=float32)
    """
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, precision=precision, preferred_element_type=preferred_element_type
    )


def conv_with_general_padding(
    lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, precision=None, preferred_element_type=None
):
    """A dilated convolution of NCHW arrays with an OIHW kernel. Raises ShapeError, DTypeError, AttributeValueError.

    >>> images, kernel = hnp.ones((1, 3, 8, 8)), hnp.ones((16, 3, 3, 3))
    >>> hl.lax.conv_with_general_padding(images, kernel, (1, 1), [(1, 1), (1, 1)], None, None).shape
    (1, 16, 8, 8)
    """
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, precision=precision,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip


_CHANNELS_LAST = {
    2: ("NC", "IO", "NC"),
    3: ("NHC", "HIO", "NHC"),
    4: ("NHWC", "HWIO", "NHWC"),
    5: ("NHWDC", "HWDIO", "NHWDC"),
}


def conv_transpose(
    lhs,
    rhs,
    strides,
    padding,
    rhs_dilation=None,
    dimension_numbers=None,
    transpose_kernel: bool = False,
    precision=None,
    preferred_element_type=None,
    use_consistent_padding: bool = False,
):
    """The transpose of a convolution ("deconvolution"): lhs is dilated by `strides` and convolved with rhs.

    padding: 'SAME' (size * stride positions), 'VALID' (the input size of a VALID convolution), or (low, high) pairs for
    the dilated array; with use_consistent_padding, pairs of the convolution that this transposes. transpose_kernel: rhs
    is the kernel of that convolution: it is flipped, with input and output features exchanged.
    dimension_numbers: as in `conv_general_dilated`, by default channels last. Raises ShapeError, AttributeValueError.

    >>> images, kernel = hnp.ones((1, 4, 4, 3)), hnp.ones((2, 2, 3, 8))
    >>> hl.lax.conv_transpose(images, kernel, (2, 2), "VALID").shape
    (1, 8, 8, 8)
    """
    x, w = as_operand(lhs, "conv_transpose"), as_operand(rhs, "conv_transpose")
    if dimension_numbers is None:
        dimension_numbers = _CHANNELS_LAST.get(x.ndim)
        if dimension_numbers is None:
            raise AttributeValueError(
                "conv_transpose of more than three spatial dimensions needs dimension_numbers",
                f"{x._shape!r}",
                "pass three strings, or ConvDimensionNumbers",
            )
    numbers = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    rank = x.ndim - 2
    strides = static_integers(strides, rank, "conv_transpose", "strides")
    steps = static_integers((1,) * rank if rhs_dilation is None else rhs_dilation, rank, "conv_transpose", "dilation")
    reaches = [dilated(w.shape[d], s) for d, s in zip(numbers.rhs_spec[2:], steps, strict=True)]
    if isinstance(padding, str):
        pads = [_transposed_padding(n, s, padding) for n, s in zip(reaches, strides, strict=True)]
    else:
        pads = static_padding(padding, reaches, reaches, strides, "conv_transpose")
        if use_consistent_padding:
            pads = [(n - 1 - low, n - 1 - high) for n, (low, high) in zip(reaches, pads, strict=True)]
    if transpose_kernel:
        w = rev(w, numbers.rhs_spec[2:])
        outputs, inputs, *space = numbers.rhs_spec
        numbers = numbers._replace(rhs_spec=(inputs, outputs, *space))
    return conv_general_dilated(
        x, w, (1,) * rank, pads, strides, steps, numbers, precision=precision,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip


def _transposed_padding(size: int, stride: int, padding: str) -> tuple[int, int]:
    """(low, high) of a transposed convolution, so that 'SAME' yields size * stride positions."""
    if padding.upper() == "SAME":
        total = size + stride - 2
        low = size - 1 if stride > size - 1 else -(-total // 2)
    elif padding.upper() == "VALID":
        total = size + stride - 2 + max(size - stride, 0)
        low = size - 1
    else:
        raise AttributeValueError(
            "conv_transpose takes padding 'SAME', 'VALID' or pairs", f"{padding!r}", "name one of them"
        )
    return low, total - low


def conv_general_dilated_patches(
    lhs,
    filter_shape,
    window_strides,
    padding,
    lhs_dilation=None,
    rhs_dilation=None,
    dimension_numbers=None,
    precision=None,
    preferred_element_type=None,
):
    """The elements of each window as features: C * prod(filter_shape) of them, grouped by channel.

    dimension_numbers: of lhs and result; the kernel's only names the spatial dimensions. Raises ShapeError,
    AttributeValueError.

    >>> patches = hl.lax.conv_general_dilated_patches(hnp.ones((1, 3, 8, 8)), (2, 2), (2, 2), "VALID")
    >>> patches.shape
    (1, 12, 4, 4)
    """
    name = "conv_general_dilated_patches"
    x = as_operand(lhs, name)
    filter_shape = static_integers(filter_shape, x.ndim - 2, name, "filter_shape")
    numbers = conv_dimension_numbers(x.shape, x.shape, dimension_numbers)
    channels, taps = x.shape[numbers.lhs_spec[1]], math.prod(filter_shape)
    one = np.eye(taps).reshape((taps, 1, *filter_shape))
    kernel = np.tile(one, (channels, *[1] * (x.ndim - 1))).transpose(np.argsort(numbers.rhs_spec))
    return conv_general_dilated(
        x, as_operand(kernel.astype(x.dtype), name), window_strides, padding, lhs_dilation, rhs_dilation, numbers,
        feature_group_count=channels, precision=precision, preferred_element_type=preferred_element_type,
    )  # fmt: skip


def conv_general_dilated_local(
    lhs,
    rhs,
    window_strides,
    padding,
    filter_shape,
    lhs_dilation=None,
    rhs_dilation=None,
    dimension_numbers=None,
    precision=None,
):
    """A convolution with a different kernel at each position (a locally connected layer).

    rhs: its spatial sizes are those of the result, its input features C * prod(filter_shape), grouped by channel.
    Raises ShapeError, AttributeValueError.
    """
    x, w = as_operand(lhs, "conv_general_dilated_local"), as_operand(rhs, "conv_general_dilated_local")
    numbers = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    patches = conv_general_dilated_patches(
        x, filter_shape, window_strides, padding, lhs_dilation, rhs_dilation, numbers, precision
    )
    batch, feature, *space = numbers.out_spec
    outputs, inputs, *places = numbers.rhs_spec
    if [w.shape[d] for d in places] != [patches.shape[d] for d in space] or w.shape[inputs] != patches.shape[feature]:
        raise ShapeError(
            "conv_general_dilated_local takes a kernel for each position, with the elements of its window",
            f"kernel {w._shape!r}, windows {patches._shape!r}",
            "give rhs the result's spatial sizes and C * prod(filter_shape) input features",
        )
    made = dot_general(w, patches, (((inputs,), (feature,)), (tuple(places), tuple(space))))
    order = [*space, feature, batch]  # destination of each dimension of the product
    return transpose(made, [order.index(d) for d in range(x.ndim)])


def conv_shape_tuple(lhs_shape, rhs_shape, strides, pads, batch_group_count: int = 1) -> tuple[int, ...]:
    """The shape of a convolution in NCHW and OIHW. Raises ShapeError.

    >>> hl.lax.conv_shape_tuple((1, 3, 8, 8), (16, 3, 3, 3), (2, 2), [(1, 1), (1, 1)])
    (1, 16, 4, 4)
    """
    if isinstance(pads, str):
        pads = padtype_to_pads(lhs_shape[2:], rhs_shape[2:], strides, pads)
    if len(pads) != len(lhs_shape) - 2:
        raise ShapeError(
            "conv_shape_tuple takes padding for each spatial dimension",
            f"{len(pads)} for shape {tuple(lhs_shape)}",
            "pass one pair for each",
        )
    window = [WindowDimension(n, s, *p) for n, s, p in zip(rhs_shape[2:], strides, pads, strict=True)]
    places = [d.output(e) for d, e in zip(window, lhs_shape[2:], strict=True)]
    return (lhs_shape[0] // batch_group_count, rhs_shape[0], *places)


def conv_general_shape_tuple(lhs_shape, rhs_shape, window_strides, padding, dimension_numbers) -> tuple[int, ...]:
    """The shape of a convolution with these dimension numbers. Raises ShapeError, AttributeValueError."""
    numbers = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    left = [lhs_shape[d] for d in numbers.lhs_spec]
    right = [rhs_shape[d] for d in numbers.rhs_spec]
    found = conv_shape_tuple(left, right, window_strides, padding)
    return tuple(found[k] for k in np.argsort(numbers.out_spec))


def conv_transpose_shape_tuple(lhs_shape, rhs_shape, window_strides, padding, dimension_numbers) -> tuple[int, ...]:
    """The shape of a transposed convolution. Raises ShapeError, AttributeValueError."""
    numbers = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    left = [lhs_shape[d] for d in numbers.lhs_spec]
    right = [rhs_shape[d] for d in numbers.rhs_spec]
    if isinstance(padding, str):
        padding = [_transposed_padding(n, s, padding) for n, s in zip(right[2:], window_strides, strict=True)]
    spread = [dilated(e, s) for e, s in zip(left[2:], window_strides, strict=True)]
    found = conv_shape_tuple([*left[:2], *spread], right, [1] * len(spread), padding)
    return tuple(found[k] for k in np.argsort(numbers.out_spec))


def conv_general_permutations(dimension_numbers) -> tuple[tuple[int, ...], ...]:
    """The permutations that bring lhs, rhs and the result of three strings to batch (or outputs), features, space."""
    rank = len(dimension_numbers[0]) if isinstance(dimension_numbers, (tuple, list)) else 0
    return tuple(conv_dimension_numbers((1,) * rank, (1,) * rank, tuple(dimension_numbers)))
