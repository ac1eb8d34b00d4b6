"""Sharding in the types of values: along explicit mesh axes, the layout of a result follows from those of its operands.

The rules are JAX's, derived from the factors of each op. If operands disagree, or several layouts of the result are
possible, a `ShardingTypeError` suggests a repair. A layout here is `Dims`: the explicit axes that split each dimension;
None for an array that is not split. For a tuple it is a list.

Source: docs.jax.dev/en/latest/notebooks/explicit-sharding.html
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hloom.ir.errors import ShardingTypeError
from hloom.ir.module import Computation, Instruction
from hloom.ir.op_table import factor_rule
from hloom.ir.ops import OPS
from hloom.ir.spmd.factors import FactorRule
from hloom.ir.types import TupleShape, result_shapes

Dims = tuple[tuple[str, ...], ...]
_FROM_NOTHING = frozenset(("constant", "iota", "parameter", "partition-id", "replica-id"))
_RUNNING = frozenset(("reduce-window",))  # running sums and pooling, which JAX rejects along a split dimension


_OR_AUTO = "; or leave layouts to the compiler: make_mesh(..., axis_types=AxisType.Auto)"


def named_dims(sharding, sizes: Mapping[str, int]) -> Dims | None:
    """The explicit axes of a sharding of the IR."""
    return _nontrivial(tuple(tuple(n for n in axes if n in sizes) for axes in sharding.dims))


def _nontrivial(dims: Dims) -> Dims | None:
    return dims if any(dims) else None


def described(instruction_or_shape, dims: Dims | None) -> str:
    """The shape with its axes, as in JAX: f32[8@x,16]."""
    text = repr(instruction_or_shape)
    if dims is None:
        return text
    sizes = text[text.index("[") + 1 : -1].split(",")
    axes = ["" if not a else f"@{a[0]}" if len(a) == 1 else f"@({','.join(a)})" for a in dims]
    return f"{text[: text.index('[')]}[{','.join(s + a for s, a in zip(sizes, axes, strict=True))}]"


class Rules:
    """Infers layouts of results over explicit axes of these sizes.

    strict: raises ShardingTypeError where JAX does; otherwise conflicting axes are dropped.
    """

    def __init__(self, sizes: Mapping[str, int], strict: bool = True):
        self.sizes, self.strict = sizes, strict

    def result(self, instruction: Instruction, given: list) -> Any:
        """The layout of an instruction's result. given: those of its operands."""
        opcode = instruction.opcode
        if opcode in _FROM_NOTHING:
            return None
        if opcode == "tuple":
            return list(given)
        if opcode == "get-tuple-element":
            return given[0][instruction["index"]] if isinstance(given[0], list) else None
        if opcode == "sharding-constraint":
            return self._constrained(instruction["sharding"], given[0])
        if opcode == "manual-computation":
            found = [named_dims(s, self.sizes) for s in instruction["out_shardings"]]
            return found if isinstance(instruction.shape, TupleShape) else found[0]
        if opcode in _CALLING:
            return _CALLING[opcode](self, instruction, given)
        if not any(given):
            return self._nothing(instruction)
        rule = factor_rule(instruction)
        if not isinstance(rule, FactorRule):
            return self._nothing(instruction)
        return self._by_factors(instruction, rule, given)

    def _nothing(self, instruction: Instruction):
        shape = instruction.shape
        return [None] * len(shape.elements) if isinstance(shape, TupleShape) else None

    def _constrained(self, sharding, given: Dims | None) -> Dims | None:
        dims = named_dims(sharding, self.sizes)
        if not sharding.open or given is None:
            return dims
        own = dims or ((),) * len(given)
        return _nontrivial(
            tuple(g if d in sharding.open else o for d, (o, g) in enumerate(zip(own, given, strict=True)))
        )

    def computation(self, computation: Computation, given: list) -> Any:
        """The layout of a computation's result."""
        lenient = self if not self.strict else Rules(self.sizes, False)
        known: dict[Instruction, Any] = dict(zip(computation.parameters, given, strict=True))
        for instruction in computation.instructions:
            if instruction not in known:
                known[instruction] = lenient.result(instruction, [known[o] for o in instruction.operands])
        return known[computation.root]

    # --- by factors ---

    def _by_factors(self, instruction: Instruction, rule: FactorRule, given: list):
        axes: dict[int, tuple[str, ...]] = {}
        readers: dict[int, int] = {}
        for k, (dims, factors) in enumerate(zip(given, rule.operands, strict=True)):
            for d, names in enumerate(dims or ()):
                if not names or not factors[d]:
                    continue
                factor = next((f for f in factors[d] if rule.sizes[f] > 1), factors[d][0])
                if len(factors[d]) > 1 and rule.sizes[factor] % self._count(names):
                    self._reject_reshape(instruction, given)
                    continue
                readers[factor] = readers.get(factor, 0) + 1
                before = axes.setdefault(factor, names)
                if before != names:
                    self._disagree(instruction, given, rule, factor)
                self._check_factor(instruction, rule, factor, given, k)
        for factor, count in readers.items():
            if count > 1 and factor in rule.reduction and OPS[instruction.opcode].family == "contraction":
                self._reject_contraction(instruction, given, axes[factor])
        shapes = result_shapes(instruction.shape)
        found = [
            self._laid_out(instruction, rule, s, r, axes, given) for s, r in zip(shapes, rule.results, strict=True)
        ]
        return found if isinstance(instruction.shape, TupleShape) else found[0]

    def _laid_out(self, instruction, rule, shape, factors, axes, given) -> Dims | None:
        dims: list[tuple[str, ...]] = []
        used: set[str] = set()
        for size, own in zip(shape.dims, factors, strict=True):
            first = next((f for f in own if rule.sizes[f] > 1), None)
            if any(f in axes for f in own if f != first):
                self._reject_reshape(instruction, given)
            names = axes.get(first, ()) if first is not None else ()
            if names and size % self._count(names):
                self._reject_size(instruction, given, size, names)
                names = ()
            if used.intersection(names):
                self._reject_twice(instruction, given, names)
                names = tuple(n for n in names if n not in used)
            used.update(names)
            dims.append(names)
        return _nontrivial(tuple(dims))

    def _count(self, names: tuple[str, ...]) -> int:
        return math.prod(self.sizes[n] for n in names)

    # --- errors ---

    def _check_factor(self, instruction: Instruction, rule: FactorRule, factor: int, given: list, operand: int) -> None:
        if not self.strict:
            return
        opcode = instruction.opcode
        if factor in rule.masked and opcode in ("gather", "scatter"):
            call = "x.at[index].get(out_sharding=P(...))"
            if opcode == "scatter":
                call = "x.at[index].set(values, out_sharding=P(...)), or add, ..."
            self._reject(
                instruction, given, "the index names elements along a dimension that is split", f"write {call}"
            )
        if factor in rule.whole and any(factor in dim for result in rule.results for dim in result):
            self._reject(
                instruction, given, f"it needs all of a dimension that {self._split(given[operand])}",
                "make that dimension whole first: hl.sharding.reshard(x, P(...))",
            )  # fmt: skip
        if factor in rule.windows and opcode in _RUNNING:
            self._reject(
                instruction, given, f"it runs along a dimension that {self._split(given[operand])}",
                "make that dimension whole first: hl.sharding.reshard(x, P(...))",
            )  # fmt: skip

    @staticmethod
    def _split(dims: Dims) -> str:
        return f"{', '.join(repr(n) for axes in dims for n in axes)} splits"

    def _disagree(self, instruction, given, rule, factor) -> None:
        if factor in rule.reduction:
            found = "the dimensions that it contracts are split over different axes"
        else:
            found = "its operands are split over different axes"
        self._reject(instruction, given, found, "lay one out as the other: hl.sharding.reshard(x, P(...))")

    def _reject_contraction(self, instruction, given, names) -> None:
        self._reject(
            instruction, given,
            f"both dimensions that it contracts are split over {', '.join(map(repr, names))}, so the layout of the "
            "result is ambiguous",
            "say how the result is laid out: hnp.matmul(a, b, out_sharding=P(...)), and einsum, dot, lax.dot_general",
        )  # fmt: skip

    def _reject_reshape(self, instruction, given) -> None:
        self._reject(
            instruction, given, f"no dimension of {instruction.shape!r} is split as the operand is",
            "say how the result is laid out: hnp.reshape(x, shape, out_sharding=P(...))",
        )  # fmt: skip

    def _reject_size(self, instruction, given, size, names) -> None:
        self._reject(
            instruction, given, f"a result of size {size} along {', '.join(map(repr, names))}, which has "
            f"{self._count(names)} parts", "make that dimension whole first: hl.sharding.reshard(x, P(...))",
        )  # fmt: skip

    def _reject_twice(self, instruction, given, names) -> None:
        self._reject(
            instruction, given, f"two dimensions of the result would be split over {names[0]!r}",
            "make one of them whole first: hl.sharding.reshard(x, P(...))",
        )  # fmt: skip

    def _reject(self, instruction: Instruction, given: list, found: str, repair: str) -> None:
        if self.strict:
            shown = ", ".join(
                described(o.shape, g) for o, g in zip(instruction.operands, given, strict=True) if o.shape.dims
            )
            raise ShardingTypeError(
                f"{instruction.opcode} of {shown}, over explicit axes of a mesh", found,
                f"{repair}{_OR_AUTO}",
            )  # fmt: skip


