"""A module as layouts and steps: each computation once per call site, with boundaries joined.

A tuple's layout is a list of those of its elements. Scalar computations (combiners, comparators) have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hloom.compiler.passes.spmd.meshes import CommonMesh
from hloom.compiler.passes.spmd.steps import ALL, BACKWARD, PASSING, Axes, Draft, ManualStep, Plan, Propagation, Step
from hloom.ir.errors import AttributeValueError
from hloom.ir.module import Computation, Instruction
from hloom.ir.op_table import OPS, No, factor_rule
from hloom.ir.spmd.factors import FactorRule
from hloom.ir.types import Shape, TupleShape

Tree = Any  # a Draft, or a list of trees for a tuple

# Called computations are analyzed once per call site, up to this many instructions per instruction of the module;
# beyond that, once for all call sites.
COPIES = 4
SCALAR = Draft(Shape(bool))  # all scalars share their only possible layout

ELEMENTWISE, CONTRACTION, REDUCTION, SPREAD = range(4)  # levels: see `propagate`


class Region:
    """A computation at one call site: the layouts of its instructions, and the regions that they call, by computation
    id."""

    __slots__ = ("computation", "trees", "called", "boundaries")

    def __init__(self, computation: Computation):
        self.computation = computation
        self.trees: dict[Instruction, Tree] = {}
        self.called: dict[Instruction, dict[int, Region]] = {}
        self.boundaries: dict[Instruction, tuple[list[Tree], list[Tree]]] = {}  # of manual computations: in and out

    @property
    def root(self) -> Tree:
        return self.trees[self.computation.root]


def stages_of(instruction: Instruction, rule: FactorRule) -> tuple[tuple[int, int], ...]:
    """The levels at which an op propagates shardings, and the factors along which it does."""
    family = OPS[instruction.opcode].family
    if instruction.opcode == "broadcast":
        return ((ELEMENTWISE, BACKWARD), (SPREAD, ALL))
    if family in ("contraction", "scatter") or instruction.opcode == "gather":
        level = CONTRACTION
    else:
        level = REDUCTION if rule.reduction - rule.masked else ELEMENTWISE
    if rule.windows or rule.whole or rule.masked:
        return ((level, PASSING), (REDUCTION, ALL))
    return ((level, ALL),)


class Regions:
    """Builds the layouts and steps of a module."""

    def __init__(self, propagation: Propagation, meshes: CommonMesh, size: int):
        self.propagation, self.meshes = propagation, meshes
        self.budget = COPIES * size
        self.shared: dict[tuple[int, Axes], tuple[Region, list[Tree]]] = {}
        self.plans: dict[tuple, Any] = {}
        self.unknown: list[tuple[Instruction, Region]] = []  # instructions without a rule

    # --- layouts ---

    def fresh(self, shape, banned: Axes, passive: bool = False) -> Tree:
        if isinstance(shape, TupleShape):
            return [self.fresh(element, banned, passive) for element in shape.elements]
        return Draft(shape, banned, passive) if shape.dims else SCALAR

    def fix(self, tree: Tree, sharding, instruction: Instruction) -> Tree:
        """A tree with the annotations of a sharding, or of a tuple that may contain None, as layouts. Scalars, which
        share one, get a separate layout if they are partial sums."""
        if sharding is None:
            return tree
        if isinstance(tree, list):
            parts = sharding if isinstance(sharding, tuple) else [sharding] * len(tree)
            if len(parts) != len(tree):
                self._refuse(instruction, f"{len(parts)} shardings for a tuple of {len(tree)}")
            tree[:] = [self.fix(element, part, instruction) for element, part in zip(tree, parts, strict=True)]
        elif tree is not SCALAR or sharding.unreduced:
            common = self.meshes.common(sharding)
            if tree is SCALAR:
                tree = Draft(Shape(bool))
            if common.rank != len(tree.sizes):
                self._refuse(instruction, f"a sharding of {common.rank} dimensions for {instruction.shape!r}")
            tree.fix(common)
            if tree.hidden:
                self.propagation.late.append(tree)
        return tree

    def _refuse(self, instruction: Instruction, found: str) -> None:
        raise AttributeValueError(
            f"{instruction.opcode} has a sharding for each dimension of its result",
            found,
            "give a sharding of as many dimensions",
            source=instruction.source,
        )

    # --- steps ---

    def line(self, sizes: tuple[int, ...]) -> Plan:
        """Joins two arrays of equal shape."""
        if sizes not in self.plans:
            line = tuple((d,) for d in range(len(sizes)))
            self.plans[sizes] = Plan(FactorRule((line,), (line,), sizes))
        return self.plans[sizes]

    def join(self, a: Tree, b: Tree) -> None:
        """Joins both sides of a value that crosses a computation's boundary."""
        if isinstance(a, list):
            for left, right in zip(a, b, strict=True):
                self.join(left, right)
        elif a is not b and a.sizes:
            self.propagation.add(Step([a, b], self.line(a.sizes), ((ELEMENTWISE, ALL),)))

    def join_returned(self, returned: Tree, result: Tree) -> None:
        """As `join`, for a callee's result and the loop state or branch result, which may remain a partial sum if the
        callee returns one."""
        self.reserve_sums(returned, result)
        self.join(returned, result)

    def reserve_sums(self, stated: Tree, other: Tree) -> None:
        """Excludes the axes along which a value is declared a partial sum from another's dimensions."""
        if isinstance(stated, list):
            for each in zip(stated, other, strict=True):
                self.reserve_sums(*each)
        elif stated.unreduced and other is not SCALAR:
            other.used += stated.unreduced

    def join_steps(self, stacked: Draft, one: Draft) -> None:
        """Joins an array with the slice that a scan reads or writes at one index of its first dimension."""
        if one is SCALAR:
            return
        whole = tuple((d,) for d in range(len(stacked.sizes)))
        plan = Plan(FactorRule((whole,), (whole[1:],), stacked.sizes))
        self.propagation.add(Step([stacked, one], plan, ((ELEMENTWISE, ALL),)))

    def cross(self, outside: Tree, inside: Tree, manual: Axes, enters: bool) -> None:
        """Joins an argument (`enters`) or result of a manual computation across its boundary."""
        if outside is SCALAR:
            return
        prefixes = []
        for axes in outside.dims:
            count = next((k for k, axis in enumerate(axes) if axis not in manual), len(axes))
            prefixes.append(axes[:count])
        if enters:
            inside.dims = [axes[len(prefix) :] for axes, prefix in zip(outside.dims, prefixes, strict=True)]
            inside.used += tuple(axis for axes in inside.dims for axis in axes)
            inside.fixed = outside.fixed
            inside.sharded = any(inside.dims)
        self.propagation.add(ManualStep(outside, inside, prefixes))

    # --- computations ---

    def entry(self, computation: Computation) -> Region:
        return self.region(computation, [self.fresh(p.shape, ()) for p in computation.parameters], ())

    def region(self, computation: Computation, parameters: Sequence[Tree], banned: Axes) -> Region:
        """The layouts of a computation whose parameters have these. banned: manual axes of the enclosing
        computations."""
        made = Region(computation)
        self.budget -= len(computation.instructions)
        trees = made.trees
        for parameter, tree in zip(computation.parameters, parameters, strict=True):
            trees[parameter] = self.fix(tree, parameter.sharding, parameter)
        for instruction in computation.instructions:
            if instruction not in trees:
                self.visit(made, instruction, banned)
        return made

    def visit(self, region: Region, instruction: Instruction, banned: Axes) -> None:
        handler = _HANDLERS.get(instruction.opcode)
        operands = [region.trees[o] for o in instruction.operands]
        if handler is None:
            self.by_rule(region, instruction, operands, banned)
        else:
            region.trees[instruction] = handler(self, region, instruction, operands, banned)
            if instruction.sharding is not None:
                self.annotate(region, instruction, banned)

    def annotate(self, region: Region, instruction: Instruction, banned: Axes) -> None:
        """An annotated value that shares the layouts of others: it gets separate ones, joined with them."""
        shared = region.trees[instruction]
        own = self.fix(self.fresh(instruction.shape, banned), instruction.sharding, instruction)
        region.trees[instruction] = own
        self.join(shared, own)

    def by_rule(self, region: Region, instruction: Instruction, operands, banned: Axes) -> None:
        known = self.known(instruction)
        annotation = instruction.sharding
        if instruction.opcode == "sharding-constraint":
            annotation = instruction.attributes["sharding"] if annotation is None else annotation
        passive = annotation is None and known is not None and all([o.passive or not o.sizes for o in operands])
        tree = self.fix(self.fresh(instruction.shape, banned, passive), annotation, instruction)
        region.trees[instruction] = tree
        if instruction.opcode == "sharding-constraint":
            self.reserve_sums(tree, operands[0])
        if known is None:
            self.unknown.append((instruction, region))
            return
        plan, stages = known
        self.propagation.add(Step([*operands, *(tree if isinstance(tree, list) else [tree])], plan, stages))

    def known(self, instruction: Instruction) -> tuple[Plan, tuple[tuple[int, int], ...]] | None:
        """The plan and the stages of an instruction's op, shared by all with equal shapes and attributes; None if the
        op has no rule."""
        attributes = instruction.attributes
        key = (instruction.opcode, instruction.shape, *[o.shape for o in instruction.operands])
        if attributes and instruction.opcode != "constant":
            key += (*attributes.items(),)
        try:
            return self.plans[key]
        except (KeyError, TypeError) as error:  # a TypeError: attributes that cannot be keys
            rule = factor_rule(instruction)
            found = None if isinstance(rule, No) else (Plan(rule), stages_of(instruction, rule))
            if isinstance(error, KeyError):
                self.plans[key] = found
            return found

    def call(self, region: Region, instruction: Instruction, computation: Computation, parameters, banned) -> Region:
        """The region of a computation that an instruction calls; shared by all call sites if there would be too
        many."""
        key = (id(computation), banned)
        known = self.shared.get(key)
        if known is not None:
            made, formal = known
            for given, parameter in zip(parameters, formal, strict=True):
                self.join(given, parameter)
        elif self.budget >= 0:
            made = self.region(computation, parameters, banned)
        else:
            formal = [self.fresh(p.shape, banned) for p in computation.parameters]
            made = self.region(computation, formal, banned)
            self.shared[key] = made, formal
            for given, parameter in zip(parameters, formal, strict=True):
                self.join(given, parameter)
        region.called.setdefault(instruction, {})[id(computation)] = made
        return made


