"""sum-after-scans: hoists accumulated products and reductions out of scans, batched over all steps.

The gradient of a weight that every step uses is `carry + dot(a, b)`. A product of a few rows in each step reads and
writes the whole sum; after the scan it is one large product over the rows of all steps. This changes the summation
order, as a dot always may.
"""

from __future__ import annotations

import math

from hloom.compiler.passes.registry import module_pass
from hloom.compiler.passes.walk import change_computations, replaced
from hloom.ir.build import Builder, combiner_opcode, tuple_elements
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.ops.programs.control import split_scan
from hloom.ir.records import field, record
from hloom.ir.rewrite import sweep

NAME = "sum-after-scans"
LEAST_STEPS = 4
LONGEST = 512  # maximum number of terms of a step's sums; longer ones amortize reading and writing the sum
MOVES = ("transpose", "reshape")  # ops that may lie between the sum and the addend, as they commute with sums


@module_pass(NAME, "scan")
def sum_after_scans(module: Module) -> Module:
    """Hoists accumulated products and reductions out of scans, batched over all steps."""
    return change_computations(module, lambda c: replaced(c, NAME, _is_scan, _without_sums))


def _is_scan(instruction: Instruction) -> bool:
    return instruction.opcode == "scan"


def _without_sums(builder: Builder, scan: Instruction, _) -> Instruction | None:
    found = _Sums(scan)
    return found.taken_out(builder) if found.terms else None


@record
class _Term:
    """The addend of a carry in each step: `moves` applied to `summed`, a dot or a reduction, the innermost first."""

    summed: Instruction
    moves: list[Instruction] = field(default_factory=list)


class _Sums:
    """The hoisting plan of one scan.

    terms: by carry index. kept: values of the body available for all steps after the scan, of which `stacked` ones are
    added for the terms.
    """

    def __init__(self, scan: Instruction):
        self.scan, self.body = scan, sweep(scan["body"])
        self.terms: dict[int, _Term] = {}
        self.stacked: list[Instruction] = []
        if scan["length"] < LEAST_STEPS or self.body.root.opcode != "tuple":
            return
        self.consts, self.carry, self.xs = split_scan(scan.attributes, self.body.parameters)
        self.results = self.body.root.operands
        self.ys = self.results[len(self.carry) :]
        self.kept = {*self.xs, *self.ys}
        self.users = self.body.users()
        # The number of elements that may be kept for later: as many as the scan reads or returns.
        self.room = sum(math.prod(value.dims) for value in (*self.xs, *self.ys))
        found = {k: term for k in range(len(self.carry)) if (term := self._term(k)) is not None}
        # Products first: a reduction only uses operands that are kept anyway, as it is not worth storing them.
        for k, term in sorted(found.items(), key=lambda item: item[1].summed.opcode != "dot"):
            self._take(k, term)

    def _term(self, k: int) -> _Term | None:
        """The term of a carry that is only accumulated; None for other carries."""
        parameter, new = self.carry[k], self.results[k]
        if new.opcode != "add" or self.users[parameter] != [new] or self.users[new] != [self.body.root]:
            return None
        value = next(o for o in new.operands if o is not parameter)
        moves: list[Instruction] = []
        while len(self.users[value]) == 1 and value.opcode in MOVES:
            moves.insert(0, value)
            value = value.operands[0]
        if len(self.users[value]) != 1:
            return None
        if value.opcode == "dot" or (value.opcode == "reduce" and combiner_opcode(value["to_apply"]) == "add"):
            return _Term(value, moves)
        return None

    def _take(self, k: int, term: _Term) -> None:
        summed = term.summed
        if summed.opcode == "dot":
            lhs, rhs = summed.operands
            terms = math.prod(lhs.dims[d] for d in summed["lhs_contracting_dims"])
            new = [o for o in dict.fromkeys((lhs, rhs)) if not self._is_kept(o)]
            elements = sum(math.prod(o.dims) for o in new)
            fits = elements <= min(math.prod(summed.dims), self.room) and terms <= LONGEST
            # A loop-invariant operand would be stored once per step.
            if not fits or any(o in self.consts or o.opcode == "constant" for o in new):
                return
            self.room -= elements
            self.stacked += new
            self.kept.update(new)
        elif len(summed.operands) != 2 or not self._is_kept(summed.operands[0]) or not _is_zero(summed.operands[1]):
            return
        self.terms[k] = term

    def _is_kept(self, value: Instruction) -> bool:
        """Whether the values of all steps are available after the scan."""
        return value in self.kept or (value.opcode in MOVES and self._is_kept(value.operands[0]))

    def taken_out(self, builder: Builder) -> Instruction:
        """Emits the scan without the sums, and the sums; a tuple of the scan's shape."""
        scan, body = self.scan, self.body
        consts, carry, xs = split_scan(scan.attributes, scan.operands)
        stays = [k for k in range(len(carry)) if k not in self.terms]
        ys = [*self.ys, *self.stacked]
        inner = Builder(body.name)
        inner.source, inner.made_by = builder.source, builder.made_by
        gone = {self.carry[k] for k in self.terms}
        arguments = [
            inner.splat(0, p.shape) if p in gone else inner.parameter(p.shape, p.hint, p.source)
            for p in body.parameters
        ]
        root = Builder(body.name).tuple([*(self.results[k] for k in stays), *ys])
        new = inner.inline(Computation(body.name, body.parameters, [*body.instructions, root], root), arguments)
        after = builder.emit(
            "scan",
            *consts,
            *(carry[k] for k in stays),
            *xs,
            **scan.attributes | {"num_carry": len(stays), "body": sweep(inner.finish(new))},
            hint=scan.hint,
        )
        outputs = tuple_elements(builder, after)
        everything = dict(zip(self.xs, xs, strict=True)) | dict(zip(ys, outputs[len(stays) :], strict=True))
        finals = dict(zip(stays, outputs, strict=False))
        for k, term in self.terms.items():
            with builder.provenance(term.summed, NAME):
                finals[k] = builder.emit("add", carry[k], _summed(builder, term, everything))
        own = outputs[len(stays) : len(stays) + len(self.ys)]
        return builder.tuple([*(finals[k] for k in range(len(carry))), *own])


