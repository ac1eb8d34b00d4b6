"""Derivatives and batching of manual-computation.

Cotangents follow replication. A value that is replicated along a manual axis has a replicated cotangent; where such a
value is combined with varying ones, each device has a share of the cotangent, which is their sum. So the sum of a
parameter's shares is the only collective that a gradient adds, and the transpose of a sum over devices is the identity.
For a result that no axis splits, although its devices might differ, the value is that of the first device, assuming
that they agree: each gets an equal share of its cotangent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hloom.compiler.transforms.flat import elements, flat, instructions, place, with_tangents, zeros
from hloom.compiler.transforms.inline import inline_calls
from hloom.compiler.transforms.jvp import has_tangent
from hloom.compiler.transforms.vjp import linearize, transposed
from hloom.ir.build import Builder, Value, combiner_opcode, scalar_computation
from hloom.ir.module import Computation, Instruction, below
from hloom.ir.op_table import OPS
from hloom.ir.ops.programs.collective import EXCHANGE
from hloom.ir.ops.programs.spmd import RULES, manual_mesh, with_dimension
from hloom.ir.records import replace
from hloom.ir.rewrite import sweep
from hloom.ir.spmd.sharding import DeviceMesh, Sharding
from hloom.ir.types import Shape, TupleShape


def _manual(builder: Builder, like: Instruction, body: Computation, operands, given, found) -> list[Value]:
    """Emits a manual computation over the axes of another one; its results."""
    made = builder.emit(
        "manual-computation",
        *instructions(operands),
        to_apply=body,
        in_shardings=tuple(given),
        out_shardings=tuple(found),
        manual_axes=like["manual_axes"],
        hint=like.hint,
    )
    return elements(builder, made)


def _results(instruction: Instruction, found: list):
    return found if isinstance(instruction.shape, TupleShape) else found[0]


# --- batching -----------------------------------------------------------------------------------------------------


def manual_batch(build, instruction, operands, mapped):
    body, out = build.computation(flat(instruction["to_apply"]), mapped)
    given = [with_dimension(s) if m else s for s, m in zip(instruction["in_shardings"], mapped, strict=True)]
    found = [with_dimension(s) if m else s for s, m in zip(instruction["out_shardings"], out, strict=True)]
    results = _manual(build.builder, instruction, body, operands, given, found)
    return _results(instruction, [r if m else build.unmapped(r) for r, m in zip(results, out, strict=True)])


# --- replication --------------------------------------------------------------------------------------------------


def _shared_parameter(sharding: Sharding, manual_axes) -> frozenset[str]:
    """The manual axes along which a part is replicated."""
    return frozenset(manual_axes) - {*sharding.axes, *sharding.unreduced}


class _Shared:
    """The manual axes along which the values of a body are replicated."""

    def __init__(self, instruction: Instruction):
        self.mesh: DeviceMesh = manual_mesh(instruction.attributes)
        self.manual = frozenset(instruction["manual_axes"])
        self.axes: dict[Instruction, frozenset[str]] = {}

    def in_order(self, axes: Iterable[str]) -> tuple[str, ...]:
        return self.mesh.in_order(set(axes))

    def varying(self, value: Instruction) -> tuple[str, ...]:
        return self.in_order(self.manual - self.axes[value])

    def named(self, instruction: Instruction) -> frozenset[str] | None:
        """The manual axes of a collective; None if it is over something else."""
        if "axis_name" not in instruction.attributes or instruction.attributes.get("axis_groups"):
            return None
        found: list[str] = []
        for name in instruction["axis_name"]:
            found += self.mesh.parts(name) if isinstance(name, str) else ()
        return frozenset(found) if found and self.manual.issuperset(found) else None

    def of(self, instruction: Instruction, linear: bool = False) -> frozenset[str]:
        """The axes of the result. linear: it will be transposed, so gathered values are treated as varying."""
        axes = self.manual
        for operand in instruction.operands:
            axes &= self.axes[operand]
        if instruction.opcode in ("all-reduce", "all-gather") and not linear:
            named = self.named(instruction)
            if named is not None:
                return axes | named
        for inner in below([instruction]):
            if OPS[inner.opcode].code is EXCHANGE:
                named = self.named(inner)
                axes = frozenset() if named is None else axes - named
        return axes

    def walk(self, computation: Computation, parameters: Sequence[frozenset[str]]) -> None:
        self.axes.update(zip(computation.parameters, parameters, strict=True))
        for instruction in computation.instructions:
            if instruction not in self.axes:
                self.axes[instruction] = self.of(instruction)


# --- forward mode -------------------------------------------------------------------------------------------------


def manual_jvp(build, instruction, primals, tangents):
    builder, body = build.builder, flat(instruction["to_apply"])
    active = [t is not None for t in tangents]
    made, present = with_tangents(body, active)
    if not any(present):
        return None
    count = len(body.outputs())
    given, out = instruction["in_shardings"], instruction["out_shardings"]
    pushed = [t for t in tangents if t is not None]
    added = [s for s, a in zip(given, active, strict=True) if a]
    kept = [s for s, p in zip(out, present, strict=True) if p]
    if build.linear:
        results, found = _split(builder, instruction, body, primals, pushed, active, present)
    else:
        results = _manual(builder, instruction, made, [*primals, *pushed], [*given, *added], [*out, *kept])
        results, found = results[:count], results[count:]
    build.replace(instruction, _results(instruction, results))
    left = iter(found)
    return _results(instruction, [next(left) if p else None for p in present])


def _split(builder: Builder, instruction: Instruction, body: Computation, primals, pushed, active, present):
    """(results, tangents) of two manual computations: one that also returns the residuals, and that of the tangents.
    Residuals that vary between devices are stored in an array with an additional dimension, split among them."""
    forward, linear = linearize(body, [k for k, a in enumerate(active) if a], set())
    count = len(body.outputs())
    given, out = instruction["in_shardings"], instruction["out_shardings"]
    shared = _Shared(instruction)
    shared.walk(forward, [_shared_parameter(s, shared.manual) for s in given])
    first, second = _copied(forward), Builder(linear.name)
    operands, shardings, residuals, kept, layouts = [], [], [], [], []
    for residual in forward.outputs()[count:]:
        if residual in forward.parameters:
            index = forward.parameters.index(residual)
            operands.append(primals[index])
            shardings.append(given[index])
            residuals.append(second.parameter(residual.shape))
            continue
        axes, shape = shared.varying(residual), residual.shape
        dims: tuple[tuple[str, ...], ...] = ((),) * shape.rank
        if axes:
            shape, dims = shape.with_dims((1, *shape.dims)), (axes, *dims)
        kept.append(first.emit("reshape", residual, shape=shape) if axes else residual)
        layouts.append(Sharding(shared.mesh, dims))
        operands.append(None)
        shardings.append(layouts[-1])
        parameter = second.parameter(shape)
        residuals.append(second.emit("reshape", parameter, shape=residual.shape) if axes else parameter)
    made = sweep(first.finish(first.tuple([*forward.outputs()[:count], *kept])))
    results = _manual(builder, instruction, made, primals, given, [*out, *layouts])
    stored = iter(results[count:])
    operands = [next(stored) if o is None else o for o in operands]
    added = [second.parameter(p.shape) for p in linear.parameters[len(residuals) :]]
    found = place(second, linear, [*residuals, *added])
    inexact = [k for k, o in enumerate(body.outputs()) if has_tangent(o.shape)]
    wanted = [f for k, f in zip(inexact, found, strict=True) if present[k]]
    body_of_tangents = sweep(second.finish(second.tuple(wanted)))
    shardings += [s for s, a in zip(given, active, strict=True) if a]
    kept_out = [s for s, p in zip(out, present, strict=True) if p]
    return results[:count], _manual(builder, instruction, body_of_tangents, [*operands, *pushed], shardings, kept_out)


def _copied(computation: Computation) -> Builder:
    builder = Builder(computation.name)
    builder.parameters, builder.instructions = list(computation.parameters), list(computation.instructions)
    return builder


# --- reverse mode -------------------------------------------------------------------------------------------------


class _Differs:
    """A replicated value combined with varying ones: each device's cotangent is a share, and they are summed."""

    def __init__(self, axes: tuple[str, ...], mesh: DeviceMesh):
        self.axes, self.size = axes, mesh.axis_size(*axes)

    def transpose(self, build, instruction, g, operands):
        add = scalar_computation("add", g.dtype)
        return [g.op("all-reduce", axis_name=self.axes, axis_size=self.size, to_apply=add)]