def _tuple(regions: Regions, region, instruction, operands, banned) -> Tree:
    return list(operands)


def _element(regions: Regions, region, instruction, operands, banned) -> Tree:
    return operands[0][instruction["index"]]


def _barrier(regions: Regions, region, instruction, operands, banned) -> Tree:
    return operands[0] if len(operands) == 1 else list(operands)


def _call(regions: Regions, region, instruction, operands, banned) -> Tree:
    callee = instruction["to_apply" if instruction.opcode == "call" else "calls"]
    return regions.call(region, instruction, callee, operands, banned).root


def _while(regions: Regions, region, instruction, operands, banned) -> Tree:
    """The state has one layout in all steps, joined with the initial state and the body's result."""
    state = regions.fresh(instruction.shape, banned)
    regions.join(operands[0], state)
    regions.call(region, instruction, instruction["condition"], [state], banned)
    regions.join_returned(regions.call(region, instruction, instruction["body"], [state], banned).root, state)
    return state


def _conditional(regions: Regions, region, instruction, operands, banned) -> Tree:
    result = regions.fresh(instruction.shape, banned)
    for branch, operand in zip(instruction["branch_computations"], operands[1:], strict=True):
        parameter = regions.fresh(branch.parameters[0].shape, banned)
        regions.join(operand, parameter)
        regions.join_returned(regions.call(region, instruction, branch, [parameter], banned).root, result)
    return result


