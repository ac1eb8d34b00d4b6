"""Partitioning of one op: by the factors of its rule, along the cheapest axes.

Ops that need remote elements along a split dimension have entries in `SPECIAL`: the additional factors they may split,
and the emission of the local op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hloom.compiler.passes.spmd.choice import Choice
from hloom.compiler.passes.spmd.linear import linear_operands
from hloom.compiler.passes.spmd.resharding import costs
from hloom.compiler.passes.spmd.resharding.layouts import Layout
from hloom.compiler.passes.spmd.scope import Held, Scope
from hloom.ir.build import combiner_opcode
from hloom.ir.interpret import evaluate
from hloom.ir.module import Instruction
from hloom.ir.op_table import No, factor_rule
from hloom.ir.ops import OPS
from hloom.ir.records import record
from hloom.ir.sizes.guards import typical
from hloom.ir.spmd.factors import OWN, FactorRule, result_shapes
from hloom.ir.types import Shape, TupleShape

SAMPLES = 32  # samples for testing a computation


@record(frozen=True)
class Special:
    """Partitioning of an op along factors that need remote elements.

    more(instruction, rule) -> the factors that may be split besides those that pass through or are summed.
    emit(scope, instruction, rule, choice, values) -> the local results, in the layouts of the choice.
    fits(layouts, instruction, rule, choice) -> whether this is possible. price(layouts, instruction, rule, choice) ->
    the cost of fetching remote elements.
    """

    more: Callable
    emit: Callable
    fits: Callable | None = None
    price: Callable | None = None


SPECIAL: dict[str, Special] = {}


def compute(scope: Scope, instruction: Instruction) -> None:
    """Emits an op with array operands and results, and records its results."""
    if OPS[instruction.opcode].family == "elementwise" and _pointwise(scope, instruction):
        return
    rule = factor_rule(instruction)
    given: list[Held] = [scope.values[o] for o in instruction.operands]
    if isinstance(rule, No):
        whole(scope, instruction, given)
        return
    special = SPECIAL.get(instruction.opcode)
    more = special.more(instruction, rule) if special else frozenset()
    allowed = (rule.splittable - rule.masked) | more
    choice = _chosen(scope, instruction, rule, given, allowed, special)
    if rule.whole and not any(choice.axes) and _needs_all(rule):
        scope.warn(instruction, given)
    values = []
    for k, (held, layout) in enumerate(zip(given, choice.operands, strict=True)):
        value = held.versions.get(layout)
        if value is None:
            scope.mover.why = f"operand {k} of {instruction.opcode}"
            value = scope.read(held, layout)
        values.append(value)
    scope.mover.why = instruction.opcode
    values = neutral_padding(scope, instruction, rule, choice, values)
    if special and (extra := more.intersection(f for f, axes in enumerate(choice.axes) if axes)) and extra:
        results = special.emit(scope, instruction, rule, choice, values)
    else:
        results = emit_local(scope, instruction, rule, choice, values)
    scope.hold(instruction, combined(scope, rule, choice, results), choice.results)


def _needs_all(rule: FactorRule) -> bool:
    """Whether an op has no dimension along which it could be partitioned."""
    factors = {f for result in rule.results for dim in result for f in dim if rule.sizes[f] > 1}
    return bool(factors) and factors <= rule.whole


def _pointwise(scope: Scope, instruction: Instruction) -> bool:
    """An element-wise op whose operands are available in the requested layout of the result."""
    layout = scope.partitioner.layout(instruction.sharding, len(instruction.shape.dims))
    if layout is None or layout.unreduced:
        return False
    dims, values = instruction.shape.dims, scope.values
    operands = []
    for operand in instruction.operands:
        if operand.shape.dims != dims:
            return False
        value = values[operand].versions.get(layout)
        if value is None:
            return False
        operands.append(value)
    shape = instruction.shape
    local = shape if layout.is_whole else Shape(shape.dtype, layout.local(dims))
    builder = scope.builder
    made = Instruction(
        instruction.opcode, tuple(operands), local, instruction.attributes, instruction.hint, builder.source,
        builder.made_by,
    )  # fmt: skip
    values[instruction] = Held(shape, {layout: builder.add(made)})
    return True


def whole(scope: Scope, instruction: Instruction, given: Sequence[Held]) -> None:
    """A replicated op on whole arrays. Propagation has warned about ops without a rule."""
    device = instruction.attributes.get("device")
    values = []
    for k, held in enumerate(given):
        scope.mover.why = f"operand {k} of {instruction.opcode}, which is computed whole"
        values.append(scope.read(held, scope.layouts.whole(held.shape.rank)))
    made = scope.builder.add(instruction.with_operands(tuple(values)))
    made.sharding, made.made_by = None, scope.builder.made_by
    shapes = result_shapes(instruction.shape)
    results = scope.elements(made, len(shapes)) if isinstance(instruction.shape, TupleShape) else [made]
    if device is not None:
        scope.mover.why = f"the result of {instruction.opcode}, which device {device} makes"
        results = [scope.mover.sent(r, device) for r in results]
    scope.hold(instruction, results, [scope.layouts.whole(s.rank) for s in shapes])


# --- the choice of axes -------------------------------------------------------------------------------------------


def _chosen(
    scope: Scope, instruction: Instruction, rule: FactorRule, given: list[Held], allowed, special: Special | None
) -> Choice:
    chooser, shapes = scope.partitioner.chooser, result_shapes(instruction.shape)
    target = _target(scope, instruction, shapes)
    ways = _candidates(scope, instruction, rule, given, allowed, target)
    found = _fitting(scope, instruction, rule, special, ways)
    if len(found) == 1:
        return found[0]
    operands = [h.shape for h in given]
    versions = [list(h.versions) for h in given]
    entry = OPS[instruction.opcode]
    operations = entry.flops / costs.FLOPS if entry.family == "contraction" else costs.COPY

    def price(choice: Choice) -> float:
        more = chooser.work(rule, choice) * operations
        if special and special.price:
            more += special.price(scope.layouts, instruction, rule, choice)
        # At ties the one whose sums remain partial.
        return more + chooser.total(choice, versions, target, operands, shapes) - (1.0 if choice.unreduced else 0.0)

    return min(found, key=price)


def _target(scope: Scope, instruction: Instruction, shapes) -> list[Layout]:
    """The requested layouts of the results."""
    pairs = zip(scope.wanted(instruction), shapes, strict=True)
    said: list[Layout] = [w if w is not None else scope.layouts.whole(s.rank) for w, s in pairs]
    target = [scope.layouts.of(w.dims) for w in said]
    sums = scope.sums.get(instruction, ())
    if sums and not set(sums) & set(target[0].axes):
        return [scope.layouts.of(target[0].dims, sums)]
    return target


def _candidates(
    scope: Scope, instruction: Instruction, rule: FactorRule, given: list[Held], allowed, target: list[Layout]
) -> list[Choice]:
    """The possible choices, with and without operands that remain partial sums."""
    chooser = scope.partitioner.chooser
    layouts = [min(h.versions, key=lambda layout: len(layout.unreduced)) for h in given]
    weights = [typical(h.shape.bytes) for h in given]
    sums = [h.sums for h in given]
    rules = [*linear_operands(scope, instruction, given, sums)] if any(sums) else []
    return [
        chooser.choice(rule, axes, linear, unreduced)
        for linear, unreduced in [*rules, ((), ())]
        for axes in chooser.candidates(rule, allowed, layouts, target, unreduced, weights)
    ]


def _fitting(
    scope: Scope, instruction: Instruction, rule: FactorRule, special: Special | None, found: list[Choice]
) -> list[Choice]:
    """The feasible choices, and infeasible ones without their obstacles."""
    fitting = [c for c in found if fits(scope, instruction, rule, c, special)]
    if len(fitting) < len(found):
        hard = rule.windows | rule.masked | (rule.reduction if rule.combiner == OWN else frozenset())
        easy = {tuple([() if f in hard else a for f, a in enumerate(c.axes)]): c.unreduced for c in found}
        chooser = scope.partitioner.chooser
        fitting += [chooser.choice(rule, axes, (), ()) for axes, unreduced in easy.items() if not unreduced]
    return fitting


def fits(scope: Scope, instruction: Instruction, rule: FactorRule, choice: Choice, special: Special | None) -> bool:
    """Whether the op can be computed along these axes."""
    if rule.combiner == OWN:
        # Such a computation may depend on the order, which splitting the first dimension preserves.
        split = [f for f in sorted(rule.reduction) if choice.axes[f]]
        first = [f for f in sorted(rule.reduction) if rule.sizes[f] > 1][:1]
        if split and (split != first or rule.sizes[split[0]] % scope.layouts.count(choice.axes[split[0]])):
            return False
        if split and not _starts_neutral(instruction):
            return False
    if special is not None and special.fits is not None and any(choice.axes):
        return special.fits(scope.layouts, instruction, rule, choice)
    return True


def _starts_neutral(instruction: Instruction) -> bool:
    """Whether a reduction by an arbitrary computation starts from neutral constants, tested on samples: then each part
    may start from them. Otherwise they must be used once."""
    count = len(instruction.operands) // 2
    initial = instruction.operands[count:]
    if any(o.opcode != "constant" for o in initial):
        return False
    random = np.random.default_rng(0)
    samples = [(8 * random.standard_normal(SAMPLES)).astype(o.dtype) for o in initial]
    with np.errstate(all="ignore"):
        given = [np.full(SAMPLES, o["value"]) for o in initial]
        found = evaluate(instruction["to_apply"], [*given, *samples], lifted=(SAMPLES,))
    found = found if isinstance(found, tuple) else (found,)
    return all(np.array_equal(a, b) for a, b in zip(found, samples, strict=True))


# --- the local op -------------------------------------------------------------------------------------------------


def neutral_padding(scope: Scope, instruction: Instruction, rule: FactorRule, choice: Choice, values):
    """The operands with the combiner's neutral element in the padding of dimensions that are reduced."""
    values = list(values)
    for f in rule.reduction - rule.masked:
        axes = choice.axes[f]
        if not axes:
            continue
        for k, dims in enumerate(rule.operands):
            for d, factors in enumerate(dims):
                if f in factors and instruction.operands[k].dims[d] % scope.layouts.count(axes):
                    number = _neutral(instruction, values[k].dtype)
                    size = instruction.operands[k].dims[d]
                    values[k] = scope.mover.masked(values[k], d, axes, size, number)
    return values


