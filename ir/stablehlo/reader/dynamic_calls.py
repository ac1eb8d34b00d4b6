"""JAX's custom calls for ops with sizes as operands that StableHLO lacks."""

from __future__ import annotations

import numpy as np

from hloom.ir.errors import ShapeError
from hloom.ir.stablehlo.assembly.attributes import Symbol
from hloom.ir.stablehlo.reader.placement import CALLS
from hloom.ir.stablehlo.values import word
from hloom.ir.types import Shape, TupleShape
from hloom.ir.window import WindowDimension


def _reduce_window(scope, op, items):
    """Arrays, their starts, then: sizes, strides, dilations of the arrays, of the window, padding."""
    count = (len(items) - 5) // 2
    if count < 1 or len(items) != 2 * count + 5:
        raise ValueError("dynamic_reduce_window takes arrays, as many starts, and five shape operands")
    arrays, starts = items[:count], items[count : 2 * count]
    names = ("window sizes", "strides", "base dilations", "window dilations", "padding")
    sizes, strides, base, dilations, padding = (
        scope.integers(i, name) for i, name in zip(items[2 * count :], names, strict=True)
    )
    window = tuple(
        WindowDimension(size=n, stride=s, low=low, high=high, base_dilation=b, window_dilation=d)
        for n, s, b, d, low, high in zip(sizes, strides, base, dilations, padding[::2], padding[1::2], strict=True)
    )
    scalars = tuple(Shape(a.dtype, ()) for a in arrays) * 2
    body = _called(scope, op, scalars)
    result = scope.emit("reduce-window", *arrays, *starts, window=window, to_apply=body)
    return scope.elements(result) if isinstance(result.shape, TupleShape) else result


def _called(scope, op, shapes):
    called = op.attributes.get("called_computations")
    if not isinstance(called, (tuple, list)) or len(called) != 1 or not isinstance(called[0], Symbol):
        raise ValueError(f"{op.attributes['call_target_name']} calls one computation")
    return scope.computation_of(op, called[0].name, shapes)[0]


def _top_k(scope, op, items):
    (k,) = scope.integers(items[1], "k")
    return scope.elements(scope.emit("topk", items[0], k=k, largest=True))


def _rng_bit_generator(scope, op, items):
    algorithm = op.attributes.get("rng_algorithm")
    name = "DEFAULT" if algorithm is None else word(algorithm) if not isinstance(algorithm, int) else ""
    names = {"DEFAULT": "rng_default", "THREE_FRY": "rng_three_fry", "PHILOX": "rng_philox"}
    bits = Shape(scope.result_dtype(op, 1), scope.integers(items[1], "sizes"))
    shape = TupleShape([items[0].shape, bits])
    return scope.elements(scope.emit("rng-bit-generator", items[0], shape=shape, algorithm=names[name]))


def result_shapes(scope, op, items) -> tuple[list[Shape], list]:
    """(the shapes of a custom call's results, its operands): unspecified shapes are operands, listed by
    `indices_of_shape_operands`."""
    given = op.attributes.get("indices_of_shape_operands")
    if given is None:
        return [scope.result_shape(op, k) for k in range(len(op.result_types))], items
    places = [int(v) for v in np.asarray(scope.dense(given)).reshape(-1)]
    if len(places) != len(op.result_types) or any(not 0 <= p < len(items) for p in places):
        raise ValueError("indices_of_shape_operands names an operand for each result")
    shapes = [Shape(scope.result_dtype(op, k), scope.integers(items[p], "sizes")) for k, p in enumerate(places)]
    return shapes, [i for k, i in enumerate(items) if k not in places]


def _through(scope, op, items):
    """Shardings and other annotations for other runtimes."""
    return items


def _shape_assertion(scope, op, items):
    """An assertion on sizes. Operands: the condition, then the numbers in the message."""
    if not scope.integers(items[0], "an assertion")[0]:
        message = str(op.attributes.get("error_message", "an assertion about sizes does not hold"))
        for k, item in enumerate(items[1:]):
            (number,) = scope.integers(item, "an assertion")
            message = message.replace(f"{{{k}}}", str(number))
        raise ShapeError("a program with an assertion about sizes", message, "pass arrays of sizes that it allows")
    return []


# Custom calls of JAX and others that are no-ops on one device, or correspond to an op.
KNOWN_TARGETS = {
    **dict.fromkeys(CALLS, lambda scope, op, items: scope.converter.placement.custom_call(scope, op, items)),
    "annotate_device_placement": _through,
    "LayoutConstraint": _through,
    "stablehlo.shape_assertion": _shape_assertion,
    "shape_assertion": _shape_assertion,
    "stablehlo.dynamic_reduce_window": _reduce_window,
    "stablehlo.dynamic_top_k": _top_k,
    "stablehlo.dynamic_rng_bit_generator": _rng_bit_generator,
}