# --- ops that run computations ------------------------------------------------------------------------------------


def _call(rules: Rules, instruction: Instruction, given: list):
    return rules.computation(instruction["to_apply"], given)


def _while(rules: Rules, instruction: Instruction, given: list):
    state = given[0] if isinstance(given[0], list) else rules._nothing(instruction)
    after = rules.computation(instruction["body"], [state])
    if rules.strict:
        _check_same(instruction.shape.elements, [state, after], "the state of a loop", ("before", "after a step"))
    return _first_of([state, after])


def _conditional(rules: Rules, instruction: Instruction, given: list):
    branches = zip(instruction["branch_computations"], given[1:], strict=True)
    found = [rules.computation(b, [g]) for b, g in branches]
    if rules.strict:
        titles = [f"branch {k}" for k in range(len(found))]
        _check_same(instruction.shape.elements, found, "the results of branches", titles)
    return _first_of(found)


def _check_same(shapes, layouts: list[list], what: str, titles) -> None:
    """Raises ShardingTypeError if the layouts of a value that must have one type differ."""
    for shape, column in zip(shapes, zip(*layouts, strict=True), strict=True):
        if any(d != column[0] for d in column):
            shown = [f"{described(shape, d)} {title}" for d, title in zip(column, titles, strict=True)]
            raise ShardingTypeError(
                f"{what}, each of which has one layout",
                ", ".join(dict.fromkeys(shown)),
                f"lay one out as the other: hl.sharding.reshard(x, P(...)){_OR_AUTO}",
            )


