"""Forward mode: from a computation to one that also computes the tangents of its outputs.

The original instructions are unchanged; each is followed by the instructions of its tangent, from the op's entry. A
zero tangent is `None`, without instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloom.compiler.transforms import reduction, windows
from hloom.compiler.transforms.inline import inline_calls
from hloom.compiler.transforms.rules import load_rules
from hloom.ir.build import Builder, Value, tuple_elements
from hloom.ir.errors import DifferentiationError
from hloom.ir.module import Computation, Instruction
from hloom.ir.ops import OPS
from hloom.ir.rewrite import sweep
from hloom.ir.types import INEXACT, Shape, TupleShape


def _none_taken(instruction: Instruction) -> Value | None:
    return None


class SharingBuilder(Builder):
    """A builder for rules, which make many similar requests: it creates each splat of a Python number once, and infers
    the shape of an op without attributes once per list of operand shapes.

    linear: the linear instructions being transposed, for rules of ops whose operands are tuples of linear and other
    values. take_cotangent: removes and returns the sum of an instruction's cotangents so far, for rules that add to it
    in place. repeated: whether the computation runs in a loop, where to add a whole array costs its size in each step.
    lasting: the parameters that a later part of the program can still read as they are, None for all values: in the
    body of a loop, those that are the same in each step of all loops around it.
    """

    def __init__(self, name: str):
        super().__init__(name)
        self.linear: dict[Instruction, None] = {}
        self.take_cotangent: Callable[[Instruction], Value | None] = _none_taken
        self.repeated = False
        self.lasting: set[Instruction] | None = set()
        self._splats: dict[tuple[str, Shape], Instruction] = {}
        self._inferred: dict[tuple, Shape | TupleShape] = {}

    def emit(self, opcode: str, *operands: Instruction, shape=None, hint: str = "", **attributes) -> Instruction:
        if attributes or shape is not None:
            return super().emit(opcode, *operands, shape=shape, hint=hint, **attributes)
        key = (opcode, *[o.shape for o in operands])
        result = self._inferred.get(key)
        if result is None:
            instruction = super().emit(opcode, *operands, hint=hint)
            self._inferred[key] = instruction.shape
            return instruction
        instruction = Instruction(opcode, operands, result, None, hint, self.source, self.made_by)
        self.instructions.append(instruction)
        return instruction

    def lasts(self, instruction: Instruction) -> bool:
        return self.lasting is None or instruction in self.lasting

    def splat(self, value, shape: Shape) -> Instruction:
        if type(value) not in (int, float):
            return super().splat(value, shape)
        key = (repr(value), shape)  # repr: 0.0 and -0.0 are equal
        found = self._splats.get(key)
        if found is None:
            found = self._splats[key] = super().splat(value, shape)
        return found


def _without_derivative(instruction: Instruction, reason: str) -> DifferentiationError:
    opcode = instruction.opcode
    what, repair = f"'{opcode}'", "use lax.stop_gradient on its operands if it is to count as constant"
    if opcode == "custom-call":
        what = f"the custom-call '{instruction['custom_call_target']}'"
        repair = "call it in a function with a rule of its own (hl.custom_jvp, hl.custom_vjp), or use lax.stop_gradient"
    return DifferentiationError(
        f"the derivative of {what} was asked for",
        f"{instruction.shape!r} {opcode} has none: {reason}",
        repair,
        source=instruction.source,
    )


def has_tangent(shape) -> bool:
    """Floats and complex numbers have tangents, integers and booleans do not; tuples if an element does."""
    if isinstance(shape, TupleShape):
        return any(has_tangent(e) for e in shape.elements)
    return shape.dtype in INEXACT


class Pushforward:
    """Computes tangents, instruction by instruction. It is the `build` argument of the ops' derivative rules.

    primal: the Value of the instruction whose rule is running. tangents: the Value of each nonzero tangent, by
    instruction; for tuples a list with None for zero elements. linear: the tangents will be transposed or split off, so
    no instruction may compute both primal values and tangents. replaced: replacements of instructions that a rule
    computes differently.
    """

    def __init__(self, builder: Builder, linear: bool = False):
        load_rules()
        self.builder = builder
        self.linear = linear
        self.primal: Value | None = None
        self.replaced: dict[Instruction, Instruction] = {}
        self.tangents: dict[Instruction, Value | list] = {}
        self._values: dict[Instruction, Value] = {}

    def value(self, instruction: Instruction) -> Value:
        found = self._values.get(instruction)
        if found is None:
            found = self._values[instruction] = Value(self.builder, instruction)
        return found

    def replace(self, instruction: Instruction, values) -> None:
        """Replaces an instruction's results by other Values (a list for a tuple) from here on; for rules."""
        if not isinstance(values, list):
            self.replaced[instruction] = self._fresh(values, set())
            return
        seen: set[Instruction] = set()
        self.replaced[instruction] = self.builder.tuple([self._fresh(v, seen) for v in values])

    def _fresh(self, value: Value, seen: set[Instruction]) -> Instruction:
        """A value without a tangent: a value that a rule passes through would otherwise keep its old tangent."""
        found = value.instruction
        if found in seen or found in self.tangents or found.opcode == "parameter":
            found = value.op("copy").instruction
        seen.add(found)
        return found

    def seed(self, primal: Instruction, tangent: Instruction) -> None:
        self.tangents[primal] = self.value(tangent)

    def push(self, instruction: Instruction) -> None:
        """Computes the tangent of an instruction whose operands have theirs."""
        known = self.tangents
        if known.keys().isdisjoint(instruction.operands):
            return
        tangents = [known.get(o) for o in instruction.operands]
        opcode = instruction.opcode
        if opcode == "tuple":
            known[instruction] = tangents
            return
        if opcode == "get-tuple-element":
            elements = tangents[0]
            assert isinstance(elements, list)
            if elements[instruction["index"]] is not None:
                known[instruction] = elements[instruction["index"]]
            return
        if not has_tangent(instruction.shape):
            return
        rule = OPS[opcode].jvp
        if not rule:
            raise _without_derivative(instruction, rule.reason)
        builder, before = self.builder, self.primal
        self.primal = self.value(instruction)
        outer = builder.source, builder.made_by
        builder.source, builder.made_by = instruction.source, (*instruction.made_by, "jvp")
        result = rule(self, instruction, [self.value(o) for o in instruction.operands], tangents)
        builder.source, builder.made_by = outer
        self.primal = before
        if result is not None:
            known[instruction] = result

    def reduction_jvp(self, instruction: Instruction, primals, tangents):
        """The tangent of a reduce: see `hloom.compiler.transforms.reduction`."""
        return reduction.reduction_jvp(self, instruction, primals, tangents)

    def reduce_window_jvp(self, instruction: Instruction, primals):
        """The tangent of a reduce-window: see `hloom.compiler.transforms.windows`."""
        return windows.reduce_window_jvp(self, instruction, primals)

    def tangent(self, instruction: Instruction) -> Instruction | None:
        """The tangent of an array; None if zero."""
        found = self.tangents.get(instruction)
        return found.instruction if isinstance(found, Value) else None


