"""fuse-attention: fuses a contraction, the row nest that is the only reader of its result, and a contraction over those
rows, so that scores never reach memory.

It runs after `fuse`, on its result: three kernels become one, if the target has a kernel for it (`Target.can_fuse`).
Outputs of the row nest with other readers (weights, for a gradient) are outputs of the kernel. Transposes that only
feed it, or that are the only reader of its result, are part of it.
"""

from __future__ import annotations

from hloom.compiler.passes.registry import module_pass
from hloom.compiler.passes.walk import change_computations
from hloom.compiler.targets.base import Target
from hloom.ir.build import Builder, tuple_elements
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.records import record
from hloom.ir.rewrite import has_effects
from hloom.ir.types import TupleShape

THROUGH = ("reshape", "get-tuple-element")  # no kernel's work


@module_pass("fuse-attention")
def fuse_attention(module: Module, target: Target) -> Module:
    """Joins two contractions and the row nest between them into one kernel."""
    return change_computations(module, lambda computation: _fuse(computation, target))


@record
class _Joined:
    """A kernel to form. end, nest: its last instruction, its row nest. further: indices of the nest's outputs with
    other readers. body, inputs: the computation and its operands."""

    end: Instruction
    nest: Instruction
    further: list[int]
    body: Computation
    inputs: list[Instruction]


def _fuse(computation: Computation, target: Target) -> Computation:
    if not any(i.opcode == "fusion" and _has(i, "reduce") for i in computation.instructions):
        return computation
    search = _Search(computation, target)
    joined: dict[Instruction, _Joined] = {}
    taken: set[Instruction] = set()
    for second in computation.instructions:
        found = search.find(second)
        if found is not None and found.nest not in taken:
            taken.add(found.nest)
            search.ends.add(found.end)
            joined[found.end] = joined[found.nest] = found
    return _rebuilt(computation, joined) if joined else computation


def _rebuilt(computation: Computation, joined: dict[Instruction, _Joined]) -> Computation:
    """The computation with each of the joined kernels at the position where its inputs are available."""
    rebuilding = _Rebuilding(computation, joined)
    effects = [i for i in computation.instructions if has_effects(i)]
    stack = [(i, False) for i in reversed([*effects, computation.root])]
    while stack:
        instruction, ready = stack.pop()
        if instruction in rebuilding.mapped:
            continue
        found = rebuilding.kernel_of(instruction)
        needs = found.inputs if found else instruction.operands
        if ready:
            rebuilding.emit(instruction, found)
        else:
            stack.append((instruction, True))
            stack.extend((n, False) for n in reversed(needs) if n not in rebuilding.mapped)
    return rebuilding.builder.finish(rebuilding.mapped[computation.root])


class _Rebuilding:
    """A computation that is being copied with joined kernels."""

    def __init__(self, computation: Computation, joined: dict[Instruction, _Joined]):
        self.builder, self.joined = Builder(computation.name), joined
        self.mapped: dict[Instruction, Instruction] = {}
        self.kernels: dict[int, list[Instruction]] = {}  # the elements of a joined kernel, those of `end` first
        for parameter in computation.parameters:
            self.mapped[parameter] = self.builder.add(parameter)
            self.builder.parameters.append(parameter)

    def kernel_of(self, instruction: Instruction) -> _Joined | None:
        """The joined kernel that an instruction, or the tuple that it is an element of, becomes part of."""
        of_tuple = instruction.opcode == "get-tuple-element" and instruction.operands[0] in self.joined
        return self.joined.get(instruction.operands[0] if of_tuple else instruction)

    def emit(self, instruction: Instruction, kernel: _Joined | None) -> None:
        if kernel is None:
            operands = tuple([self.mapped[n] for n in instruction.operands])
            same = operands == instruction.operands
            self.mapped[instruction] = self.builder.add(instruction if same else instruction.with_operands(operands))
            return
        if id(kernel) not in self.kernels:
            self._emit_kernel(kernel)
        if instruction in self.joined:  # the kernel's end or its nest
            return
        if instruction.operands[0] is kernel.nest:
            elements = self.kernels[id(kernel)]
            further = elements[len(elements) - len(kernel.further) :]
            self.mapped[instruction] = further[kernel.further.index(instruction["index"])]
        else:
            self.mapped[instruction] = self.mapped[kernel.end].operands[instruction["index"]]

    def _emit_kernel(self, kernel: _Joined) -> None:
        builder, end = self.builder, kernel.end
        builder.source, builder.made_by = end.source, (*end.made_by, "fuse-attention")
        inputs, hint = [self.mapped[i] for i in kernel.inputs], end.hint or "attention"
        made = builder.emit("fusion", *inputs, kind="kOutput", calls=kernel.body, hint=hint)
        elements = self.kernels[id(kernel)] = tuple_elements(builder, made)
        own = len(elements) - len(kernel.further)
        self.mapped[end] = builder.tuple(elements[:own]) if isinstance(end.shape, TupleShape) else elements[0]
        if not isinstance(kernel.nest.shape, TupleShape) and kernel.further:
            self.mapped[kernel.nest] = elements[own]