def _neutral(instruction: Instruction, dtype):
    opcode = combiner_opcode(instruction["to_apply"]) if instruction.opcode in ("reduce", "scatter") else None
    return np.zeros((), dtype) if opcode is None else OPS[opcode].neutral(dtype)


def emit_local(scope: Scope, instruction: Instruction, rule: FactorRule, choice: Choice, values) -> list[Instruction]:
    """The op itself on a device's parts."""
    emit, shapes = scope.builder.emit, result_shapes(instruction.shape)
    local = [s.with_dims(y.local(s.dims)) for s, y in zip(shapes, choice.results, strict=True)]
    if instruction.opcode == "reduce":
        return reduced(scope, instruction, rule, choice, values)
    if instruction.opcode == "scatter" and (axes := choice.split(rule.reduction)):
        start = scope.mover.only_first(values[0], axes, OPS[rule.combiner].neutral(values[0].dtype))
        values = [start, *values[1:]]
    attributes = local_attributes(scope, instruction, rule, choice, values, local)
    shape = TupleShape(local) if isinstance(instruction.shape, TupleShape) else local[0]
    made = emit(instruction.opcode, *values, shape=shape, hint=instruction.hint, **attributes)
    assert made.shape is shape, f"{instruction!r}: {made.shape!r}, expected {shape!r}"
    if instruction.opcode == "iota" and (axes := choice.axes[instruction["iota_dimension"]]):
        start = scope.numbers.start(axes, local[0].dims[instruction["iota_dimension"]])
        start = emit("convert", start, shape=Shape(made.dtype)) if start.dtype != made.dtype else start
        made = emit("add", made, scope.mover.spread(start, made.dims))
    return scope.elements(made, len(local)) if isinstance(shape, TupleShape) else [made]