def push_computation(builder: Builder, computation: Computation, nonzero: Sequence[bool], linear: bool = False):
    """Emits the computation and its tangents into `builder`, whose parameters become those of the computation.

    linear: see `Pushforward`. Returns (outputs, Pushforward, tangent parameters); the tangent parameters follow the
    computation's own.
    """
    computation = inline_calls(computation)
    builder.parameters = list(computation.parameters)
    builder.instructions = list(computation.parameters)
    pushforward = Pushforward(builder, linear)
    added = []
    for parameter, wanted in zip(computation.parameters, nonzero, strict=True):
        if not wanted:
            continue
        if not has_tangent(parameter.shape) or not isinstance(parameter.shape, Shape):
            raise DifferentiationError(
                f"the derivative of '{computation.name}' with respect to parameter {parameter['index']} was requested",
                f"{parameter.shape!r} has no tangents",
                "differentiate with respect to floating-point arrays only",
                source=parameter.source,
            )
        hint = f"t_{parameter.hint}" if parameter.hint else ""
        added.append(builder.parameter(parameter.shape, hint, parameter.source))
        pushforward.seed(parameter, added[-1])
    replaced = pushforward.replaced
    for instruction in computation.instructions:
        if instruction.opcode == "parameter":
            continue
        if replaced and not replaced.keys().isdisjoint(instruction.operands):
            _push_copy(pushforward, instruction)
            continue
        builder.add(instruction)
        pushforward.push(instruction)
    mark = len(builder.instructions)
    root = computation.root
    if root in replaced:
        root = replaced[root]
        _hand_over(pushforward, computation.root, root)
    outputs = tuple_elements(builder, root)
    for instruction in builder.instructions[mark:]:
        pushforward.push(instruction)
    return outputs, pushforward, added