def _has(instruction: Instruction, opcode: str) -> bool:
    """Whether a kernel is, or contains, an op."""
    if instruction.opcode == "fusion":
        return any(i.opcode == opcode for i in instruction["calls"].instructions)
    return instruction.opcode == opcode


def _source(instruction: Instruction) -> Instruction:
    while instruction.opcode in THROUGH:
        instruction = instruction.operands[0]
    return instruction


class _Search:
    """Looks for attention in one computation."""

    def __init__(self, computation: Computation, target: Target):
        self.computation, self.target = computation, target
        self.users = computation.users()
        self.order = {i: k for k, i in enumerate(computation.instructions)}
        self.ends: set[Instruction] = set()  # members of the kernels found so far

    def find(self, second: Instruction) -> _Joined | None:
        """The kernel with `second` as its last contraction, if a row nest and a contraction precede it."""
        if not _has(second, "dot") or _has(second, "reduce"):
            return None
        for operand in second.operands:
            nest = _source(operand)
            if nest.opcode != "fusion" or not _has(nest, "reduce") or _has(nest, "dot"):
                continue
            for inner in nest.operands:
                first = _source(inner)
                if not _has(first, "dot") or _has(first, "reduce"):
                    continue
                for end in (self._transposing(second), second):
                    if end is not None and (found := self._joined(first, nest, second, end)) is not None:
                        return found
        return None

    def _joined(self, first: Instruction, nest: Instruction, second: Instruction, end: Instruction) -> _Joined | None:
        """The kernel of these instructions and everything between them; `end`: `second`, or the transpose of its
        result."""
        parts: set[Instruction] = {first, nest, *_made_of_nothing(nest)}
        if not self._only_for(first, {nest}, parts):
            return None
        if end is not second and not self._only_for(second, {end}, parts):
            return None
        if self._leads_back((second, end), nest):
            return None
        further = self._further(nest, {second, end}, parts)
        for contraction in (first, second):
            for operand in contraction.operands:
                parts |= self._moved(operand, contraction)
        body, inputs = _body(end, nest, further, parts)
        if not self.target.can_fuse(body):
            return None
        return _Joined(end, nest, further, body, inputs)

    def _only_for(self, instruction: Instruction, readers: set[Instruction], parts: set[Instruction]) -> bool:
        """Whether only `readers` read a value, directly or through reshapes, which are added to `parts`."""
        users = self.users[instruction]
        if instruction is self.computation.root or not users:
            return False
        parts.add(instruction)
        return all(u in readers or (u.opcode in THROUGH and self._only_for(u, readers, parts)) for u in users)

    def _further(self, nest: Instruction, readers: set[Instruction], parts: set[Instruction]) -> list[int]:
        """Indices of the nest's outputs with readers other than `readers`. Instructions in between are added to
        `parts`."""
        several = isinstance(nest.shape, TupleShape)
        further = []
        for output in self.users[nest] if several else [nest]:
            if not self._only_for(output, readers, set()):
                further.append(output["index"] if several else 0)
            parts |= self._between(output, readers)
        return sorted(set(further))

    def _between(self, output: Instruction, readers: set[Instruction]) -> set[Instruction]:
        """The path from an output to `readers` through reshapes, including the output."""
        found = {output}
        for user in self.users[output]:
            if user.opcode in THROUGH and not readers.isdisjoint(self._readers(user)):
                found |= self._between(user, readers)
        return found

    def _readers(self, value: Instruction) -> set[Instruction]:
        readers: set[Instruction] = set()
        for user in self.users[value]:
            readers |= self._readers(user) if user.opcode in THROUGH else {user}
        return readers

    def _transposing(self, second: Instruction) -> Instruction | None:
        """The only reader of a result, if it is a transpose that preserves rows of features."""
        readers = self._readers(second)
        if len(readers) != 1 or isinstance(second.shape, TupleShape):
            return None
        (reader,) = readers
        last = reader["calls"].root if reader.opcode == "fusion" else reader
        if last.opcode != "transpose" or last["dimensions"][-1] != len(last.dims) - 1:
            return None
        return reader

    def _moved(self, operand: Instruction, contraction: Instruction) -> set[Instruction]:
        """A transpose that only a contraction reads, and the reshapes in between: packing reads it in memory order.
        Contiguous runs must remain runs of rows or columns."""
        source = operand
        while source.opcode == "reshape":
            source = source.operands[0]
        between: set[Instruction] = set()
        if source.opcode != "transpose" or not self._only_for(source, {contraction}, between):
            return set()
        if source in self.ends:
            return set()  # the kernel before this one writes its result in that order
        rank = len(source.dims)
        return between if source["dimensions"].index(rank - 1) >= rank - 2 else set()

    def _leads_back(self, readers: tuple[Instruction, Instruction], nest: Instruction) -> bool:
        """Whether `readers` depend on the nest through other kernels, which prevents fusion."""
        seen: set[Instruction] = set()
        stack = [o for r in readers for o in r.operands if _source(o) is not nest and _source(o) not in readers]
        while stack:
            instruction = stack.pop()
            if instruction is nest:
                return True
            if instruction not in seen and self.order[instruction] > self.order[nest]:
                seen.add(instruction)
                stack.extend(instruction.operands)
        return False