def _first_of(layouts: list):
    """The first known layout of each element of tuples."""
    return [next((d for d in column if d), None) for column in zip(*layouts, strict=True)]


def _scan(rules: Rules, instruction: Instruction, given: list):
    before, count = instruction["num_consts"], instruction["num_consts"] + instruction["num_carry"]
    rows = []
    for x in given[count:]:
        if x is not None and x[0] and rules.strict:
            raise ShardingTypeError(
                "a scan over the first dimension of its xs", f"it is split over {', '.join(map(repr, x[0]))}",
                f"make it whole first: hl.sharding.reshard(x, P(None, ...)){_OR_AUTO}",
            )  # fmt: skip
        rows.append(_nontrivial(x[1:]) if x is not None else None)
    found = rules.computation(instruction["body"], [*given[:count], *rows])
    own = instruction["num_carry"]
    if rules.strict:
        shapes = instruction.shape.elements[:own]
        _check_same(shapes, [given[before:count], found[:own]], "the carry of a scan", ("before", "after a step"))
    carry = _first_of([given[before:count], found[:own]])
    return [*carry, *(None if y is None else ((), *y) for y in found[own:])]


_CALLING = {"call": _call, "while": _while, "conditional": _conditional, "scan": _scan}

__all__ = ["Dims", "Rules", "described", "named_dims"]
