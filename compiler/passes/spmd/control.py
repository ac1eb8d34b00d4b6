"""Partitioning of structural ops: tuples, calls, loops, branches, and manual computations."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.compiler.passes.spmd.collectives import read_layouts
from hloom.compiler.passes.spmd.manual import manual
from hloom.compiler.passes.spmd.scope import Held, Scope, Tree, frozen, leaves, tree_shape
from hloom.ir.module import Computation, Instruction
from hloom.ir.ops.programs.control import split_scan
from hloom.ir.rewrite import sweep


class Controls:
    """Visits the instructions of computations. compute(scope, instruction): emits an ordinary op."""

    def __init__(self, partitioner, compute):
        self.partitioner, self.compute = partitioner, compute
        self.rules = {
            "tuple": self._tuple,
            "get-tuple-element": self._element,
            "constant": self._constant,
            "call": self._call,
            "while": self._while,
            "conditional": self._conditional,
            "scan": self._scan,
            "optimization-barrier": self._barrier,
            "sharding-constraint": self._constraint,
            "manual-computation": self._manual,
        }

    # --- computations ---

    def walk(self, scope: Scope, computation: Computation, inlined: bool = False) -> Tree:
        """Emits a computation whose parameters are held; returns the tree of its root. inlined: whether it replaces a
        call, whose operands have already been counted as reads of its parameters."""
        readers: dict[Instruction, int] = {computation.root: 1}
        for instruction in computation.instructions:
            if instruction.opcode != "get-tuple-element":
                for operand in instruction.operands:
                    readers[operand] = readers.get(operand, 0) + 1
        for instruction in computation.instructions:
            if instruction.opcode == "sharding-constraint" and instruction["sharding"].unreduced:
                (operand,) = instruction.operands
                layout = scope.wanted(instruction)[0]
                if readers[operand] == 1 and layout is not None:
                    scope.sums[operand] = layout.unreduced
        values, builder, rules, compute = scope.values, scope.builder, self.rules, self.compute
        before = builder.source, builder.made_by
        for instruction in computation.instructions:
            if instruction.opcode != "parameter":
                builder.source, builder.made_by = instruction.source, instruction.made_by
                rules.get(instruction.opcode, compute)(scope, instruction)
            # Values passed through a tuple or a call were already counted as read.
            known = instruction.opcode in ("tuple", "call") or (inlined and instruction.opcode == "parameter")
            for held in leaves(values[instruction]):
                held.readers += readers.get(instruction, 0) - known
        builder.source, builder.made_by = before
        return values[computation.root]

    def computation(self, computation: Computation, given: Sequence, result) -> Computation:
        """The per-device version of a computation. given: the layouts of the parameters, as trees; result: of the
        root."""
        return self.read(computation, given, result)[0]

    def read(self, computation: Computation, given: Sequence, result) -> tuple[Computation, list]:
        """(the per-device version of a computation, the layouts in which it reads its parameters)."""
        key = (id(computation), frozen(list(given)), frozen(result))
        known = self.partitioner.computations.get(key)
        if known is None:
            scope = Scope(self.partitioner, computation.name)
            for parameter, layouts in zip(computation.parameters, given, strict=True):
                local = scope.builder.parameter(tree_shape(parameter.shape, layouts), parameter.hint, parameter.source)
                scope.values[parameter] = scope.taken_apart(local, parameter.shape, layouts)
            tree = self.walk(scope, computation)
            scope.mover.why = f"the result of {computation.name}"
            made = sweep(scope.builder.finish(scope.joined(tree, result)))
            wanted = [
                read_layouts(made, scope.values[p], y) for p, y in zip(computation.parameters, given, strict=True)
            ]
            known = made, wanted
            # The computation is stored with its result, so that its id is not reused.
            self.partitioner.computations[key] = known
            self.partitioner.kept.append(computation)
        return known

    # --- tuples ---

    def _tuple(self, scope: Scope, instruction: Instruction) -> None:
        scope.values[instruction] = [scope.values[o] for o in instruction.operands]

    def _element(self, scope: Scope, instruction: Instruction) -> None:
        scope.values[instruction] = scope.values[instruction.operands[0]][instruction["index"]]

    def _constant(self, scope: Scope, instruction: Instruction) -> None:
        value = instruction["value"]
        layout = scope.wanted(instruction)[0]
        if layout is not None and layout.axes and value.size and (value == value.flat[0]).all():
            layout = scope.layouts.of(layout.dims)
            made = scope.builder.splat(value.flat[0], instruction.shape.with_dims(layout.local(value.shape)))
            scope.hold(instruction, [made], [layout])
            return
        scope.hold(instruction, [scope.builder.constant(value)], [scope.layouts.whole(value.ndim)])

    def _barrier(self, scope: Scope, instruction: Instruction) -> None:
        trees = [scope.values[o] for o in instruction.operands]
        tree = trees[0] if len(trees) == 1 else trees
        held = list(leaves(tree))
        layouts = [h.layout for h in held]
        made = scope.builder.emit("optimization-barrier", *(h.versions[y] for h, y in zip(held, layouts, strict=True)))
        values = scope.elements(made, len(held)) if len(held) > 1 else [made]
        new = iter([Held(h.shape, {y: v}) for h, y, v in zip(held, layouts, values, strict=True)])
        scope.values[instruction] = _rebuilt(tree, new)

    def _constraint(self, scope: Scope, instruction: Instruction) -> None:
        layout = self.partitioner.layout(instruction["sharding"], instruction.shape.rank)
        own = scope.wanted(instruction)[0]
        layout = own if own is not None else layout
        scope.mover.why = "sharding constraint"
        value = scope.read(scope.values[instruction.operands[0]], layout)
        scope.hold(instruction, [value], [layout])

    def _manual(self, scope: Scope, instruction: Instruction) -> None:
        manual(scope, instruction, self.walk)

    # --- calls, loops, branches ---

    def _call(self, scope: Scope, instruction: Instruction) -> None:
        callee = instruction["to_apply"]
        saved = {i: scope.values.pop(i) for i in callee.instructions if i in scope.values}
        for parameter, operand in zip(callee.parameters, instruction.operands, strict=True):
            scope.values[parameter] = scope.values[operand]
        found = self.walk(scope, callee, inlined=True)
        for i in callee.instructions:
            scope.values.pop(i, None)
        scope.values.update(saved)
        scope.values[instruction] = found

    def settled(self, scope: Scope, instruction: Instruction, callees: Sequence[Computation]):
        """The layouts of loop state, or of the results of branches, from their shardings. Partial sums are kept if the
        program states that all callees return them: they are reduced when the sum is read."""
        shape = instruction.shape
        found = without_sums(scope, scope.layout_tree(shape, instruction.sharding))
        stated = [scope.layout_tree(callee.shape, callee.root.sharding) for callee in callees]
        return _with_sums(scope, found, stated)

    def _while(self, scope: Scope, instruction: Instruction) -> None:
        (operand,) = instruction.operands
        layouts = self.settled(scope, instruction, [instruction["body"]])
        layouts = self._kept_layouts(instruction["body"], layouts)
        scope.mover.why = "the state of a loop"
        state = scope.joined(scope.values[operand], layouts)
        body = self.computation(instruction["body"], [layouts], layouts)
        condition = self.computation(instruction["condition"], [layouts], scope.layouts.whole(0))
        made = scope.builder.emit("while", state, condition=condition, body=body, hint=instruction.hint)
        scope.values[instruction] = scope.taken_apart(made, instruction.shape, layouts)

    def _kept_layouts(self, body: Computation, layouts):
        """The layouts of a loop's state, in which invariant elements have the layout that the body reads."""
        (parameter,) = body.parameters
        if not isinstance(layouts, list) or body.root.opcode != "tuple":
            return layouts
        _, (read,) = self.read(body, [layouts], layouts)
        kept = [
            o.opcode == "get-tuple-element" and o.operands[0] is parameter and o["index"] == k
            for k, o in enumerate(body.root.operands)
        ]
        return [new if same else old for new, old, same in zip(read, layouts, kept, strict=True)]

    def _conditional(self, scope: Scope, instruction: Instruction) -> None:
        layouts = self.settled(scope, instruction, instruction["branch_computations"])
        scope.mover.why = "the condition of a branch"
        selector = scope.read(scope.values[instruction.operands[0]], scope.layouts.whole(0))
        given, branches = [], []
        for operand, branch in zip(instruction.operands[1:], instruction["branch_computations"], strict=True):
            (parameter,) = branch.parameters
            tree = scope.values[operand]
            own = without_sums(scope, scope.layout_tree(parameter.shape, parameter.sharding, _layouts_of(tree)))
            scope.mover.why = "the operand of a branch"
            given.append(scope.joined(tree, own))
            branches.append(self.computation(branch, [own], layouts))
        made = scope.builder.emit(
            "conditional", selector, *given, branch_computations=tuple(branches), hint=instruction.hint
        )
        scope.values[instruction] = scope.taken_apart(made, instruction.shape, layouts)

    def _scan(self, scope: Scope, instruction: Instruction) -> None:
        body, attributes = instruction["body"], instruction.attributes
        results = self.settled(scope, instruction, [body])
        carried = attributes["num_carry"]
        carry = results[:carried]
        # The scanned dimension is not split.
        ys = [scope.layouts.of(y.dims[1:], y.unreduced) for y in results[carried:]]
        consts, _, xs = split_scan(attributes, [scope.values[o] for o in instruction.operands])
        own_consts, _, own_xs = split_scan(attributes, body.parameters)
        const_layouts = [
            without_sums(scope, scope.layout_tree(p.shape, p.sharding, _layouts_of(t)))
            for p, t in zip(own_consts, consts, strict=True)
        ]
        x_layouts = [
            without_sums(scope, scope.layout_tree(p.shape, p.sharding, scope.layouts.of(h.layout.dims[1:])))
            for p, h in zip(own_xs, xs, strict=True)
        ]
        _, read = self.read(body, [*const_layouts, *carry, *x_layouts], [*carry, *ys])
        const_layouts = read[: len(const_layouts)]  # invariants are resharded once
        inner = self.computation(body, [*const_layouts, *carry, *x_layouts], [*carry, *ys])
        along = [*x_layouts, *ys]
        stacked = [scope.layouts.of(((), *y.dims), y.unreduced) for y in along]
        layouts = [*const_layouts, *carry, *stacked[: len(xs)]]
        scope.mover.why = "operands of a scan"
        given = [scope.joined(scope.values[o], y) for o, y in zip(instruction.operands, layouts, strict=True)]
        made = scope.builder.emit("scan", *given, **{**attributes, "body": inner}, hint=instruction.hint)
        scope.values[instruction] = scope.taken_apart(made, instruction.shape, [*carry, *stacked[len(xs) :]])


def without_sums(scope: Scope, tree):
    """A tree of layouts without partial sums."""
    if isinstance(tree, list):
        return [without_sums(scope, t) for t in tree]
    return scope.layouts.of(tree.dims) if tree.unreduced else tree


def _with_sums(scope: Scope, tree, stated: Sequence):
    """A tree of layouts with the partial sums that the trees of `stated` have in common."""
    if isinstance(tree, list):
        return [_with_sums(scope, t, each) for t, *each in zip(tree, *stated, strict=True)]
    sums = {one.unreduced for one in stated}
    (axes, *others) = sums
    return tree if others or set(axes) & set(tree.axes) else scope.layouts.of(tree.dims, axes)


def _layouts_of(tree: Tree):
    """The layouts of a tree of values."""
    return [_layouts_of(t) for t in tree] if isinstance(tree, list) else tree.layout


def _rebuilt(tree: Tree, new) -> Tree:
    return [_rebuilt(t, new) for t in tree] if isinstance(tree, list) else next(new)