def _scan(regions: Regions, region, instruction, operands, banned) -> Tree:
    first = instruction["num_consts"]
    carries = instruction["num_carry"]
    body = instruction["body"]
    parameters = [regions.fresh(p.shape, banned) for p in body.parameters]
    result = regions.fresh(instruction.shape, banned)
    result[:carries] = parameters[first : first + carries]
    for k, (operand, parameter) in enumerate(zip(operands, parameters, strict=True)):
        (regions.join if k < first + carries else regions.join_steps)(operand, parameter)
    returned = regions.call(region, instruction, body, parameters, banned).root
    for k, (one, stacked) in enumerate(zip(returned, result, strict=True)):
        if k < carries:
            regions.join_returned(one, stacked)
        else:
            regions.reserve_sums(one, stacked)
            regions.join_steps(stacked, one)
    return result


def _manual(regions: Regions, region, instruction, operands, banned) -> Tree:
    """The boundaries have the instruction's layouts; inside, values have these without the manual axes, which the body
    handles explicitly."""
    into, out = instruction["in_shardings"], instruction["out_shardings"]
    manual = tuple(regions.meshes.axes_named(instruction["manual_axes"], (*into, *out)))
    inside = banned + manual
    body = instruction["to_apply"]
    parameters = [regions.fresh(p.shape, inside) for p in body.parameters]
    arguments = [regions.fresh(o.shape, banned) for o in instruction.operands]
    for k, (operand, sharding, parameter) in enumerate(zip(operands, into, parameters, strict=True)):
        tree = arguments[k] = regions.fix(arguments[k], sharding, instruction)
        regions.join(operand, tree)
        regions.cross(tree, parameter, manual, enters=True)
    returned = regions.call(region, instruction, body, parameters, inside).root
    result = regions.fresh(instruction.shape, banned)
    results, returned = (t if isinstance(t, list) else [t] for t in (result, returned))
    for k, (sharding, one) in enumerate(zip(out, returned, strict=True)):
        tree = results[k] = regions.fix(results[k], sharding, instruction)
        regions.cross(tree, one, manual, enters=False)
    result = results if isinstance(result, list) else results[0]
    region.boundaries[instruction] = arguments, results
    return result


_HANDLERS = {
    "tuple": _tuple,
    "get-tuple-element": _element,
    "optimization-barrier": _barrier,
    "call": _call,
    "fusion": _call,
    "while": _while,
    "conditional": _conditional,
    "scan": _scan,
    "manual-computation": _manual,
}