class _Summed:
    """The sum over devices, which is replicated, as is its cotangent."""

    def transpose(self, build, instruction, g, operands):
        return [g]


class _Agreed:
    """A value that the user declares replicated."""

    def __init__(self, size: int):
        self.size = size

    def transpose(self, build, instruction, g, operands):
        return [g / self.size]


class _Marking:
    """A linear body with marks where a cotangent changes between replicated and per-device."""

    def __init__(self, instruction: Instruction, body: Computation, linear: Sequence[bool]):
        self.shared = _Shared(instruction)
        self.builder = Builder(body.name)
        self.mapped: dict[Instruction, Instruction] = {}
        self.linear: set[Instruction] = set()
        self.differing: dict[tuple, Instruction] = {}
        for parameter, sharding, is_linear in zip(body.parameters, instruction["in_shardings"], linear, strict=True):
            self.builder.parameters.append(self._put(parameter, parameter))
            self.shared.axes[parameter] = _shared_parameter(sharding, self.shared.manual)
            if is_linear:
                self.linear.add(parameter)
        for one in body.instructions:
            if one not in self.mapped and one is not body.root:
                self._push(one)
        outputs = [
            self._handed_out(self.mapped[o], s)
            for o, s in zip(body.root.operands, instruction["out_shardings"], strict=True)
        ]
        self.computation = self.builder.finish(self.builder.tuple(outputs))

    def _put(self, original: Instruction, made: Instruction) -> Instruction:
        self.mapped[original] = made
        return self.builder.add(made)

    def _marked(self, value: Instruction, rule, axes: frozenset[str]) -> Instruction:
        """The identity with another transpose. axes: those along which its result is shared."""
        inner = Builder("same")
        same = inner.finish(inner.parameter(value.shape))
        made = Instruction(
            "call", (value,), value.shape, {"to_apply": same, "rule": rule}, "", value.source, value.made_by
        )
        self.linear.add(made)
        self.shared.axes[made] = axes
        return self.builder.add(made)

    def _differs(self, value: Instruction, axes: frozenset[str]) -> Instruction:
        """A value, marked as varying along these axes."""
        if not axes or value not in self.linear or not isinstance(value.shape, Shape) or not has_tangent(value.shape):
            return value
        key = value, axes
        if key not in self.differing:
            self.differing[key] = self._made_from_less(value, axes) or self._marked(
                value, _Differs(self.shared.in_order(axes), self.shared.mesh), self.shared.axes[value] - axes
            )
        return self.differing[key]

    def _made_from_less(self, value: Instruction, axes: frozenset[str]) -> Instruction | None:
        """The value recomputed from a varying operand that is no larger, so that fewer bytes are summed."""
        linear = [o for o in value.operands if o in self.linear]
        if len(linear) != 1 or value.opcode in ("call", "convert") or value.called():
            return None
        (operand,) = linear
        if OPS[value.opcode].code is EXCHANGE or not isinstance(operand.shape, Shape):
            return None
        if operand.shape.size > value.shape.size:
            return None
        differing = self._differs(operand, axes)
        made = value.with_operands(tuple([differing if o is operand else o for o in value.operands]))
        self.linear.add(made)
        self.shared.axes[made] = self.shared.axes[value] - axes
        return self.builder.add(made)

    def _push(self, original: Instruction) -> None:
        shared = self.shared
        instruction = original.replaced(self.mapped, {})
        if self.linear.isdisjoint(instruction.operands):
            shared.axes[instruction] = shared.of(instruction)
            self._put(original, instruction)
            return
        if instruction.opcode == "all-reduce" and len(instruction.operands) == 1:
            named = shared.named(instruction)
            if named is not None and combiner_opcode(instruction["to_apply"]) == "add":
                (value,) = instruction.operands
                axes = shared.axes[value]
                value = self._differs(value, axes & named)
                self.mapped[original] = self._marked(value, _Summed(), axes | named)
                return
        axes = shared.of(instruction, linear=True)
        operands = tuple([self._differs(o, shared.axes[o] - axes) for o in instruction.operands])
        if operands != instruction.operands:
            instruction = instruction.with_operands(operands)
        shared.axes[instruction] = axes
        self.linear.add(instruction)
        self._put(original, instruction)

    def _handed_out(self, value: Instruction, sharding: Sharding) -> Instruction:
        if value not in self.linear or not has_tangent(value.shape):
            return value
        wanted = _shared_parameter(sharding, self.shared.manual)
        value = self._differs(value, self.shared.axes[value] - wanted)
        missing = wanted - self.shared.axes[value]
        if missing:
            value = self._marked(value, _Agreed(self.shared.mesh.axis_size(*missing)), wanted)
        return value