def local_attributes(scope: Scope, instruction: Instruction, rule: FactorRule, choice: Choice, values, local) -> dict:
    """The attributes of the op on a device's parts: sizes become those of the parts."""
    attributes, opcode = dict(instruction.attributes), instruction.opcode
    if opcode == "slice":
        attributes["slice"] = tuple(
            (0, size, 1) if bounds == (0, whole, 1) else bounds
            for bounds, whole, size in zip(
                attributes["slice"], instruction.operands[0].dims, values[0].dims, strict=True
            )
        )
    elif opcode == "dynamic-slice":
        attributes["dynamic_slice_sizes"] = local[0].dims
    elif opcode == "gather":
        attributes["slice_sizes"] = tuple(
            part if size == whole else size
            for size, whole, part in zip(
                attributes["slice_sizes"], instruction.operands[0].dims, values[0].dims, strict=True
            )
        )
    for factor, name in rule.local:
        attributes[name] //= scope.layouts.count(choice.axes[factor])
    return attributes


def combined(scope: Scope, rule: FactorRule, choice: Choice, results: list[Instruction]) -> list[Instruction]:
    """Combines partial results unless the combiner is a sum; sums remain partial."""
    axes = choice.split(rule.reduction)
    if not axes or rule.combiner in ("add", OWN):
        return results
    return [scope.mover.reduced(r, axes, rule.combiner) for r in results]


