"""move-reshapes and move-transposes: move reshapes and transposes out of element-wise chains, so that they meet and
cancel.

move-image-transposes repeats this for transposes introduced by convolutions, also across the windows and concatenations
between layers of a network.

Directions, which ensure termination:
- A reshape of a computed array (of a dot, a reduction, ...) sinks: f(reshape(x)) = reshape(f(x)), if the other operands
  can be reshaped for free.
- A reshape of element-wise ops on parameters and constants rises to these, where it only changes indexing.
- A transpose sinks, until a dot, a reduction or another transpose absorbs it.
"""

from __future__ import annotations

from hloom.compiler.passes.canonicalize.dots import TRANSPOSED_DOTS
from hloom.compiler.passes.registry import module_pass
from hloom.compiler.passes.rules.movement import ELEMENTWISE, MOVEMENT
from hloom.compiler.passes.rules.reductions import REDUCTIONS
from hloom.compiler.passes.walk import change_computations
from hloom.compiler.reshapes import reshape_groups, reshape_of_broadcast
from hloom.ir.module import Instruction, Module
from hloom.ir.ops import OPS
from hloom.ir.ops.indexing.movement import inverse_permutation
from hloom.ir.patterns import Any, Op
from hloom.ir.rewrite import Rules, rewrite, rule

# Maximum depth of the search for free reshapes in chains of element-wise ops.
DEPTH = 8
STORED = frozenset(("parameter", "constant", "get-tuple-element"))


def is_elementwise(instruction: Instruction) -> bool:
    """Whether each element depends on the elements at the same index (a bitcast may change the sizes)."""
    return OPS[instruction.opcode].family == "elementwise" and all(
        o.dims == instruction.dims or (not o.dims and instruction.opcode != "bitcast-convert")
        for o in instruction.operands
    )


def is_free(b, instruction: Instruction, dims: tuple[int, ...], depth: int = DEPTH) -> bool:
    """Whether reshaping it to `dims` is free: stored arrays, splats, compatible broadcasts, other reshapes, and
    element-wise ops of these without other users."""
    if instruction.opcode in STORED or instruction.opcode == "reshape":
        return True
    if instruction.opcode == "broadcast":
        operand = instruction.operands[0]
        return reshape_of_broadcast(operand.dims, instruction["dimensions"], instruction.dims, dims) is not None
    if not depth or not is_elementwise(instruction) or not b.used_once(instruction):
        return False
    return all(is_free(b, o, dims, depth - 1) for o in instruction.operands if o.dims)


def with_reshaped(b, root, dims):
    """The element-wise root on operands reshaped to `dims`; scalar operands are unchanged."""
    operands = []
    for operand in root.operands:
        if operand.dims == root.dims:
            operand = b.reshape(operand.operands[0] if operand.opcode == "reshape" else operand, dims)
        operands.append(operand)
    return b.again(root, *operands, shape=root.shape.with_dims(dims))


def sink_reshape(b, root):
    """f(reshape(x), y) = reshape(f(x, y')), x computed and y' free.

    Of several computed arrays with different dimensions the one of lowest rank determines them: an epilogue works in
    the two dimensions of its product. The others keep their reshapes.
    """
    computed = [
        o.operands[0].dims
        for o in root.operands
        if o.opcode == "reshape" and o.dims and o.operands[0].opcode not in STORED
    ]
    if not computed or not is_elementwise(root) or not root.dims:
        return None
    dims = min(computed, key=len)
    if not dims or any(other != dims and len(other) == len(dims) for other in computed):
        return None
    if not all(is_free(b, o, dims) for o in root.operands if o.dims):
        return None
    return b.reshape(with_reshaped(b, root, dims), root.dims)


def raise_reshape(b, root, x):
    """reshape(f(p, q)) = f(reshape(p), reshape(q)) of stored arrays p and q."""
    if not x.dims or not root.dims or not is_elementwise(x) or not is_free(b, x, root.dims):
        return None
    return with_reshaped(b, x, root.dims)


def sink_transpose(b, root):
    """f(x^p, y) = f(x, y')^p, where y' is y without its transpose, or a broadcast that is as cheap transposed."""
    permutation = None
    for operand in root.operands:
        if operand.opcode == "transpose":
            permutation = operand["dimensions"]
            break
    if permutation is None or not is_elementwise(root):
        return None
    inverse = inverse_permutation(permutation)
    operands = []
    for operand in root.operands:
        if operand.opcode == "transpose" and operand["dimensions"] == permutation:
            operands.append(operand.operands[0])
        elif not operand.dims:
            operands.append(operand)
        elif operand.opcode == "broadcast" and in_order(operand["dimensions"], inverse):
            operands.append(b.transpose(operand, inverse))
        else:
            return None
    dims = tuple(root.dims[d] for d in inverse)
    return b.transpose(b.again(root, *operands, shape=root.shape.with_dims(dims)), permutation)


def in_order(dimensions, permutation) -> bool:
    """Whether a transpose preserves the order of these dimensions, so that a broadcast along the others absorbs it."""
    places = [permutation.index(d) for d in dimensions]
    return places == sorted(places)


