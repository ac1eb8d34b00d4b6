"""Patterns, rule tables and the driver that applies them.

A rule is one line: a pattern on the left, its result on the right, and the identity in mathematical notation.

    x, c = Any("x"), Splat("c")
    rule(x - x, 0, when=lambda x: is_integer(x), name="subtract-self", identity="x - x = 0")
    rule(x * 1, x, name="multiply-one", identity="x * 1 = x")

Rules are collected in `Rules` tables, which combine with `+` and are indexed by the opcode of the pattern's root. The
driver walks a computation in program order and simplifies each instruction, including those that rules create, before
visiting its users. A rule depends only on an instruction and its operands, so one walk suffices except for rules that
count uses; the walk is repeated (a bounded number of times) to a fixed point.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from hloom.ir.errors import HloomError
from hloom.ir.module import AnyShape, Computation, Instruction, below
from hloom.ir.op_table import OPS
from hloom.ir.patterns import Number, Op, Pattern
from hloom.ir.records import record
from hloom.ir.source import Source, warn_while_compiling
from hloom.ir.types import COMPLEX, FLOATS, INTEGERS, PRED, Shape, are_equal
from hloom.ir.types import INEXACT as INEXACT_DTYPES

# A longer chain of rules, each applied to the result of the previous one, is considered a cycle.
LONGEST_CHAIN = 64
MOST_WALKS = 4


# --- facts about instructions ---------------------------------------------------------------------------------------


def has_effects(instruction: Instruction) -> bool:
    """Whether the instruction must be kept, in order, even if its result is unused."""
    if not instruction.attributes:
        return OPS[instruction.opcode].effects
    return any(
        OPS[i.opcode].effects or i.attributes.get("custom_call_has_side_effect", False) for i in below([instruction])
    )


# Conditions of rules: their parameter is called `root`, for use as `when=is_integer`.


def is_integer(root: Instruction) -> bool:
    return root.shape.dtype in INTEGERS


def is_discrete(root: Instruction) -> bool:
    """Integer or pred: no NaN, infinity or -0, and arithmetic that wraps."""
    return root.shape.dtype in INTEGERS or root.shape.dtype == PRED


def is_float(root: Instruction) -> bool:
    return root.shape.dtype in FLOATS


def is_real(root: Instruction) -> bool:
    return root.shape.dtype not in COMPLEX


def is_inexact(root: Instruction) -> bool:
    return root.shape.dtype in INEXACT_DTYPES


# --- rules ----------------------------------------------------------------------------------------------------------

EXACT, ROUNDING, INEXACT = "exact", "rounding", "inexact"


@record(frozen=True)
class Rule:
    """A rewrite.

    numerics: 'exact': the same bits (except for NaN payloads). 'rounding': the replaced op does not specify its last
    bits or its order (power, reductions), and the result is within the same bound and agrees on NaN, infinities and
    signed zeros. 'inexact': needs an explicit flag. counts_uses: whether it depends on the number of uses of a value
    (`Rewriter.used_once`), which may differ in another walk.
    """

    name: str
    pattern: Op
    result: Callable  # (rewriter, root, captures) -> Instruction, or None if it does not apply
    when: Callable | None  # (rewriter, root, captures) -> bool
    identity: str
    numerics: str
    counts_uses: bool


def _by_name(function: Callable, names: set[str], rule_name: str) -> Callable:
    """Calls `function` with arguments by parameter name: `b` the rewriter, `root`, or a capture of the pattern."""
    code = function.__code__
    parameters = list(code.co_varnames[: code.co_argcount])  # (`inspect.signature` takes ten times as long)
    unknown = [p for p in parameters if p not in names and p not in ("b", "root")]
    if unknown:
        raise TypeError(f"rule {rule_name}: {', '.join(unknown)} not captured; there are {', '.join(sorted(names))}")
    if parameters == ["b", "root"]:
        return lambda rewriter, root, captures: function(rewriter, root)
    if parameters == ["root"]:
        return lambda rewriter, root, captures: function(root)

    def call(rewriter, root, captures):
        known = {"b": rewriter, "root": root, **captures}
        return function(*[known[p] for p in parameters])

    return call


def rule(
    pattern: Op,
    result,
    *,
    when: Callable | None = None,
    name: str,
    identity: str,
    numerics: str = EXACT,
    counts_uses: bool = False,
) -> Rule:
    """A rule that replaces instructions matching `pattern` by `result`.

    result: a pattern (built from the captures), a number (in the root's shape), or a function of captures, matched by
    parameter name (`b` is the Rewriter, `root` the matched instruction), that returns an instruction or None. when: a
    condition, a function of captures as well.
    """
    names = set(pattern.names())
    if callable(result):
        build = _by_name(result, names, name)
    else:
        template = result if isinstance(result, Pattern) else Number(result)
        missing = set(template.names()) - names
        if missing:
            raise TypeError(f"rule {name}: {', '.join(missing)} not captured")
        build = template.build
    condition = _by_name(when, names, name) if when else None
    return Rule(name, pattern, build, condition, identity, numerics, counts_uses)


_marks = itertools.count()
_marked: dict[int, list[Rule]] = {}  # a bit of `Instruction.settled` -> the rules that it covers


class Rules:
    """A table of rules. `+` combines tables; rules are tried in order.

    A pattern whose opcode is `*` is tried on every instruction, after those of its opcode.
    """

    def __init__(self, rules: Iterable[Rule] = ()):
        self.rules = tuple(rules)
        names = [r.name for r in self.rules]
        twice = {n for n in names if names.count(n) > 1}
        if twice:
            raise ValueError(f"two rules are called {', '.join(sorted(twice))}")
        self._tables: dict[tuple[bool, int], Candidates] = {}
        self._marks: dict[bool, int] = {}

    def __add__(self, other: Rules) -> Rules:
        return Rules(self.rules + other.rules)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def candidates(self, inexact: bool = False, settled: int = 0) -> Candidates:
        """The rules to try on instructions with these bits of `Instruction.settled`.

        Instructions and their operands are immutable, so an instruction that no rule of a table matched need not be
        tried again, except by rules that count uses.
        """
        found = self._tables.get((inexact, settled))
        if found is None:
            tried = {id(r) for mark, rules in _marked.items() if mark & settled for r in rules}
            found = self._tables[inexact, settled] = Candidates(
                r for r in self._allowed(inexact) if r.counts_uses or id(r) not in tried
            )
        return found

    def mark(self, inexact: bool = False) -> int:
        """The bit of this table in `Instruction.settled`."""
        if inexact not in self._marks:
            self._marks[inexact] = mark = 1 << next(_marks)
            _marked[mark] = self._allowed(inexact)
        return self._marks[inexact]

    def _allowed(self, inexact: bool) -> list[Rule]:
        return [r for r in self.rules if inexact or r.numerics != INEXACT]


class Candidates(dict):
    """(opcode, opcodes of the operands ...) -> the rules that may match such an instruction, in order.

    Filled on demand: most instructions then have no rule to try, instead of four.
    """

    def __init__(self, rules: Iterable[Rule]):
        self.rules = list(rules)
        self.by_opcode: dict[str, list[Rule]] = {}

    def of(self, opcode: str) -> list[Rule]:
        """The rules whose pattern has the opcode, or '*'."""
        found = self.by_opcode.get(opcode)
        if found is None:
            found = [r for r in self.rules if opcode in r.pattern.opcodes or r.pattern.opcodes == ("*",)]
            self.by_opcode[opcode] = found
        return found

    def __missing__(self, key: tuple[str, ...]) -> list[Rule]:
        opcode, *operands = key
        self[key] = found = [r for r in self.of(opcode) if r.pattern.may_match(tuple(operands))]
        return found


# --- the driver -----------------------------------------------------------------------------------------------------


class Rewriter:
    """One walk over a computation. Rules create instructions through it: `emit`, `splat`, `reshape`, ...

    Emitted instructions are simplified first, so the result may have another opcode than requested.
    """

    def __init__(self, computation: Computation, rules: Rules, inexact: bool = False):
        self.computation = computation
        self.table, self.inexact = rules, inexact
        self.candidates: dict[int, Candidates] = {}  # by settled bits
        self.mark = rules.mark(inexact)
        self.rule: Rule | None = None  # the rule being tried
        self.instructions: list[Instruction] = []
        self.uses: dict[Instruction, int] = {}
        self.counted = False  # whether the computation's uses are included
        self.source: Source | None = None
        self.made_by: tuple[str, ...] = ()
        self.chain: list[str] = []
        self.splats: dict[tuple[Shape, bytes], Instruction] = {}  # created in this walk, shared
        self.changed = False

    def run(self) -> Computation:
        """The rewritten computation; the same object when no rule applied."""
        computation = self.computation
        rules = [self.rules_for(i) for i in computation.instructions]
        if not any(rules):
            return computation
        mapped: dict[Instruction, Instruction] = {}  # the instructions that changed
        for instruction, candidates in zip(computation.instructions, rules, strict=True):
            if mapped and any([o in mapped for o in instruction.operands]):
                operands = tuple([mapped.get(o, o) for o in instruction.operands])
                result = self.visit(instruction.with_operands(operands))
            else:
                result = self.tried(instruction, candidates)
            if result is not instruction:
                mapped[instruction] = result
                uses = self.all_uses()
                uses[result] = uses.get(result, 0) + uses.get(instruction, 0)
        if not self.changed:
            return computation
        parameters = [mapped.get(p, p) for p in computation.parameters]
        root = mapped.get(computation.root, computation.root)
        return sweep(Computation(computation.name, parameters, self.instructions, root))

    def all_uses(self) -> dict[Instruction, int]:
        """The number of uses of each value: in the computation, and by emitted instructions."""
        uses = self.uses
        if not self.counted:
            self.counted = True
            for instruction in self.computation.instructions:
                for operand in instruction.operands:
                    uses[operand] = uses.get(operand, 0) + 1
            root = self.computation.root
            uses[root] = uses.get(root, 0) + 1
        return uses

    def rules_for(self, instruction: Instruction) -> list[Rule]:
        """The rules that an instruction may match, by opcodes and settled bits alone."""
        key = instruction.opcodes
        if key is None:
            key = instruction.opcodes = (instruction.opcode, *[o.opcode for o in instruction.operands])
        candidates = self.candidates.get(instruction.settled)
        if candidates is None:
            candidates = self.candidates[instruction.settled] = self.table.candidates(self.inexact, instruction.settled)
        return candidates[key]

    def visit(self, instruction: Instruction) -> Instruction:
        """The instruction, simplified; it or its replacement has been appended."""
        return self.tried(instruction, self.rules_for(instruction))

    def tried(self, instruction: Instruction, rules: list[Rule]) -> Instruction:
        """As `visit`, with the rules that the instruction may match."""
        for candidate in rules:
            captures: dict[str, Instruction] = {}
            if not candidate.pattern.match_operands(instruction, captures):
                continue
            self.rule = candidate
            if candidate.when is not None and not candidate.when(self, instruction, captures):
                continue
            result = self.apply(candidate, instruction, captures)
            if result is not None:
                return result
        instruction.settled |= self.mark
        self.instructions.append(instruction)
        return instruction

    def apply(self, candidate: Rule, instruction: Instruction, captures) -> Instruction | None:
        if len(self.chain) >= LONGEST_CHAIN:
            warn_while_compiling(
                f"rules of rewriting went in a circle at {instruction!r}: {' > '.join(self.chain[-8:])}; "
                "the instruction stays as it is",
                RuntimeWarning,
                instruction.source,
            )
            return None
        before = self.source, self.made_by, self.rule
        self.source = instruction.source
        made_by = instruction.made_by
        self.made_by = made_by if made_by[-1:] == (candidate.name,) else (*made_by, candidate.name)
        self.chain.append(candidate.name)
        first_new = len(self.instructions)
        try:
            result = candidate.result(self, instruction, captures)
        finally:
            self.source, self.made_by, self.rule = before
            self.chain.pop()
        if result is None:
            return None
        if not are_equal(result.shape, instruction.shape):
            raise HloomError(
                f"rule {candidate.name} replaced {instruction!r}",
                f"its result is {result!r}, of another shape",
                "this is a bug of hloom: please report it with the text of the module",
                instruction.source,
            )
        self.changed = True
        hint = instruction.hint
        # A hint that only repeats the opcode would be wrong for another op.
        if hint and not result.hint and not hint.startswith(instruction.opcode):
            if result in self.instructions[first_new:]:
                result.hint = hint
        return result

    # The builder interface of rules.

    def emit(self, opcode: str, *operands: Instruction, shape: AnyShape | None = None, **attributes) -> Instruction:
        """`opcode(operands)` with its inferred shape, simplified."""
        shape = OPS[opcode].infer([o.shape for o in operands], attributes, shape)
        uses = self.uses
        for operand in operands:
            uses[operand] = uses.get(operand, 0) + 1
        return self.visit(Instruction(opcode, operands, shape, attributes, "", self.source, self.made_by))

    def again(self, instruction: Instruction, *operands: Instruction, shape: AnyShape | None = None, **attributes):
        """The op of `instruction` with its attributes (or those given) on other operands; shape inferred."""
        if shape is None and OPS[instruction.opcode].shaped:
            shape = instruction.shape
        return self.emit(instruction.opcode, *operands, shape=shape, **{**instruction.attributes, **attributes})

    def constant(self, value: np.ndarray) -> Instruction:
        """A constant of the array's dtype."""
        return self.visit(
            Instruction(
                "constant", (), Shape(value.dtype, value.shape), {"value": value}, "", self.source, self.made_by
            )
        )

    def splat(self, number, shape: Shape) -> Instruction:
        """A number in every element of a shape."""
        with np.errstate(all="ignore"):
            value = np.asarray(number).astype(shape.dtype)
        key = (shape, value.tobytes())
        splat = self.splats.get(key)
        if splat is None:
            splat = self.splats[key] = self.broadcast(self.constant(value), shape.dims, ())
        return splat

    def broadcast(self, operand: Instruction, dims, dimensions) -> Instruction:
        dims = tuple(dims)
        if dims == operand.dims:
            return operand
        return self.emit("broadcast", operand, shape=operand.shape.with_dims(dims), dimensions=tuple(dimensions))

    def slice(self, operand: Instruction, bounds) -> Instruction:
        if all(
            s == 0 and limit == n and stride == 1 for (s, limit, stride), n in zip(bounds, operand.dims, strict=True)
        ):
            return operand
        return self.emit("slice", operand, slice=tuple(bounds))

    def reshape(self, operand: Instruction, dims) -> Instruction:
        dims = tuple(dims)
        return operand if dims == operand.dims else self.emit("reshape", operand, shape=operand.shape.with_dims(dims))

    def transpose(self, operand: Instruction, permutation) -> Instruction:
        permutation = tuple(permutation)
        if permutation == tuple(range(len(permutation))):
            return operand
        return self.emit("transpose", operand, dimensions=permutation)

    def convert(self, operand: Instruction, dtype) -> Instruction:
        if operand.shape.dtype == dtype:
            return operand
        return self.emit("convert", operand, shape=operand.shape.with_dtype(dtype))

    def used_once(self, instruction: Instruction) -> bool:
        """Whether it has only one user. Conservative: may be False if a use was removed in the current walk."""
        assert self.rule is None or self.rule.counts_uses, f"rule {self.rule.name} says counts_uses=True"
        return self.all_uses().get(instruction, 0) <= 1


def sweep(computation: Computation) -> Computation:
    """The computation without instructions needed by neither its root nor an effect; parameters are kept. Preserves
    order."""
    needed: set[Instruction] = set(computation.parameters)
    needed.add(computation.root)
    kept = []
    for instruction in reversed(computation.instructions):
        if instruction in needed or has_effects(instruction):
            needed.update(instruction.operands)
            needed.add(instruction)
            kept.append(instruction)
    if len(kept) == len(computation.instructions):
        return computation
    return Computation(computation.name, computation.parameters, kept[::-1], computation.root)


def rewrite(computation: Computation, rules: Rules, *, inexact: bool = False, walks: int = MOST_WALKS) -> Computation:
    """The computation with the rules applied to a fixed point; the same object if nothing changed.

    inexact: includes rules with numerics 'inexact'. walks: the maximum number of walks.
    """
    for _ in range(walks):
        changed = Rewriter(computation, rules, inexact).run()
        if changed is computation:
            break
        computation = changed
    return computation
