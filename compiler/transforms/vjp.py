"""Reverse mode: forward mode, then its linear part transposed.

The tangent instructions of forward mode are linear in the tangents. In reverse order, each propagates the cotangent of
its result to its linear operands, by the op's transpose rule; cotangents of values with several uses are added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hloom.compiler.transforms.inline import inline_calls
from hloom.compiler.transforms.jvp import SharingBuilder, has_tangent, push_computation
from hloom.compiler.transforms.rules import load_rules
from hloom.ir.build import Builder, Placed, Value
from hloom.ir.errors import DifferentiationError
from hloom.ir.module import Computation, Instruction
from hloom.ir.ops import OPS
from hloom.ir.rewrite import sweep
from hloom.ir.types import TupleShape


def gradient(computation: Computation, wrt: Sequence[int], by: Sequence[int] | None = None) -> Computation:
    """The computation (parameters, cotangents) -> (outputs, gradients), the result a tuple.

    wrt: the parameters to differentiate with respect to; the gradients are in this order.
    by: the outputs to differentiate, by default all; the cotangents of the others are zero.
    One cotangent parameter is added for each of them with an inexact dtype; it has that output's shape.
    Raises DifferentiationError, with the user's line, for an op without a derivative.
    """
    builder, outputs, cotangents, gradients, _ = _pulled(computation, wrt, by, f"{computation.name}_gradient")
    parameters = [*computation.parameters, *cotangents]
    root = builder.tuple([*outputs, *gradients])
    return sweep(Computation(builder.name, parameters, builder.instructions, root))


def vjp(
    computation: Computation, wrt: Sequence[int], by: Sequence[int] | None = None
) -> tuple[Computation, Computation]:
    """Reverse mode as two computations, the second of which can run later and repeatedly.

    forward: parameters -> (outputs, residuals); backward: (residuals, cotangents) -> gradients. Both return tuples.
    Arguments, cotangents and errors are as in `gradient`.
    """
    builder, outputs, cotangents, gradients, late = _pulled(computation, wrt, by, f"{computation.name}_vjp")
    return _split(builder, computation, outputs, cotangents, gradients, late, "backward")


def linearize(
    computation: Computation, wrt: Sequence[int], lasting: set[Instruction] | None = None
) -> tuple[Computation, Computation]:
    """Forward mode as two computations, the second of which is linear.

    forward: parameters -> (outputs, residuals); linear: (residuals, tangents) -> output tangents. Both return tuples.
    The tangents are those of the parameters `wrt`; the output tangents those of the outputs with inexact dtypes.
    lasting: see `SharingBuilder`.
    """
    builder = SharingBuilder(f"{computation.name}_linearize")
    builder.lasting = lasting
    order = sorted(set(wrt))
    outputs, pushforward, tangents = push_computation(builder, computation, _chosen(computation, wrt), linear=True)
    late = _depending(builder.instructions, tangents)
    results = []
    for output in outputs:
        if has_tangent(output.shape):
            results.append(pushforward.tangent(output) or builder.splat(0, output.shape))
    by_parameter = dict(zip(order, tangents, strict=True))
    return _split(builder, computation, outputs, [by_parameter[k] for k in wrt], results, late, "linear")


def transposed(
    computation: Computation, linear: Sequence[bool], summed: Sequence[bool] = (), repeated: bool = False
) -> Computation:
    """The computation (other parameters, cotangents) -> (cotangents of the linear parameters), the result a tuple.

    linear: for each parameter whether the computation is linear in it, jointly. One cotangent parameter
    is added for each output with an inexact dtype, and after those one for each linear parameter that `summed` has
    marked, to which its cotangent is added. repeated: whether it runs in a loop. Raises DifferentiationError, with the
    user's line, for an instruction that is not linear.
    """
    computation = inline_calls(computation)
    builder = SharingBuilder(f"{computation.name}_transposed")
    builder.repeated = repeated
    taken = [p for p, is_linear in zip(computation.parameters, linear, strict=True) if is_linear]
    root, held = _held_back(builder, computation, taken)
    cotangents = Cotangents()
    _add_results(builder, root, held, cotangents)
    if root.opcode == "tuple":
        held.pop(root, None)
    for parameter, is_summed in zip(taken, summed, strict=False):
        if is_summed:
            cotangents.add(parameter, Value(builder, builder.parameter(parameter.shape)))
    transpose(builder, held, cotangents)
    results = []
    for parameter in taken:
        found = cotangents.of(parameter)
        results.append(builder.splat(0, parameter.shape) if found is None else found.instruction)
    return sweep(builder.finish(builder.tuple(results)))


def _held_back(
    builder: Builder, computation: Computation, taken: list[Instruction]
) -> tuple[Instruction, dict[Instruction, None]]:
    """Emits instructions that do not depend on the linear parameters. Returns the copy of the root, and the linear
    instructions in order, which are not emitted."""
    mapped: dict[Instruction, Instruction] = {p: p for p in taken}
    held: dict[Instruction, None] = dict.fromkeys(taken)
    for parameter in computation.parameters:
        if parameter not in held:
            mapped[parameter] = builder.parameter(parameter.shape, parameter.hint, parameter.source)
    for instruction in computation.instructions:
        if instruction in mapped:
            continue
        operands = tuple([mapped[o] for o in instruction.operands])
        same = all(a is b for a, b in zip(operands, instruction.operands, strict=True))
        copy = mapped[instruction] = instruction if same else instruction.with_operands(operands)
        if held.keys().isdisjoint(operands):
            builder.add(copy)
        else:
            held[copy] = None
    return mapped[computation.root], held


def _add_results(builder: Builder, root: Instruction, held: Mapping[Instruction, None], cotangents: Cotangents) -> None:
    """Adds a parameter for the cotangent of each result with an inexact dtype."""
    if root.opcode == "tuple":
        results: list[tuple[Instruction, int | None, Any]] = [(o, None, o.shape) for o in root.operands]
    elif isinstance(root.shape, TupleShape):
        results = [(root, k, shape) for k, shape in enumerate(root.shape.elements)]
    else:
        results = [(root, None, root.shape)]
    for result, element, shape in results:
        if has_tangent(shape):
            parameter = builder.parameter(shape)
            if result in held:
                cotangents.add(result, Value(builder, parameter), element)


def _chosen(computation: Computation, wrt: Sequence[int]) -> list[bool]:
    chosen = set(wrt)
    return [k in chosen for k in range(len(computation.parameters))]


def _pulled(computation: Computation, wrt: Sequence[int], by: Sequence[int] | None, name: str):
    """(builder, outputs, cotangent parameters, gradients, the instructions created by transposition)."""
    builder = SharingBuilder(name)
    builder.lasting = None
    outputs, pushforward, tangents = push_computation(builder, computation, _chosen(computation, wrt), linear=True)
    linear = _depending(builder.instructions, tangents)
    parameters: list[Instruction] = []
    cotangents = Cotangents()
    start = len(builder.instructions)
    for output in outputs if by is None else [outputs[k] for k in by]:
        if has_tangent(output.shape):
            index = {"index": len(computation.parameters) + len(parameters)}
            hint = f"ct_{output.hint}" if output.hint else ""
            parameter = Instruction("parameter", (), output.shape, index, hint, output.source, ("transpose",))
            parameters.append(builder.add(parameter))
            tangent = pushforward.tangent(output)
            if tangent is not None:
                cotangents.add(tangent, Value(builder, parameter))
    transpose(builder, linear, cotangents)
    by_parameter = dict(zip(sorted(set(wrt)), tangents, strict=True))
    gradients = []
    for k in wrt:
        found = cotangents.of(by_parameter[k])
        gradients.append(builder.splat(0, computation.parameters[k].shape) if found is None else found.instruction)
    return builder, outputs, parameters, gradients, set(builder.instructions[start:])


def _depending(instructions: Iterable[Instruction], roots: Iterable[Instruction]) -> dict[Instruction, None]:
    """The instructions that depend on the roots, the roots included, in order."""
    found = dict.fromkeys(roots)
    for instruction in instructions:
        if not found.keys().isdisjoint(instruction.operands):
            found[instruction] = None
    return found


class Cotangents:
    """The accumulated cotangents of instructions: Values, for tuples a list with None for zero elements.

    Sparse cotangents are added last, so that they update the sum of the rest in place.
    """

    def __init__(self):
        self._sums: dict[tuple[Instruction, int | None], Value] = {}
        self._placed: dict[tuple[Instruction, int | None], list[Placed]] = {}
        self._elements: dict[Instruction, set[int]] = {}

    def add(self, instruction: Instruction, value: Value, index: int | None = None) -> None:
        """index: of the element, for a tuple."""
        if index is not None:
            self._elements.setdefault(instruction, set()).add(index)
        key = (instruction, index)
        if isinstance(value, Placed):
            self._placed.setdefault(key, []).append(value)
        else:
            before = self._sums.get(key)
            self._sums[key] = value if before is None else before + value

    def of(self, instruction: Instruction) -> Any:
        """The sum, a Value or such a list; None if nothing was added."""
        if isinstance(instruction.shape, TupleShape):
            if instruction not in self._elements:
                return None
            return [self._sum((instruction, k)) for k in range(len(instruction.shape.elements))]
        return self._sum((instruction, None))

    def take(self, instruction: Instruction) -> Value | None:
        """The sum so far of an array, which is removed: a rule adds to it, as the steps of a loop do, and returns it
        with its own share."""
        key = (instruction, None)
        self._sum(key)
        return self._sums.pop(key, None)

    def _sum(self, key: tuple[Instruction, int | None]) -> Value | None:
        for placed in self._placed.pop(key, ()):
            before = self._sums.get(key)
            self._sums[key] = placed if before is None else placed.add_to(before)
        return self._sums.get(key)


def transpose(builder: SharingBuilder, linear: dict[Instruction, None], cotangents: Cotangents) -> None:
    """Walks linear instructions in reverse, adding the cotangents of their operands to `cotangents`.

    linear: the linear instructions in program order, including the tangent parameters. cotangents: given for the
    results.
    """
    load_rules()
    outer = builder.source, builder.made_by
    builder.linear, builder.take_cotangent = linear, cotangents.take
    for instruction in reversed(linear):
        cotangent = cotangents.of(instruction)
        if cotangent is None or instruction.opcode == "parameter":
            continue
        builder.source, builder.made_by = instruction.source, (*instruction.made_by, "transpose")
        opcode = instruction.opcode
        if opcode == "get-tuple-element":
            cotangents.add(instruction.operands[0], cotangent, instruction["index"])
            continue
        if opcode == "tuple":
            results = cotangent
        else:
            rule = OPS[opcode].transpose
            if not rule:
                raise DifferentiationError(
                    f"the gradient through '{opcode}' was asked for",
                    f"{instruction.shape!r} {opcode} cannot be transposed: {rule.reason}",
                    "use jvp, or lax.stop_gradient if it is to count as constant",
                    source=instruction.source,
                )
            operands = [None if o in linear else Value(builder, o) for o in instruction.operands]
            if (operands.count(None) > 1 and opcode in _PRODUCTS) or (opcode == "divide" and operands[1] is None):
                raise DifferentiationError(
                    f"the transpose of '{opcode}' was asked for",
                    f"{instruction.shape!r} {opcode} is not linear in its operands together: more than one depends on "
                    "the arguments, or the divisor does",
                    "transpose a linear function, or differentiate this one with vjp",
                    source=instruction.source,
                )
            results = rule(builder, instruction, cotangent, operands)
        for operand, result in zip(instruction.operands, results, strict=True):
            if result is None or operand not in linear:
                continue
            if isinstance(operand.shape, TupleShape):
                for k, element in enumerate(result):
                    if element is not None:
                        cotangents.add(operand, element, k)
            else:
                cotangents.add(operand, result)
    builder.source, builder.made_by = outer


_PRODUCTS = ("multiply", "dot", "convolution")

# Cheaper to recompute than to store: they have no data, or less than their result.
_REMADE = ("constant", "iota", "broadcast")


def _split(builder, computation, outputs, inputs, results, late, name: str) -> tuple[Computation, Computation]:
    """Splits the builder's instructions in two: forward computes the outputs and everything that `results` need from
    the early part.

    inputs: the parameters of the second computation; late: the instructions that belong to it.
    """
    second = Builder(f"{computation.name}_{name}")
    residuals: dict[Instruction, Instruction] = {}
    needed = []
    given = set(inputs)
    stack, seen = list(results), set()
    while stack:
        instruction = stack.pop()
        if instruction in seen or instruction in given:
            continue
        seen.add(instruction)
        if instruction in late or instruction.opcode in _REMADE:
            needed.append(instruction)
            stack.extend(instruction.operands)
        else:
            residuals[instruction] = instruction
    order = {i: k for k, i in enumerate(builder.instructions)}
    mapped: dict[Instruction, Instruction] = {}
    kept = sorted(residuals, key=order.__getitem__)
    for residual in kept:
        mapped[residual] = second.parameter(residual.shape, residual.hint, residual.source)
    for parameter in inputs:
        mapped[parameter] = second.parameter(parameter.shape, parameter.hint, parameter.source)
    for instruction in sorted(needed, key=order.__getitem__):
        operands = tuple(mapped[o] for o in instruction.operands)
        same = all(a is b for a, b in zip(operands, instruction.operands, strict=True))
        mapped[instruction] = second.add(instruction if same else instruction.with_operands(operands))
    backward = second.finish(second.tuple([mapped[r] for r in results]))
    first = Computation(
        f"{computation.name}_forward",
        list(computation.parameters),
        [i for i in builder.instructions if i not in late],
        builder.tuple([*outputs, *kept]),
    )
    first.instructions.append(first.root)
    return sweep(first), backward
