"""Rules of tuples, copies and empty arrays, and the folding of constants."""

from __future__ import annotations

import numpy as np

from hloom.ir.interpret import evaluate_instruction
from hloom.ir.module import Instruction
from hloom.ir.ops import OPS
from hloom.ir.ops.programs.collective import COLLECTIVES, NUMBERS
from hloom.ir.patterns import Any, Op, splat_value
from hloom.ir.rewrite import Rules, has_effects, rule
from hloom.ir.types import INTEGERS, Shape

x = Any("x")

# Results up to this many elements are always folded.
SMALL = 1024
# Maximum number of elements computed at compile time.
MOST_WORK = 1 << 20
# Never folded: they have no operands, are cheap to compute in a kernel, run foreign code, or depend on the device.
UNFOLDED = COLLECTIVES | frozenset(
    ("parameter", "constant", "iota", "broadcast", "custom-call", "fusion", "optimization-barrier", *NUMBERS)
)
FOLDED = "constant | iota | broadcast"  # operands of folded ops


def constant_value(instruction: Instruction, most: int) -> np.ndarray | None:
    """The value of a constant, or of a broadcast constant or iota of at most `most` elements; None for others."""
    if instruction.opcode == "constant":
        return instruction["value"]
    if instruction.opcode not in ("iota", "broadcast") or instruction.shape.is_open or instruction.shape.size > most:
        return None
    if instruction.opcode == "iota":
        return np.asarray(evaluate_instruction(instruction, []))
    if instruction.opcode == "broadcast" and instruction.operands[0].opcode == "constant":
        return np.asarray(evaluate_instruction(instruction, [instruction.operands[0]["value"]]))
    return None


def fold(b, root, smallest: int = SMALL):
    """The root as a constant if its operands are, and the result is no larger than the largest of them."""
    if root.opcode in UNFOLDED or not isinstance(root.shape, Shape) or root.shape.is_open:
        return None
    operands = root.operands
    if any([o.opcode == "broadcast" and o.operands[0].opcode != "constant" for o in operands]):
        return None  # checked before evaluation
    largest = max([o.shape.size for o in operands if o.opcode == "constant" and o.shape.dims], default=0)
    if not largest and root.shape.size > 1:
        return None  # computed from scalars and iotas only: a kernel computes it from its index
    bound = max(smallest, largest)
    if root.shape.size > bound or work(root) > MOST_WORK or has_effects(root) or OPS[root.opcode].family == "control":
        return None
    values = [constant_value(o, bound) for o in operands]
    if any(v is None for v in values):
        return None
    result = np.asarray(evaluate_instruction(root, values)).astype(root.shape.dtype, copy=False)
    # A view would keep a large array alive.
    result = np.ascontiguousarray(result).reshape(root.dims)
    return b.constant(result.copy() if result.base is not None else result)


def work(root) -> int:
    """The approximate number of elements computed for the root."""
    size = root.shape.size + sum(o.shape.size for o in root.operands)
    if root.opcode in ("dot", "convolution"):
        return root.operands[0].shape.size * root.operands[1].shape.size
    return size


def common_element(root) -> np.ndarray | None:
    """The common value of all elements of an array constant, bit for bit; None if they differ."""
    value = root["value"]
    if value.ndim == 0 or value.size == 0:
        return None
    flat = np.ascontiguousarray(value).reshape(-1)
    bits = flat.view(np.uint8).reshape(flat.size, -1)
    # Most arrays differ early; compare the rest only if the beginning is equal.
    if not (bits[:16] == bits[0]).all() or not (bits == bits[0]).all():
        return None
    return flat[0].reshape(()) if isinstance(flat[0], np.ndarray) else np.asarray(flat[0], dtype=value.dtype)


def splat_constant(b, root):
    value = common_element(root)
    return None if value is None else b.broadcast(b.constant(value), root.dims, ())


def arithmetic_sequence(b, root):
    """A one-dimensional constant 0, 1, 2, ... as an iota, which a kernel computes from its index."""
    value = root["value"]
    if value.ndim != 1 or value.size < 2 or value.dtype not in INTEGERS:
        return None
    if value[0] != 0 or value[1] != 1 or value[-1] != value.size - 1:
        return None
    if not (value == np.arange(value.size).astype(value.dtype)).all():
        return None
    return b.emit("iota", shape=root.shape, iota_dimension=0)


FOLD_SCALARS = Rules(
    [
        rule(
            Op("*", every=FOLDED),
            lambda b, root: fold(b, root, 1) if root.shape.dims == () else None,
            when=lambda root: isinstance(root.shape, Shape) and root.shape.size == 1,
            name="fold-scalar",
            identity="an op of constants is a constant, scalars",
        )
    ]
)
FOLD_ARRAYS = Rules(
    [
        rule(
            Op("*", every=FOLDED),
            lambda b, root: fold(b, root),
            name="fold-array",
            identity="an op of constants is a constant, no larger than the largest of them",
        )
    ]
)
STRUCTURE = Rules(
    [
        rule(
            Op("get-tuple-element", Op("tuple", name="elements")),
            lambda root, elements: elements.operands[root["index"]],
            name="element-of-tuple",
            identity="(x, y)[0] = x",
        ),
        rule(
            Op("sharding-constraint", x),
            x,
            name="constraint",
            identity="constraint(x) = x; programs for several devices have been partitioned by now",
        ),
        rule(Op("copy", x), x, name="copy", identity="copy(x) = x; derivatives have been taken by now"),
        rule(
            Op("constant"),
            splat_constant,
            name="constant-of-equal-elements",
            identity="{c, c, c} = broadcast(c)",
        ),
        rule(
            Op("constant"),
            arithmetic_sequence,
            name="constant-that-counts",
            identity="{0, 1, 2} = iota",
        ),
        rule(
            Op("iota"),
            0,
            when=lambda root: root.dims[root["iota_dimension"]] == 1,
            name="iota-of-one",
            identity="iota of extent 1 = 0",
        ),
        rule(
            Op("*"),
            lambda b, root: b.splat(0, root.shape),
            when=lambda root: (
                isinstance(root.shape, Shape)
                and root.shape.size == 0
                and root.opcode not in ("parameter", "get-tuple-element")
                and splat_value(root) is None
                and not has_effects(root)
            ),
            name="empty-array",
            identity="an array without elements is any other of its shape",
        ),
    ]
)