def sink_transpose_of_slice(b, root, x, inner):
    inverse = inverse_permutation(inner["dimensions"])
    return b.transpose(b.slice(x, tuple(root["slice"][d] for d in inverse)), inner["dimensions"])


def sink_transpose_of_pad(b, root, x, inner):
    inverse = inverse_permutation(inner["dimensions"])
    padded = b.emit("pad", x, root.operands[1], padding=tuple(root["padding"][d] for d in inverse))
    return b.transpose(padded, inner["dimensions"])


def sink_transposes_of_parts(b, root):
    """x^p ++ y^p = (x ++ y)^p."""
    if any(o.opcode != "transpose" for o in root.operands):
        return None
    permutation = root.operands[0]["dimensions"]
    if any(o["dimensions"] != permutation for o in root.operands):
        return None
    (d,) = root["dimensions"]
    joined = b.emit("concatenate", *(o.operands[0] for o in root.operands), dimensions=(permutation[d],))
    return b.transpose(joined, permutation)


def sink_transpose_of_reshape(b, root, x, inner):
    """If a reshape splits or merges dimensions that the transpose keeps adjacent, the reshape comes first."""
    groups = reshape_groups(inner.dims, root.dims)
    if groups is None:
        return None
    permutation = inner["dimensions"]
    placed: list[tuple[int, int, tuple[int, ...]]] = []  # where the dimensions come from, a number, the new dimensions
    for olds, news in groups:
        sources = [permutation[d] for d in olds]
        if sources and sources != list(range(sources[0], sources[0] + len(sources))):
            return None
        placed.append((sources[0] if sources else placed[-1][0] if placed else 0, len(placed), news))
    order = [d for *_, news in sorted(placed) for d in news]
    if order == list(range(len(order))):
        return b.reshape(x, root.dims)
    reshaped = b.reshape(x, tuple(root.dims[d] for d in order))
    return b.transpose(reshaped, tuple(order.index(d) for d in range(len(order))))


RESHAPES = Rules(
    [
        rule(
            Op(ELEMENTWISE, some="reshape"),
            sink_reshape,
            name="sink-reshape",
            identity="f(reshape(x)) = reshape(f(x)), x computed",
            counts_uses=True,
        ),
        rule(
            Op("reshape", Any("x")),
            raise_reshape,
            name="raise-reshape",
            identity="reshape(f(p)) = f(reshape(p)), p stored",
            counts_uses=True,
        ),
    ]
)
TRANSPOSES = Rules(
    [
        rule(
            Op(ELEMENTWISE, some="transpose"),
            sink_transpose,
            name="sink-transpose",
            identity="f(x^p) = f(x)^p",
        )
    ]
)
WINDOWS = Rules(
    [
        rule(
            Op("slice", Op("transpose", Any("x"), name="inner")),
            sink_transpose_of_slice,
            name="slice-of-transpose",
            identity="x^p[s] = x[s']^p",
        ),
        rule(
            Op("pad", Op("transpose", Any("x"), name="inner"), Any("value")),
            sink_transpose_of_pad,
            name="pad-of-transpose",
            identity="pad(x^p) = pad(x)^p",
        ),
        rule(
            Op("reshape", Op("transpose", Any("x"), name="inner")),
            sink_transpose_of_reshape,
            name="reshape-of-transpose",
            identity="reshape(x^p) = reshape'(x)^q where groups of dimensions stay side by side",
        ),
        rule(
            Op("optimization-barrier", Op("transpose", Any("x"), name="inner")),
            lambda b, root, x, inner: b.transpose(b.emit("optimization-barrier", x), inner["dimensions"]),
            name="barrier-of-transpose",
            identity="barrier(x^p) = barrier(x)^p",
        ),
        rule(
            Op("concatenate"),
            sink_transposes_of_parts,
            name="concatenate-of-transposes",
            identity="x^p ++ y^p = (x ++ y)^p",
        ),
    ]
)
MOVED_RESHAPES: Rules = RESHAPES + MOVEMENT + REDUCTIONS
# A product absorbs its transpose before it could sink away.
MOVED_TRANSPOSES: Rules = TRANSPOSED_DOTS + TRANSPOSES + MOVEMENT + REDUCTIONS
MOVED_IMAGES: Rules = MOVED_TRANSPOSES + WINDOWS


@module_pass("move-reshapes")
def move_reshapes(module: Module) -> Module:
    """Moves reshapes out of element-wise chains: to stored arrays, or after the chain."""
    return change_computations(module, lambda computation: rewrite(computation, MOVED_RESHAPES))


@module_pass("move-transposes")
def move_transposes(module: Module) -> Module:
    """Moves transposes after element-wise chains, towards the dots and reductions that absorb them."""
    return change_computations(module, lambda computation: rewrite(computation, MOVED_TRANSPOSES))


@module_pass("move-image-transposes", "convolution")
def move_image_transposes(module: Module) -> Module:
    """Moves the transposes around convolutions past the ops in between, so that layers use the same order."""
    return change_computations(module, lambda computation: rewrite(computation, MOVED_IMAGES))