def manual_transpose(build, instruction, cotangent, operands):
    body = inline_calls(flat(instruction["to_apply"]))
    linear = [o is None for o in operands]
    given, out = instruction["in_shardings"], instruction["out_shardings"]
    back = transposed(_Marking(instruction, body, linear).computation, linear)
    inner = Builder(back.name)
    plain = [o for o in operands if o is not None]
    shardings = [s for s, l in zip(given, linear, strict=True) if not l]
    handed = [inner.parameter(p.shape) for p in back.parameters[: len(plain)]]
    cotangents = cotangent if isinstance(instruction.shape, TupleShape) else [cotangent]
    passed: list[Value] = []
    for value, output, sharding in zip(cotangents, body.root.operands, out, strict=True):
        if not has_tangent(output.shape):
            continue
        if value is None:
            handed.append(zeros(inner, output.shape).instruction)
            continue
        handed.append(inner.parameter(output.shape))
        passed.append(value)
        shardings.append(replace(sharding, unreduced=()))
    results = inner.tuple(place(inner, back, handed))
    found = _manual(
        build, instruction, sweep(inner.finish(results)), [*plain, *passed], shardings,
        [replace(s, unreduced=()) for s, l in zip(given, linear, strict=True) if l],
    )  # fmt: skip
    left = iter(found)
    return [next(left) if l else None for l in linear]


RULES.update({"manual_jvp": manual_jvp, "manual_transpose": manual_transpose, "manual_batch": manual_batch})
