"""einsum: Einstein's sum convention as dots, sums and diagonals."""

from __future__ import annotations

from functools import lru_cache

from hloom import lax
from hloom.arrays.arguments import explains_arguments
from hloom.dispatch.sharded import takes_out_sharding
from hloom.errors import ArgumentError, ShapeError
from hloom.ir.process.lazy import LazyModule
from hloom.ir.types import PRED, Shape, as_dtype
from hloom.lax.operands import as_operand, convert, promote_operands
from hloom.numpy.linear.products import contract
from hloom.numpy.shaping.diagonals import diagonal
from hloom.tracing.trace import bind

opt_einsum = LazyModule("opt_einsum")


@takes_out_sharding
def einsum(
    subscripts,
    /,
    *operands,
    out=None,
    optimize="auto",
    precision=None,
    preferred_element_type=None,
    out_sharding=None,
    _dot_general=None,
):
    """Einstein summation: einsum("ij,jk->ik", a, b). Supports repeated labels, implicit outputs and "...".

    Also einsum(a, [0, 1], b, [1, 2], [0, 2]). Three or more operands are contracted in the order that opt_einsum finds:
    optimize is True or "auto", "optimal", "greedy" or another of its algorithms, a path as `einsum_path` returns it, or
    False (from left to right). _dot_general: replaces `lax.dot_general`, with the same arguments. Raises ArgumentError,
    ShapeError, DTypeError.

    >>> a, b = hnp.arange(6).reshape(2, 3), hnp.arange(12).reshape(3, 4)
    >>> hnp.einsum("ij,jk->ik", a, b)
    Array([[20, 23, 26, 29],
           [56, 68, 80, 92]], dtype=int32)
    >>> hnp.einsum("ii", hnp.eye(3))
    Array(3., dtype=float32)
    """
    if out is not None:
        raise ArgumentError("einsum returns a new array", "out=", "leave out= out: arrays are immutable")
    if not isinstance(subscripts, str):
        subscripts, operands = _subscripts_of_lists((subscripts, *operands))
    operands, _ = promote_operands("einsum", operands, broadcast=False)
    inputs, output, extents = _labelled(subscripts, operands)
    terms = [_normalize(x, labels, extents) for labels, x in zip(inputs, operands, strict=True)]
    path = _path(tuple(tuple(labels) for _, labels in terms), tuple(output), extents, optimize)
    for step in path:
        chosen = [terms[k] for k in step]
        terms = [t for k, t in enumerate(terms) if k not in step]
        while len(chosen) > 1:
            first, second, *chosen = chosen
            chosen.insert(0, _joined(first, second, terms + chosen, output, preferred_element_type, _dot_general))
        terms.append(chosen[0])
    while len(terms) > 1:
        first, second, *terms = terms
        terms.insert(0, _joined(first, second, terms, output, preferred_element_type, _dot_general))
    ((x, labels),) = terms
    x, labels = _sum_out(x, labels, frozenset(output))
    kept = [label for label in output if label in labels]
    x = lax.transpose(x, [labels.index(label) for label in kept])
    if len(kept) < len(output):
        dims = tuple(extents[label] for label in output)
        x = bind("broadcast", x, shape=Shape(x.dtype, dims), dimensions=tuple(map(output.index, kept)))
    return x if preferred_element_type is None else convert(x, as_dtype(preferred_element_type))