def _hand_over(pushforward: Pushforward, old: Instruction, new: Instruction) -> None:
    """Assigns an instruction's tangent to its replacement, and those of tuple elements to theirs."""
    tangents = pushforward.tangents
    tangent = tangents.get(old)
    if tangent is None or new in tangents:
        return
    tangents[new] = tangent
    if new.opcode == "tuple" and isinstance(tangent, list):
        for element, value in zip(new.operands, tangent, strict=True):
            if value is not None:
                tangents[element] = value


def _push_copy(pushforward: Pushforward, instruction: Instruction) -> None:
    """Pushes an instruction some of whose operands were replaced."""
    replaced, tangents = pushforward.replaced, pushforward.tangents
    operands = tuple([replaced.get(o, o) for o in instruction.operands])
    for old, new in zip(instruction.operands, operands, strict=True):
        if new is not old:
            _hand_over(pushforward, old, new)
    if instruction.opcode == "get-tuple-element" and operands[0].opcode == "tuple":
        index = instruction["index"]
        element = replaced[instruction] = operands[0].operands[index]
        given = tangents.get(operands[0])
        if isinstance(given, list) and given[index] is not None:
            tangents[element] = given[index]
        return
    copy = pushforward.builder.add(instruction.with_operands(operands))
    pushforward.push(copy)
    replaced[instruction] = replaced.get(copy, copy)
    if copy in tangents:
        tangents[instruction] = tangents[copy]


def refuse_forward_mode(computation: Computation) -> None:
    """Raises DifferentiationError if a tangent remains that can only be transposed (of a custom_vjp function)."""
    for instruction in computation.instructions:
        if instruction.opcode == "call":
            rule = instruction.attributes.get("rule")
            if rule is not None and rule.only_transposed:
                raise rule.forward_mode_error(instruction)


def jvp(computation: Computation, nonzero: Sequence[bool], of: Sequence[int] | None = None) -> Computation:
    """The computation (parameters, tangents) -> (outputs, output tangents), the result a tuple.

    nonzero: for each parameter whether it has a tangent; one tangent parameter is added for each that has.
    of: the outputs whose tangents are returned, by default all. Only those with inexact dtypes have one; zero ones
    become arrays of zeros. Raises DifferentiationError, with the user's line, for an op without a derivative.
    """
    builder = SharingBuilder(f"{computation.name}_jvp")
    outputs, pushforward, _ = push_computation(builder, computation, nonzero)
    tangents = []
    for output in outputs if of is None else [outputs[k] for k in of]:
        if has_tangent(output.shape):
            tangent = pushforward.tangent(output)
            tangents.append(builder.splat(0, output.shape) if tangent is None else tangent)
    made = sweep(builder.finish(builder.tuple([*outputs, *tangents])))
    refuse_forward_mode(made)
    return made