def _made_of_nothing(nest: Instruction) -> set[Instruction]:
    """Operands of a nest that are computed only from indices and constants (masks), which are cheaper to compute than
    to read."""
    return {o for o in nest.operands if o.opcode == "fusion" and not o.operands}


def _body(end: Instruction, nest, further: list[int], parts) -> tuple[Computation, list[Instruction]]:
    """(the computation of the parts and `end`, with further outputs of the nest; its operands)."""
    order: list[Instruction] = []
    seen: set[Instruction] = set()
    inputs: dict[Instruction, None] = {}

    def visit(instruction: Instruction) -> None:
        for operand in instruction.operands:
            if operand in parts and operand not in seen:
                seen.add(operand)
                visit(operand)
            elif operand not in parts:
                inputs[operand] = None
        order.append(instruction)

    visit(end)
    builder = Builder("fused_attention")
    values: dict[Instruction, Instruction] = {}
    for value in inputs:
        values[value] = builder.parameter(value.shape, value.hint and f"p_{value.hint}")
    elements: dict[Instruction, list[Instruction]] = {}
    for instruction in order:
        if instruction.opcode == "get-tuple-element":
            values[instruction] = elements[instruction.operands[0]][instruction["index"]]
            continue
        operands = [values[o] for o in instruction.operands]
        if instruction.opcode == "fusion":
            elements[instruction] = _inlined(builder, instruction["calls"], operands)
            values[instruction] = elements[instruction][0]
        else:
            values[instruction] = builder.add(instruction.with_operands(tuple(operands)))
            elements[instruction] = [values[instruction]]
    outputs = elements[end] + [elements[nest][k] for k in further]
    root = outputs[0] if len(outputs) == 1 else builder.tuple(outputs)
    return builder.finish(root), list(inputs)


def _inlined(builder: Builder, computation: Computation, arguments) -> list[Instruction]:
    """The flattened outputs of a computation."""
    mapped = dict(zip(computation.parameters, arguments, strict=True))
    builder.add_copies([i for i in computation.instructions if i.opcode != "tuple"], mapped)
    return [e for o in computation.outputs() for e in tuple_elements(builder, mapped[o])]