def einsum_path(subscripts, /, *operands, optimize="auto"):
    """(path, description): the pairs that `einsum` contracts in order, and opt_einsum's report.

    Operands are removed from the list by index and their result is appended. Raises like `einsum`.

    >>> path, text = hnp.einsum_path("ij,jk,kl->il", hnp.ones((2, 9)), hnp.ones((9, 9)), hnp.ones((9, 2)))
    >>> path
    [(0, 1), (0, 1)]
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _subscripts_of_lists((subscripts, *operands))
    inputs, output, extents = _labelled(subscripts, [as_operand(x, "einsum_path") for x in operands])
    text, shapes = _plain([tuple(labels) for labels in inputs], output, extents)
    optimize = "auto" if optimize is True else optimize
    return opt_einsum.contract_path(text, *shapes, shapes=True, optimize=optimize)


def _labelled(subscripts: str, operands):
    """(labels of each operand, labels of the result, size of each label)."""
    inputs, output = _parse(subscripts, operands)
    extents: dict[str, int] = {}
    for labels, x in zip(inputs, operands, strict=True):
        for label, extent in zip(labels, x.shape, strict=True):
            if extents.setdefault(label, extent) in (1, extent):
                extents[label] = extent
            elif extent != 1:
                raise ShapeError(
                    f"einsum('{subscripts}') gives each label one size",
                    f"label '{label}' has sizes {extents[label]} and {extent}",
                    "check the order of the labels",
                )
    return inputs, output, extents


def _joined(first, second, rest, output, preferred_element_type, dot_general):
    """Two terms contracted over the labels that no other term needs."""
    (left, left_labels), (right, right_labels) = first, second
    needed = frozenset(output).union(*(labels for _, labels in rest))
    left, left_labels = _sum_out(left, left_labels, needed | frozenset(right_labels))
    right, right_labels = _sum_out(right, right_labels, needed | frozenset(left_labels))
    if not rest:
        kept = [label for label in output if label in left_labels or label in right_labels]
    else:
        shared = [x for x in left_labels if x in right_labels and x in needed]
        kept = shared + [x for x in left_labels if x not in right_labels]
        kept += [x for x in right_labels if x not in left_labels]
    return contract(left, left_labels, right, right_labels, kept, preferred_element_type, dot_general), kept


def _plain(inputs, output, extents):
    """The subscripts with one letter per label, and the sizes of each operand, in opt_einsum's form."""
    # Labels that are letters are kept.
    own = all(isinstance(label, str) and len(label) == 1 for label in extents)
    letters = {label: label if own else opt_einsum.get_symbol(k) for k, label in enumerate(extents)}
    words = ["".join(letters[label] for label in labels) for labels in inputs]
    shapes = [tuple(extents[label] for label in labels) for labels in inputs]
    return f"{','.join(words)}->{''.join(letters[label] for label in output)}", shapes


def _path(inputs, output, extents, optimize):
    """The indices of the contracted operands, one tuple per step."""
    if isinstance(optimize, (list, tuple)):
        steps = [s for s in optimize if s != "einsum_path"]
        count, checked = len(inputs), []
        for step in steps:
            step = tuple(sorted(step))
            if not step or step[0] < 0 or step[-1] >= count or len(set(step)) != len(step):
                raise ArgumentError(
                    "einsum takes a path of positions of operands", f"{optimize!r:.100}", "use einsum_path"
                )
            count -= len(step) - 1
            checked.append(step)
        return checked
    if not isinstance(optimize, (str, bool)) and not callable(optimize):
        raise ArgumentError("einsum takes optimize as a name, a path or a bool", f"{optimize!r:.80}", "pass 'auto'")
    if optimize is False or len(inputs) < 3:
        return []
    items = tuple(extents.items())
    return _found_path(inputs, output, items, "auto" if optimize is True else optimize)


@lru_cache(maxsize=1024)
def _found_path(inputs, output, extents, optimize):
    text, shapes = _plain(inputs, output, dict(extents))
    try:
        path, _ = opt_einsum.contract_path(text, *shapes, shapes=True, optimize=optimize)
    except (KeyError, ValueError):
        raise ArgumentError(
            f"einsum takes optimize='{optimize}'",
            "opt_einsum has no such algorithm",
            "pass 'auto', 'optimal' or 'greedy'",
        ) from None
    return tuple(tuple(step) for step in path)


