"""Sequences and optionals: Python's lists and None, while tracing."""

from __future__ import annotations

import itertools

import numpy as np

from hloom.errors import AttributeValueError, IndexOutOfBoundsError
from hloom.ir.sizes.expressions import Size
from hloom.onnx.rules.shapes import library
from hloom.onnx.sizes import integers
from hloom.onnx.table import op


def _position(sequence: list, position, more: int = 0) -> int:
    at = int(position.reshape(-1)[0])
    size = len(sequence)
    if not -size <= at < size + more:
        raise IndexOutOfBoundsError(f"element {at} of a sequence", f"{size} elements", "a position inside of it")
    return at + size if at < 0 else at


@op("SequenceEmpty")
def empty(*, dtype=1):
    return []


@op("SequenceConstruct")
def construct(*values):
    return list(values)


@op("SequenceAt", static=(1,))
def at(sequence, position):
    return sequence[_position(sequence, position)]


@op("SequenceInsert", static=(2,))
def insert(sequence, value, position=None):
    k = len(sequence) if position is None else _position(sequence, position, 1)
    return [*sequence[:k], value, *sequence[k:]]


@op("SequenceErase", static=(1,))
def erase(sequence, position=None):
    k = len(sequence) - 1 if position is None else _position(sequence, position)
    return sequence[:k] + sequence[k + 1 :]


@op("SequenceLength")
def length(sequence):
    return np.array(len(sequence), np.int64)


@op("ConcatFromSequence")
def concat(sequence, *, axis, new_axis=0):
    return (library(*sequence).stack if new_axis else library(*sequence).concatenate)(sequence, axis)


@op("SplitToSequence", static=(1,))
def split(x, sizes=None, *, axis=0, keepdims=1):
    count = x.shape[axis]
    if sizes is not None and sizes.ndim:
        cuts: list[Size] = [*itertools.accumulate(integers(sizes))][:-1]
    else:
        cuts = [*range(0, count, 1 if sizes is None else integers(sizes)[0])][1:]
    parts = list(library(x).split(x, cuts, axis))
    if sizes is None and not keepdims:
        parts = [library(x).squeeze(p, axis) for p in parts]
    return parts


@op("SequenceMap")
def map_sequence(node, sequence, *others, body):
    call = node.body(body)
    made = [
        call(value, *(other[k] if isinstance(other, list) else other for other in others))
        for k, value in enumerate(sequence)
    ]
    return tuple([row[k] for row in made] for k in range(len(body.outputs)))


@op("Optional", since=15)
def optional(value=None, *, type=None):
    return value


@op("OptionalHasElement")
def has_element(value=None):
    return np.array(value is not None)


@op("OptionalGetElement")
def get_element(value):
    if value is None:
        raise AttributeValueError(
            "OptionalGetElement", "an optional without an element", "ask OptionalHasElement first"
        )
    return value
