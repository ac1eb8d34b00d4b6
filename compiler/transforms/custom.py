"""Custom rules of calls: differentiation and batching of a `call` with the attribute `rule`.

A rule works on computations, which the front end derives from functions (`hloom.transforms.custom_derivatives`,
`remat`). In all other respects it is an ordinary call: it is evaluated, printed and, when a module is compiled, inlined
as one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloom.compiler.transforms.batch import batch
from hloom.compiler.transforms.flat import elements, lasting
from hloom.compiler.transforms.inline import inline_calls
from hloom.compiler.transforms.jvp import SharingBuilder, has_tangent, jvp, push_computation
from hloom.compiler.transforms.vjp import transposed
from hloom.ir.build import Builder, Value, tuple_elements
from hloom.ir.errors import BatchingError, DifferentiationError
from hloom.ir.module import Computation, Instruction
from hloom.ir.rewrite import sweep
from hloom.ir.types import TupleShape, result_shapes


def inlined(builder: Builder, computation: Computation, operands: Sequence[Value]) -> list[Value]:
    """Inlines a computation into the builder; returns its outputs."""
    root = builder.inline(inline_calls(computation), [v.instruction for v in operands])
    return elements(builder, root)


def packed(instruction: Instruction, results: list):
    """Results of a rule in the instruction's form: a list for a tuple."""
    return results if isinstance(instruction.shape, TupleShape) else results[0]


def output_shapes(instruction: Instruction) -> tuple:
    return result_shapes(instruction.shape)


def as_tuple(computation: Computation) -> Computation:
    """The computation with a tuple as its result."""
    if isinstance(computation.shape, TupleShape):
        return computation
    builder = Builder(computation.name)
    builder.parameters, builder.instructions = list(computation.parameters), list(computation.instructions)
    return builder.finish(builder.tuple([computation.root]))


class Rule:
    """The behaviour of a call under transforms. By default that of its computation."""

    only_transposed = False  # the call represents tangents that cannot be computed, only transposed

    def jvp(self, build, instruction: Instruction, primals, tangents):
        return _pushed_body(build, instruction, primals, tangents)

    def transpose(self, build, instruction: Instruction, cotangent, operands):
        """The computation transposed: it is linear in the operands that are None."""
        linear = [o is None for o in operands]
        made = transposed(instruction["to_apply"], linear)
        given = [o for o in operands if o is not None]
        cotangents = filled(build, instruction, cotangent)
        results = iter(inlined(build, made, [*given, *cotangents]))
        return [next(results) if o is None else None for o in operands]

    def batch(self, build, instruction: Instruction, operands, mapped):
        count = len(output_shapes(instruction))
        made, _ = batch(instruction["to_apply"], mapped, build.size, [True] * count, build.axis_name)
        rule = self.batched(build, list(mapped), count)
        call = operands[0].builder.emit("call", *(v.instruction for v in operands), to_apply=made, rule=rule)
        return packed(instruction, elements(build.builder, call))

    def batched(self, build, mapped: list[bool], count: int) -> Rule:
        """The rule of the call for many batch elements; its `count` results are all mapped."""
        return self


def filled(builder: Builder, instruction: Instruction, cotangent) -> list[Value]:
    """The cotangents of all outputs that have one, with zeros for None."""
    given = cotangent if isinstance(instruction.shape, TupleShape) else [cotangent]
    found = []
    for value, shape in zip(given, output_shapes(instruction), strict=True):
        if has_tangent(shape):
            found.append(Value(builder, builder.splat(0, shape)) if value is None else value)
    return found


def _pushed_body(build, instruction: Instruction, primals, tangents):
    """Inlines the call's instructions, each with its tangent."""
    computation = inline_calls(instruction["to_apply"])
    nonzero = [t is not None for t in tangents]
    builder = SharingBuilder(computation.name)
    builder.lasting = lasting(build.builder, computation, [p.instruction for p in primals])
    outputs, pushforward, _ = push_computation(builder, computation, nonzero, build.linear)
    found = [pushforward.tangent(o) for o in outputs]
    given = [f for f in found if f is not None]
    body = builder.finish(builder.tuple([*outputs, *given]))
    results = inlined(build.builder, body, [*primals, *(t for t in tangents if t is not None)])
    values, made = results[: len(outputs)], iter(results[len(outputs) :])
    build.replace(instruction, values if isinstance(instruction.shape, TupleShape) else values[0])
    return packed(instruction, [None if f is None else next(made) for f in found])


class OtherTangent(Rule):
    """A call (x, value) -> value, in any precision, with the tangent of x: value is the exact x."""

    def jvp(self, build, instruction, primals, tangents):
        tangent = tangents[0]
        return None if tangent is None else tangent.convert(instruction.dtype)