def _subscripts_of_lists(arguments):
    """The text form of einsum(a, labels of a, b, labels of b, ..., labels of the result)."""

    def text(labels):
        return "".join("..." if x is Ellipsis else chr(ord("a") + x if x < 26 else ord("A") + x - 26) for x in labels)

    operands, inputs = arguments[: len(arguments) // 2 * 2 : 2], arguments[1::2]
    if any(not isinstance(labels, (list, tuple)) for labels in inputs):
        raise ArgumentError(
            "einsum takes subscripts and arrays, or arrays each followed by a list of integers",
            ", ".join(type(a).__name__ for a in arguments),
            "write einsum('ij,jk->ik', a, b)",
        )
    result = ",".join(text(labels) for labels in inputs)
    return result + ("->" + text(arguments[-1]) if len(arguments) % 2 else ""), operands


def _parse(subscripts: str, operands) -> tuple[list[list[str]], list[str]]:
    """Labels of each operand and of the result. The axes of an ellipsis are labelled "...0" (the last), "...1", ..."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    words = left.split(",")
    if len(words) != len(operands):
        raise ArgumentError(
            f"einsum('{subscripts}') takes {len(words)} operands",
            f"{len(operands)} given",
            "name each operand's labels",
        )
    letters = set(text) - set("->,.")
    if any(not c.isalpha() for c in letters) or any("." in w.replace("...", "", 1) for w in [*words, right]):
        raise ArgumentError(
            "einsum takes letters, ',', '->' and '...' as subscripts", f"'{subscripts}'", "write 'ij,jk->ik'"
        )
    inputs, hidden = [], 0
    for word, x in zip(words, operands, strict=True):
        named = len(word.replace("...", ""))
        extra = x.ndim - named
        if extra < 0 or (extra and "..." not in word):
            raise ShapeError(
                f"einsum('{subscripts}') takes an operand of rank {named} for '{word}'",
                f"{x._shape!r}",
                "give each axis a label, or write '...'",
            )
        hidden = max(hidden, extra if "..." in word else 0)
        inputs.append(_labels(word, extra))
    if arrow:
        output = _labels(right, hidden) if "..." in right else list(right)
        known = {label for labels in inputs for label in labels}
        if len(set(output)) != len(output) or not set(output) <= known:
            raise ArgumentError(
                f"einsum('{subscripts}') takes each label of the result once, from those of the operands",
                f"'{right}'",
                "check the labels after '->'",
            )
    else:
        flat = [label for labels in inputs for label in labels if not label.startswith("...")]
        output = [f"...{k}" for k in reversed(range(hidden))] + sorted(c for c in set(flat) if flat.count(c) == 1)
    return inputs, output


def _labels(word: str, extra: int) -> list[str]:
    before, dots, after = word.partition("...")
    return [*before, *([f"...{k}" for k in reversed(range(extra))] if dots else []), *after]


def _normalize(x, labels, extents):
    """x with distinct labels (diagonals of repeated ones) and without axes to be broadcast."""
    labels = list(labels)
    stretched = [k for k, label in enumerate(labels) if x.shape[k] == 1 and extents[label] != 1]
    if stretched:
        x = lax.squeeze(x, stretched)
        labels = [label for k, label in enumerate(labels) if k not in stretched]
    for label in sorted(set(labels)):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            x = diagonal(x, 0, first, second)
            labels = [c for k, c in enumerate(labels) if k not in (first, second)] + [label]
    return x, labels


def _sum_out(x, labels, needed):
    axes = [k for k, label in enumerate(labels) if label not in needed]
    if not axes:
        return x, labels
    reduction = lax.reduce_or if x.dtype == PRED else lax.reduce_sum
    return reduction(x, axes), [label for label in labels if label in needed]


@explains_arguments
def multi_dot(arrays, *, precision=None):
    """The product of two or more matrices in the cheapest order; the first and last may be vectors.

    >>> a, b, c = hnp.ones((10, 2)), hnp.ones((2, 10)), hnp.ones((10, 3))
    >>> hnp.linalg.multi_dot([a, b, c]).shape
    (10, 3)
    """
    arrays = [as_operand(a, "multi_dot") for a in arrays]
    if len(arrays) < 2:
        raise ArgumentError("multi_dot takes at least two arrays", f"{len(arrays)}", "use the array itself")
    labels = []
    for k, x in enumerate(arrays):
        own = [k, k + 1]
        labels += [x, own if x.ndim == 2 else own[1:] if k == 0 else own[:1]]
    out = [0] * (arrays[0].ndim == 2) + [len(arrays)] * (arrays[-1].ndim == 2)
    return einsum(*labels, out)
