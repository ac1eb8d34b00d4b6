"""The table of ONNX ops: one entry per op and version, which the modules of `rules/` declare.

A rule gets the inputs of a node by position (None for those that are absent) and its attributes by keyword, with the
defaults of ONNX's schema. It returns one value, or a tuple of values for several outputs. A rule whose first parameter
is called `node` also gets the call: its opset, its outputs and its bodies.

Values are NumPy arrays if they are known while tracing (constants, shapes and values computed from them), and hloom
arrays otherwise. Sequences are lists, empty optionals are None.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hloom.errors import DataDependentWarning
from hloom.tracing.concrete import known

ML = "ai.onnx.ml"
TRAINING = "ai.onnx.preview.training"
MICROSOFT = "com.microsoft"  # of ONNX Runtime
ONNX_DOMAINS = frozenset({"", "ai.onnx", ML, TRAINING, "ai.onnx.preview", "ai.onnx.training"})


class NeedsValue(Exception):
    """A rule needs the elements of a value that is known only at run time.

    value: the array, if only its elements are needed; None if the whole node has to run on concrete values. category:
    of the warning about it.
    """

    def __init__(self, what: str, value=None, category: type[Warning] = DataDependentWarning):
        super().__init__(what)
        self.what, self.value, self.category = what, value, category


@dataclass(frozen=True, eq=False)
class Entry:
    """One op from one version on.

    static: positions of inputs whose values determine shapes; the rule gets them as NumPy arrays.
    decides: positions of inputs whose values, if known, determine what is traced.
    host: the rule computes with NumPy on concrete values, because its results' shapes depend on them.
    attributes: the keywords of the rule.
    """

    name: str
    since: int
    rule: Callable
    static: frozenset[int]
    decides: frozenset[int]
    host: bool
    takes_node: bool
    attributes: frozenset[str]


OPS: dict[tuple[str, str], list[Entry]] = {}


def op(names: str, *, since: int = 1, domain: str = "", static: tuple[int, ...] = (), decides: tuple[int, ...] = (),
       host: bool = False) -> Callable:  # fmt: skip
    """Declares the rule of one or several ops from a version of their domain on."""

    def declare(rule: Callable) -> Callable:
        parameters = list(inspect.signature(rule).parameters.values())
        takes_node = bool(parameters) and parameters[0].name == "node"
        attributes = frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
        for name in names.split():
            entries = OPS.setdefault((domain, name), [])
            entries[:] = [e for e in entries if e.since != since]
            entries.append(
                Entry(name, since, rule, frozenset(static), frozenset(decides), host, takes_node, attributes)
            )
            entries.sort(key=lambda entry: -entry.since)
        return rule

    return declare


def find(domain: str, name: str, version: int) -> Entry | None:
    """The entry of an op in a version of its domain, or None."""
    return next((e for e in OPS.get((domain, name), ()) if e.since <= version), None)


def static(value, what: str) -> np.ndarray:
    """The elements of a value. Raises NeedsValue if they are known only at run time."""
    number = known(value)
    if number is None:
        raise NeedsValue(what, value)
    return number


def is_known(value: Any) -> bool:
    """Whether the elements of a value are known while tracing: constants, and sequences of constants."""
    if isinstance(value, list):
        return all(map(is_known, value))
    return value is None or isinstance(value, (np.ndarray, dict))