# --- custom_jvp ---------------------------------------------------------------------------------------------------


class CustomJvp(Rule):
    """make(nonzero) -> the computation (operands, tangents of those with an inexact dtype that are nonzero)
    -> (outputs, tangents of those with an inexact dtype). The last `captured` operands are not arguments of the rule:
    they are values that the function closes over, and have no derivative."""

    def __init__(self, name: str, make: Callable[[tuple[bool, ...]], Computation], captured: int = 0):
        self.name, self.make, self.captured = name, make, captured

    def jvp(self, build, instruction, primals, tangents):
        refuse_captured(self, instruction, tangents, "custom_jvp")
        nonzero = tuple([t is not None for t in tangents])
        made = self.make(nonzero)
        results = inlined(build.builder, made, [*primals, *(t for t in tangents if t is not None)])
        shapes = output_shapes(instruction)
        build.replace(instruction, packed(instruction, results[: len(shapes)]))
        found = iter(results[len(shapes) :])
        return packed(instruction, [next(found) if has_tangent(s) else None for s in shapes])

    def batched(self, build, mapped, count):
        size, axis_name = build.size, build.axis_name

        def make(nonzero):
            made = self.make(nonzero)
            flags = [*mapped, *(m for m, n in zip(mapped, nonzero, strict=True) if n)]
            return batch(made, flags, size, [True] * len(made.outputs()), axis_name)[0]

        return CustomJvp(self.name, make, self.captured)


def refuse_captured(rule, instruction: Instruction, tangents, what: str) -> None:
    if rule.captured and any(t is not None for t in tangents[-rule.captured :]):
        raise DifferentiationError(
            f"the derivative of the {what} function '{rule.name}' with respect to a captured value was asked for",
            "the rule only covers the arguments",
            "pass the value as an argument of the function",
            source=instruction.source,
        )


# --- custom_vjp ---------------------------------------------------------------------------------------------------


class CustomVjp(Rule):
    """forward() -> the computation (operands) -> (outputs, residuals); backward() -> the computation (residuals,
    cotangents of the outputs with an inexact dtype) -> (a cotangent for each operand with an inexact dtype that is no
    captured one). `captured`: see `CustomJvp`."""

    # For rules that depend on the perturbed operands: the rule for these flags, one per operand.
    specialize: Callable[[tuple[bool, ...]], CustomVjp] | None = None
    # For rules that depend on zero cotangents: `backward` accepts a flag for each cotangent.
    asks_zeros = False

    def __init__(self, name: str, forward: Callable[[], Computation], backward: Callable[..., Computation], captured=0):
        self.name, self.forward, self.backward, self.captured = name, forward, backward, captured

    def jvp(self, build, instruction, primals, tangents):
        refuse_captured(self, instruction, tangents, "custom_vjp")
        if self.specialize is not None:
            rule = self.specialize(tuple([t is not None for t in tangents]))
            return rule.jvp(build, instruction, primals, tangents)
        builder = build.builder
        shapes = output_shapes(instruction)
        results = inlined(builder, self.forward(), primals)
        residuals = results[len(shapes) :]
        build.replace(instruction, packed(instruction, results[: len(shapes)]))
        differentiable = [s for s in shapes if has_tangent(s)]
        if not differentiable:
            return packed(instruction, [None] * len(shapes))
        count = len(primals) - self.captured
        nonzero = [t is not None for p, t in zip(primals[:count], tangents, strict=False) if has_tangent(p.shape)]
        given = [*residuals, *(t for t in tangents[:count] if t is not None)]
        stub = Builder(f"{self.name}_tangent")
        parameters = [stub.parameter(v.shape) for v in given]
        target = f"the forward-mode derivative of the custom_vjp function {self.name}"
        made = stub.emit("custom-call", *parameters, shape=TupleShape(differentiable), custom_call_target=target)
        tangent = VjpTangent(self, nonzero, len(residuals))
        call = builder.emit("call", *(v.instruction for v in given), to_apply=stub.finish(made), rule=tangent)
        found = iter(elements(builder, call))
        return packed(instruction, [next(found) if has_tangent(s) else None for s in shapes])

    def batched(self, build, mapped, count):
        size, axis_name = build.size, build.axis_name
        inexact: list[bool] = []

        def forward():
            made = self.forward()
            inexact[:] = [has_tangent(p.shape) for p in made.parameters]
            return batch(made, mapped, size, [True] * len(made.outputs()), axis_name)[0]

        def backward(*zeros):
            made = self.backward(*zeros)
            results = len(made.outputs())
            flags = [True] * len(made.parameters)
            made = as_tuple(batch(made, flags, size, [True] * results, axis_name)[0])
            if not inexact:
                forward()
            own = [m for m, i in zip(mapped, inexact, strict=True) if i][:results]
            # The cotangent of an operand shared by all batch elements is the sum of their cotangents.
            builder = Builder(made.name)
            builder.parameters, builder.instructions = list(made.parameters), list(made.instructions)
            outputs = [v if m else v.sum((0,)) for v, m in zip(elements(builder, made.root), own, strict=True)]
            return builder.finish(builder.tuple([v.instruction for v in outputs]))

        many = CustomVjp(self.name, forward, backward, self.captured)
        many.asks_zeros = self.asks_zeros
        specialize = self.specialize
        if specialize is not None:
            many.specialize = lambda flags: specialize(flags).batched(build, mapped, count)
        return many