def _summed(builder: Builder, term: _Term, everything: dict[Instruction, Instruction]) -> Instruction:
    """The sum of a term over all steps, the first dimension of `everything`."""
    summed = term.summed
    if summed.opcode == "dot":
        later = {
            name: tuple(d + 1 for d in value) for name, value in summed.attributes.items() if name.endswith("dims")
        }
        for side in ("lhs", "rhs"):
            later[f"{side}_contracting_dims"] = (0, *later[f"{side}_contracting_dims"])
        operands = [_stacked(builder, o, everything) for o in summed.operands]
        value = builder.emit("dot", *operands, shape=summed.shape, **summed.attributes | later)
    else:
        dimensions = (0, *(d + 1 for d in summed["dimensions"]))
        zero = builder.splat(0, summed.operands[1].shape)
        operand = _stacked(builder, summed.operands[0], everything)
        value = builder.emit("reduce", operand, zero, dimensions=dimensions, to_apply=summed["to_apply"])
    for move in term.moves:
        value = builder.add(move.with_operands((value,)))
    return value


def _stacked(builder: Builder, value: Instruction, everything: dict[Instruction, Instruction]) -> Instruction:
    """The values of all steps, concatenated."""
    if value in everything:
        return everything[value]
    operand = _stacked(builder, value.operands[0], everything)
    if value.opcode == "reshape":
        return builder.emit("reshape", operand, shape=value.shape.with_dims((operand.dims[0], *value.dims)))
    return builder.emit("transpose", operand, dimensions=(0, *(d + 1 for d in value["dimensions"])))


def _is_zero(value: Instruction) -> bool:
    return value.opcode == "constant" and not value["value"].any()