def reduced(scope: Scope, instruction: Instruction, rule: FactorRule, choice: Choice, values) -> list[Instruction]:
    """A reduction. If it is split, one device along the axes starts from the initial value."""
    count, axes = len(values) // 2, choice.split(rule.reduction)
    to_apply, dimensions = instruction["to_apply"], instruction["dimensions"]
    if not axes:
        return _reduce(scope, values, dimensions, to_apply, instruction.hint)
    if rule.combiner != OWN:
        neutral = OPS[rule.combiner].neutral(values[0].dtype)
        if not is_number(instruction.operands[1], neutral):
            values = [values[0], scope.mover.only_first(values[1], axes, neutral)]
        return _reduce(scope, values, dimensions, to_apply, instruction.hint)
    # The initial values are neutral (`_starts_neutral`), so using them repeatedly is harmless.
    partial = _reduce(scope, values, dimensions, to_apply, instruction.hint)
    gathered = [scope.mover.gathered(scope.mover.reshaped(p, (1, *p.dims)), 0, axes) for p in partial]
    return _reduce(scope, [*gathered, *values[count:]], (0,), to_apply, instruction.hint)


def _reduce(scope: Scope, values, dimensions, to_apply, hint: str = "") -> list[Instruction]:
    made = scope.builder.emit("reduce", *values, dimensions=tuple(dimensions), to_apply=to_apply, hint=hint)
    return scope.elements(made, len(values) // 2) if len(values) > 2 else [made]


def is_number(instruction: Instruction, number) -> bool:
    """Whether an instruction is a constant with all elements equal to this number."""
    while instruction.opcode in ("broadcast", "reshape"):
        instruction = instruction.operands[0]
    if instruction.opcode != "constant":
        return False
    value = np.asarray(instruction["value"])
    return bool(value.size) and bool((value == np.asarray(number)).all())