class VjpTangent(Rule):
    """The rule of the call that represents the tangents of a custom_vjp function: it can only be transposed."""

    only_transposed = True

    def __init__(self, rule: CustomVjp, nonzero: list[bool], residuals: int):
        self.rule, self.nonzero, self.residuals = rule, nonzero, residuals

    def forward_mode_error(self, instruction: Instruction) -> DifferentiationError:
        return DifferentiationError(
            f"forward-mode differentiation (jvp) of the custom_vjp function '{self.rule.name}' was asked for",
            "it has a rule for reverse mode only",
            "use grad, vjp or jacrev, or write the rule with custom_jvp",
            source=instruction.source,
        )

    def jvp(self, build, instruction, primals, tangents):
        raise self.forward_mode_error(instruction)

    def transpose(self, build, instruction, cotangent, operands):
        cotangents = filled(build, instruction, cotangent)
        residuals = operands[: self.residuals]
        given = cotangent if isinstance(instruction.shape, TupleShape) else [cotangent]
        zeros = [tuple([value is None for value in given])] if self.rule.asks_zeros else []
        results = inlined(build, self.rule.backward(*zeros), [*residuals, *cotangents])
        wanted = [r for r, n in zip(results, self.nonzero, strict=True) if n]
        found = iter(wanted)
        return [None] * self.residuals + [next(found) for _ in operands[self.residuals :]]

    def batch(self, build, instruction, operands, mapped):
        raise BatchingError(
            f"vmap of the linear part of the custom_vjp function '{self.rule.name}' was asked for",
            "it has a rule for reverse mode only",
            "apply vmap first and differentiate the mapped function",
            source=instruction.source,
        )


class CustomModes(Rule):
    """One rule for forward mode, another for reverse mode, and one for batching, or None for the default.

    make_transpose(flags of linear operands) -> the computation (other operands, cotangents of the outputs with an
    inexact dtype) -> the cotangents of those; None: the computation itself is transposed.
    """

    def __init__(self, forward_mode: Rule, reverse_mode: Rule, many: Rule | None = None, make_transpose=None):
        self.forward_mode, self.reverse_mode, self.many = forward_mode, reverse_mode, many
        self.make_transpose = make_transpose

    def jvp(self, build, instruction, primals, tangents):
        rule = self.reverse_mode if build.linear else self.forward_mode
        return rule.jvp(build, instruction, primals, tangents)

    def transpose(self, build, instruction, cotangent, operands):
        if self.make_transpose is None:
            return super().transpose(build, instruction, cotangent, operands)
        made = self.make_transpose(tuple([o is None for o in operands]))
        given = [o for o in operands if o is not None]
        results = iter(inlined(build, made, [*given, *filled(build, instruction, cotangent)]))
        return [next(results) if o is None else None for o in operands]

    def batch(self, build, instruction, operands, mapped):
        if self.many is not None:
            return self.many.batch(build, instruction, operands, mapped)
        return super().batch(build, instruction, operands, mapped)

    def batched(self, build, mapped, count):
        return CustomModes(
            self.forward_mode.batched(build, mapped, count), self.reverse_mode.batched(build, mapped, count)
        )


# --- custom_vmap --------------------------------------------------------------------------------------------------


class CustomBatch(Rule):
    """make(size, mapped) -> (the computation for `size` batch elements, flags of its mapped outputs)."""

    def __init__(self, name: str, make):
        self.name, self.make = name, make

    def batch(self, build, instruction, operands, mapped):
        made, differs = self.make(build.size, list(mapped))
        results = inlined(build.builder, made, operands)
        marked = [r if d else build.unmapped(r) for r, d in zip(results, differs, strict=True)]
        return packed(instruction, marked)


# --- checkpoint ---------------------------------------------------------------------------------------------------


class Checkpoint(Rule):
    """Recomputes the computation in the backward pass.

    policy(instruction) -> whether the instruction's value is saved instead. barrier: whether the inputs of the
    recomputation go through a barrier, without which CSE would merge the two runs.
    """

    def __init__(self, policy: Callable[[Instruction], bool] | None, barrier: bool = True):
        self.policy, self.barrier = policy, barrier

    def jvp(self, build, instruction, primals, tangents):
        builder, body = build.builder, inline_calls(instruction["to_apply"])
        nonzero = [t is not None for t in tangents]
        shapes = output_shapes(instruction)
        given = [t for t in tangents if t is not None]
        if not build.linear:
            made = jvp(body, nonzero)
            call = builder.emit(
                "call", *(v.instruction for v in [*primals, *given]), to_apply=made, rule=self, hint=instruction.hint
            )
            results = elements(builder, call)
            build.replace(instruction, packed(instruction, results[: len(shapes)]))
            found = iter(results[len(shapes) :])
            return packed(instruction, [next(found) if has_tangent(s) else None for s in shapes])
        saved = [i for i in body.instructions if self._keeps(i)]
        kept: list[Value] = []
        if saved:
            forward = Builder(f"{body.name}_forward")
            forward.parameters, forward.instructions = list(body.parameters), list(body.instructions)
            outputs = tuple_elements(forward, body.root)
            made = sweep(forward.finish(forward.tuple([*outputs, *saved])))
            call = builder.emit("call", *(p.instruction for p in primals), to_apply=made, rule=self)
            results = elements(builder, call)
            build.replace(instruction, packed(instruction, results[: len(shapes)]))
            kept = results[len(shapes) :]
        made, present = _tangents(body, nonzero, saved)
        if not any(present):
            return None
        call = builder.emit(
            "call",
            *(v.instruction for v in [*primals, *kept, *given]),
            to_apply=made,
            rule=CheckpointTangent(self, len(primals) + len(kept)),
        )
        found = iter(elements(builder, call))
        return packed(instruction, [next(found) if p else None for p in present])

    def _keeps(self, instruction: Instruction) -> bool:
        structural = ("parameter", "constant", "tuple", "get-tuple-element")
        if self.policy is None or instruction.opcode in structural or isinstance(instruction.shape, TupleShape):
            return False
        return bool(self.policy(instruction))


def _tangents(body: Computation, nonzero, saved) -> tuple[Computation, list[bool]]:
    """(the computation (operands, saved values, tangents) -> tangents of the outputs, flags of the outputs that have
    one)."""
    pushing = SharingBuilder(f"{body.name}_tangents")
    outputs, pushforward, added = push_computation(pushing, body, nonzero, linear=True)
    found = [pushforward.tangent(o) for o in outputs]
    results = [f for f in found if f is not None]
    builder = Builder(pushing.name)
    mapped = {p: builder.parameter(p.shape, p.hint, p.source) for p in body.parameters}
    # If a rule replaced an instruction, the saved value is that of the replacement.
    replaced = pushforward.replaced
    for instruction in saved:
        parameter = builder.parameter(instruction.shape, instruction.hint, instruction.source)
        mapped[instruction] = mapped[replaced.get(instruction, instruction)] = parameter
    for parameter in added:
        mapped[parameter] = builder.parameter(parameter.shape, parameter.hint, parameter.source)
    builder.add_copies(pushing.instructions, mapped)
    made = sweep(builder.finish(builder.tuple([mapped[r] for r in results])))
    return made, [f is not None for f in found]


class CheckpointTangent(Rule):
    """The rule of the call that computes the tangents of a checkpointed call from its operands and saved values."""

    def __init__(self, rule: Checkpoint, given: int):
        self.rule, self.given = rule, given

    def jvp(self, build, instruction, primals, tangents):
        return self.rule.jvp(build, instruction, primals, tangents)

    def transpose(self, build, instruction, cotangent, operands):
        values = operands[: self.given]
        linear = [o is None for o in operands]
        made = transposed(instruction["to_apply"], linear)
        cotangents = filled(build, instruction, cotangent)
        start = [v for v in [*values, *cotangents] if v is not None]
        if self.rule.barrier and start:
            held = start[0].op("optimization-barrier", *start[1:])
            start = elements(build, held.instruction)
        call = build.emit(
            "call", *(v.instruction for v in start), to_apply=made, rule=Checkpoint(None, self.rule.barrier)
        )
        results = iter(elements(build, call))
        return [next(results) if o is None else None for o in operands]
