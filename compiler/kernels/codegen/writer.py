"""Expressions for elements: walks a fused computation from an output's index to the loads, composing index maps.

Broadcast, reshape, transpose, slice, reverse, pad, concatenate, iota and dynamic-slice become arithmetic on indexes; no
copy is made. Every value is written into the outermost block of the nest in which all that it needs is defined.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from hloom.compiler.kernel_ir.builder import (
    ONE,
    call,
    cast,
    chosen,
    compared,
    constant,
    load,
    operation,
    store,
    unary,
)
from hloom.compiler.kernel_ir.builder import (
    ZERO as NOTHING,
)
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.names import Names
from hloom.compiler.kernel_ir.nodes import Expr, Load, Var
from hloom.compiler.kernel_ir.of_ops import applied
from hloom.compiler.kernels.codegen.affine import ZERO, Affine, Index, linear, row_major_strides
from hloom.compiler.kernels.codegen.constants import argument, literal
from hloom.compiler.kernels.codegen.description import Block, Branch
from hloom.compiler.kernels.codegen.guards import Condition, all_of, conditions
from hloom.compiler.reshapes import without_ones_groups
from hloom.ir.module import Instruction
from hloom.ir.ops import OPS
from hloom.ir.ops.indexing.gather import gather_windows
from hloom.ir.sizes.guards import decided
from hloom.ir.types import HLO_NAME, compute_dtype

MASKS = {"f32": "u32", "f64": "u64"}  # dtype of a register -> integers of its size


class Writer:
    """Writes the elements of one fused computation.

    inputs: parameter instruction -> pointer name. names: of the function's variables, where it has others besides.
    `overrides`: instruction -> the value it has in the current nest (the sums of a contraction, the results of
    reductions); its index is not looked at.
    """

    def __init__(self, inputs: dict[Instruction, str], dims: tuple[int, ...], names: Names | None = None):
        self.inputs = inputs
        self.dims = dims
        self.names = Names(by_name) if names is None else names
        self.overrides: dict[Instruction, tuple[Expr, Block]] = {}
        self.elements: dict[Instruction, list[tuple[Expr, Block]]] = {}  # the results of reductions of several operands
        self.integers: dict[str, int] = {}
        self.ranges: dict[int, tuple[int, int]] = {}  # first and last of an index in the piece that is being written
        self.guards: list[tuple[Affine, int]] = []  # (position, size) of each condition that is left to the text
        self.sized: frozenset[Instruction] = frozenset()  # constants that are arguments
        self.masks = False  # whether what is outside of an operand may be masked, see `masked`
        self.literals = 0  # coefficients and constants of indexes up to this are part of the text, not arguments
        self.expressions: dict[str, Callable[..., tuple[Expr, Block]]] = {}  # further index maps that this nest has
        self.piece = 0  # a value in one piece of a loop is not the one in another
        self.used: list[Affine] = []  # every affine expression that was written: what may be merged is decided by them
        self.loads: dict[str, set[Affine]] = {}
        self.load_sites: list[tuple[Block, Var, Affine, np.dtype, Load]] = []  # (block, value, place, dtype, load)
        self.merged: dict[int, str | None] = {k: f"i{k}" for k in range(len(dims))}  # names of domain dimensions
        self.counter = 0
        self.root = Block(names=self.names)

    # --- names ---

    def fresh(self, prefix: str = "v") -> str:
        """A name that no variable around the elements has."""
        while True:
            name = f"{prefix}{self.counter}"
            self.counter += 1
            if self.names.get(name) is None:
                return name

    def index(self, name: str) -> Var:
        """The integer variable of a name."""
        return self.names.declare(name, "s64")

    def pointer(self, name: str, dtype: np.dtype) -> Var:
        """The pointer of a name."""
        return self.names.declare(name, f"*{HLO_NAME[dtype]}")

    def integer(self, name: str, value: int) -> Var:
        """An integer argument of this value, whose name begins so."""
        candidate, count = name, 1
        while candidate in self.integers and self.integers[candidate] != value:
            count += 1
            candidate = f"{name}_{count}"
        self.integers[candidate] = value
        return self.index(candidate)

    def _number(self, name: str, value: int) -> Expr:
        literal = decided(value) if 0 <= value <= self.literals else None
        return self.integer(name, value) if literal is None else constant(literal)

    def set_domain(self, groups: list[list[int]]) -> None:
        """Merges domain dimensions, each a variable of its own by default: group g becomes the variable i<g>,
        with the coefficients of its last dimension."""
        self.merged = dict.fromkeys(range(len(self.dims)))
        for g, group in enumerate(groups):
            self.merged[group[-1]] = f"i{g}"

    def variable_names(self, affine: Affine) -> list[tuple[str, int]]:
        """(variable name, coefficient) of the terms, after merging."""
        terms = []
        for variable, coefficient in affine.terms.items():
            name = variable if isinstance(variable, str) else self.merged[variable]
            if name is not None:
                terms.append((name, coefficient))
        return terms

    def position(self, affine: Affine, prefix: str) -> Expr:
        """The expression of an affine index. Coefficients other than 0 and 1 and the constant are integer arguments."""
        self.used.append(affine)
        return self._position(affine, prefix)

    def _position(self, affine: Affine, prefix: str) -> Expr:
        total: Expr | None = None
        for name, coefficient in self.variable_names(affine):
            role = name.removeprefix("t_")  # the contraction's own variables begin so, arguments must not
            term: Expr = self.index(name)
            if coefficient != 1:
                term = operation("*", term, self._number(f"{prefix}_{role}", coefficient))
            total = term if total is None else operation("+", total, term)
        if affine.constant:
            number = self._number(f"{prefix}_o", affine.constant)
            total = number if total is None else operation("+", total, number)
        return NOTHING if total is None else total

    # --- placement ---

    def place(self, current: Block, affines, blocks) -> Block:
        """The outermost block around `current` where these index variables and values are defined."""
        needed = {name for affine in affines for name, _ in self.variable_names(affine)}
        candidate = current
        for block in current.chain():
            if not needed <= block.variables or any(not _contains(b, block) for b in blocks):
                return candidate
            candidate = block
        return candidate

    def place_of_choice(self, instruction: Instruction, affines, block: Block) -> Block:
        """The outermost block for a value that is chosen under conditions, at these indexes: a branch in an inner loop
        keeps it from being vectorized. What the nest itself computes is defined in its own blocks."""
        if self._uses_nest(instruction):
            return block
        return _innermost_guard(block, self.place(block, affines, ()))

    def _uses_nest(self, instruction: Instruction) -> bool:
        """Whether a value depends on one that the nest defines."""
        if not self.overrides and not self.elements:
            return False
        seen, stack = {instruction}, [instruction]
        while stack:
            found = stack.pop()
            if found in self.overrides or found.opcode == "get-tuple-element":
                return True
            if found not in self.inputs:
                stack += [o for o in found.operands if o not in seen]
                seen.update(found.operands)
        return False

    # --- elements ---

    def value(self, instruction: Instruction, index: Index, block: Block) -> Expr:
        """The element (a variable or a literal) of `instruction` at `index`, computed in or around `block`."""
        return self._value(instruction, index, block)[0]

    def _value(self, instruction: Instruction, index: Index, block: Block) -> tuple[Expr, Block]:
        key = (instruction, index, self.piece) if self.piece else (instruction, index)
        for around in block.chain():
            if key in around.memo:
                return around.memo[key]
        if instruction in self.overrides:
            return self.overrides[instruction]
        opcode = instruction.opcode
        if opcode == "get-tuple-element":
            return self.elements[instruction.operands[0]][instruction["index"]]
        if instruction in self.inputs:
            result = self._load(instruction, index, block)
        elif opcode == "constant":
            return self._constant(instruction, block)
        elif opcode in self.expressions:
            result = self.expressions[opcode](self, instruction, index, block)
        elif opcode in _INDEX_MAPS:
            result = _INDEX_MAPS[opcode](self, instruction, index, block)
        elif OPS[opcode].family == "elementwise":
            result = self._elementwise(instruction, index, block)
        else:
            raise AssertionError(f"{opcode} has no element expression; fusion asks has_expression first")
        result[1].memo[key] = result
        return result

    def _constant(self, instruction, block):
        value, dtype = instruction["value"].reshape(())[()], instruction.dtype
        if instruction not in self.sized:
            return literal(value, dtype), self.root
        target = self.place(block, (), ())
        role, number, make = argument(value, dtype)
        if (role, number) not in target.memo:
            name = self.fresh("c")
            target.memo[role, number] = target.let(name, make(self.integer(role, number))), target
        return target.memo[role, number]

    def _elementwise(self, instruction, index, block):
        arguments, blocks = [], []
        for operand in instruction.operands:
            name, where = self._value(operand, index if operand.dims or not index else (), block)
            arguments.append(name)
            blocks.append(where)
        target = self.place(block, (), blocks)
        made = applied(instruction, arguments)
        return (made if made in arguments else target.let(self.fresh(), made)), target

    def _load(self, instruction, index, block):
        pointer = self.inputs[instruction]
        affine = linear(index, instruction.dims)
        target = self.place(block, (affine,), ())
        # A guarded load must stay under its guard.
        target = _innermost_guard(block, target)
        self.loads.setdefault(pointer, set()).add(affine)
        name = self.fresh()
        element = load(self.names[pointer], self.position(affine, pointer))
        value = target.let(name, element)
        self.load_sites.append((target, value, affine, instruction.dtype, element))
        return value, target

    def masked(self, instruction: Instruction, affine: Affine, asked, positions, block: Block):
        """The element of an input, or zero where a condition does not hold, without a branch: (name, block).

        None where that is no gain: only a loop that is walked alone, and whose variable is in none of the positions
        that are asked for, has one answer for all of its elements. Its first element is then moved to where there is
        one, and what is read is masked. (A choice by a truth value would do: LLVM makes branches of it again, within
        the loop or around it.)
        """
        dtype = HLO_NAME[compute_dtype(instruction.dtype)]
        bits = MASKS.get(dtype)
        if not self.masks or instruction not in self.inputs or bits is None or 0 in instruction.dims:
            return None
        target = self.place(block, positions, ())
        if target is block or _innermost_guard(block, target) is not target:
            return None
        along = {
            variable: coefficient
            for variable, coefficient in affine.terms.items()
            if any(name not in target.variables for name, _ in self.variable_names(Affine(0, {variable: 1})))
        }
        if len(along) != 1 or min(along.values()) < 0:
            return None
        pointer = self.inputs[instruction]
        self.loads.setdefault(pointer, set()).add(affine)
        self.used.append(affine)
        key = ("mask", *asked)
        if key not in target.memo:
            signs = asked[0].sign
            for condition in asked[1:]:
                signs = operation("|", signs, condition.sign)
            negative = operation(">>", signs, constant(63))
            target.memo[key] = target.let(self.fresh("k"), operation("^", negative, unary("-", ONE))), target
        keep, _ = target.memo[key]
        outer = Affine(affine.constant, {v: c for v, c in affine.terms.items() if v not in along})
        begin, masking, name = self.fresh("b"), self.fresh("m"), self.fresh()
        first = target.let(begin, operation("&", self._position(outer, pointer), keep))
        mask = target.let(masking, cast(bits, keep))
        at = operation("+", first, self._position(Affine(0, along), pointer))
        element = call(f"bitcast_{dtype}_{bits}", (load(self.names[pointer], at),), by_name)
        kept = cast(bits, operation("&", element, mask))
        return block.let(name, call(f"bitcast_{bits}_{dtype}", (kept,), by_name)), block

    def store(self, pointer: str, affine: Affine, value: Expr, block: Block, streamed: bool = False) -> None:
        """Writes `value` to the place `affine` of an output; `streamed`: non-temporal, if the nest's stores are."""
        block.body.append(store(self.names[pointer], self.position(affine, pointer), value, streamed))


def _contains(outer: Block, inner: Block) -> bool:
    return any(b is outer for b in inner.chain())


def _innermost_guard(current: Block, target: Block) -> Block:
    """The first guarded block on the way from `current` out to `target`, or `target`."""
    for block in current.chain():
        if block is target or block.guarded:
            return block
    return target


# --- index maps: (writer, instruction, index, block) -> (name, block) ----------------------------------------------


def _broadcast(writer, instruction, index, block):
    return writer._value(instruction.operands[0], tuple(index[d] for d in instruction["dimensions"]), block)


def _transpose(writer, instruction, index, block):
    operand = instruction.operands[0]
    inner = [ZERO] * len(operand.dims)
    for k, d in enumerate(instruction["dimensions"]):
        inner[d] = index[k]
    return writer._value(operand, tuple(inner), block)


def _reverse(writer, instruction, index, block):
    operand = instruction.operands[0]
    inner = tuple(
        a * -1 + (extent - 1) if k in instruction["dimensions"] else a
        for k, (a, extent) in enumerate(zip(index, operand.dims, strict=True))
    )
    return writer._value(operand, inner, block)


def _slice(writer, instruction, index, block):
    inner = tuple(a * stride + start for a, (start, _, stride) in zip(index, instruction["slice"], strict=True))
    return writer._value(instruction.operands[0], inner, block)


def _reshape(writer, instruction, index, block):
    operand = instruction.operands[0]
    inner = [ZERO] * len(operand.dims)
    for olds, news in without_ones_groups(operand.dims, instruction.dims):
        strides = row_major_strides([instruction.dims[k] for k in news])
        position = ZERO
        for k, stride in zip(news, strides, strict=True):
            position = position + index[k] * stride
        if len(olds) == 1:
            inner[olds[0]] = position
            continue
        old_strides = row_major_strides([operand.dims[k] for k in olds])
        split = _split_affine(writer, position, [operand.dims[k] for k in olds], old_strides)
        if split is None:
            split, block = _split_by_division(writer, position, old_strides, block)
        for k, part in zip(olds, split, strict=True):
            inner[k] = part
    return writer._value(operand, tuple(inner), block)


def _split_affine(writer, position: Affine, extents, strides):
    """The coordinates of a position where its terms fall apart by strides, or None where a division is needed."""
    parts = [ZERO] * len(extents)
    highest = [0] * len(extents)
    if position.constant:
        return None
    for variable, coefficient in position.terms.items():
        if isinstance(variable, str) or coefficient < 0:
            return None
        for k, stride in enumerate(strides):
            if coefficient % stride == 0:
                parts[k] = parts[k] + Affine(0, {variable: coefficient // stride})
                highest[k] += coefficient // stride * (writer.dims[variable] - 1)
                break
    return parts if all(h < e for h, e in zip(highest, extents, strict=True)) else None


def _split_by_division(writer, position: Affine, strides, block):
    target = writer.place(block, (position,), ())
    target = _innermost_guard(block, target)
    key = ("split", position, tuple(strides))
    if key in target.memo:
        return target.memo[key], block
    rest, parts = writer.position(position, "q"), []
    for stride in strides[:-1]:
        above, below = writer.fresh("q"), writer.fresh("q")
        divisor = writer.integer("q_s", stride)
        quotient = target.let(above, operation("//", rest, divisor))
        rest = target.let(below, operation("-", rest, operation("*", quotient, divisor)))
        target.variables = target.variables | {above, below}
        parts.append(Affine(0, {above: 1}))
    parts.append(Affine(0, {str(rest): 1}))
    extend_variables(block, target)
    target.memo[key] = parts
    return parts, block


def extend_variables(block: Block, target: Block) -> None:
    """Blocks inside `target` that are open see its new variables too."""
    inside = []
    for b in block.chain():
        if b is target:
            break
        inside.append(b)
    for b in reversed(inside):
        b.variables = b.variables | target.variables


def _conditional(writer, block, asked: Sequence[Condition | Expr], default: Expr, inside):
    """value = default; if conditions: value = inside(branch). The value is written where `block` is."""
    var = block.let(writer.fresh(), default)
    _branch(block, var, asked, inside)
    return var, block


def _branch(block: Block, var: Var, asked: Sequence[Condition | Expr], inside: Callable[[Block], Expr]) -> None:
    branch = block.child()
    branch.guarded = True
    branch.let(var.name, inside(branch))
    block.body.append(Branch(all_of(asked), branch))


def _pad(writer, instruction, index, block):
    operand, padding_value = instruction.operands
    asked: list[Condition | Expr] = []
    inner: list[Affine] = []
    divided: list[tuple[int, Expr]] = []
    positions: list[Affine] = []
    for affine, extent, (low, _, interior) in zip(index, operand.dims, instruction["padding"], strict=True):
        position = affine + -low
        spread = extent + max(extent - 1, 0) * interior
        here = conditions(writer, position, spread)
        if here is None:
            return writer._value(padding_value, (), block)
        asked += here
        positions += [position] * bool(here)
        if interior:
            place = writer.position(position, "p")
            step = writer.integer("p_d", interior + 1)
            asked.append(compared("==", operation("%", place, step), NOTHING))
            divided.append((len(inner), operation("//", place, step)))
        inner.append(position)

    def inside(branch):
        for k, place in divided:
            name = writer.fresh("q")
            branch.let(name, place)
            branch.variables = branch.variables | {name}
            inner[k] = Affine(0, {name: 1})
        return writer._value(operand, tuple(inner), branch)[0]

    if not asked:
        return writer._value(operand, tuple(inner), block)
    if not divided and _is_zero(padding_value):
        masked = writer.masked(operand, linear(tuple(inner), operand.dims), asked, positions, block)
        if masked:
            return masked
    block = writer.place_of_choice(instruction, index, block)
    return _conditional(writer, block, asked, writer.value(padding_value, (), block), inside)


def _is_zero(instruction: Instruction) -> bool:
    return instruction.opcode == "constant" and not instruction["value"].tobytes().strip(b"\0")


def _concatenate(writer, instruction, index, block):
    (d,) = instruction["dimensions"]
    start, possible = 0, []
    for operand in instruction.operands:
        position = index[d] + -start
        asked = conditions(writer, position, operand.dims[d])
        if asked is not None:
            possible.append((operand, (*index[:d], position, *index[d + 1 :]), asked))
        start += operand.dims[d]
    if len(possible) == 1:
        operand, inner, _ = possible[0]
        return writer._value(operand, inner, block)
    block = writer.place_of_choice(instruction, index, block)
    var = block.let(writer.fresh(), literal(0, instruction.dtype))
    for operand, inner, asked in possible:
        _branch(block, var, asked, functools.partial(writer.value, operand, inner))
    return var, block


def window_starts(writer, starts, dims, sizes, block):
    """The clamped start of a window in each dimension, as index variables."""
    names = []
    for start, extent, size in zip(starts, dims, sizes, strict=True):
        room = extent - size
        if room == 0:
            names.append(ZERO)
            continue
        value, where = writer._value(start, (), block)
        names.append(_clamped(writer, value, start.dtype, where, ("start", start), room, block))
    return names


def _clamped(writer, value: Expr, dtype: np.dtype, where: Block, key: tuple, room: int, block: Block) -> Affine:
    """An index variable for a value of the block `where`, clamped to 0..room. key: the same value has the same.

    A u64 of 2^63 or more is negative as s64, and lies beyond the end."""
    key = (*key, room)
    found = next((b.memo[key] for b in block.chain() if key in b.memo), None)
    if found is None:
        name = writer.fresh("q")
        limit = writer.integer("q_n", room)
        start, least = cast("s64", value), cast("s64", NOTHING)
        inside = call("min", (call("max", (start, least), by_name), limit), by_name)
        if dtype == np.uint64:
            inside = chosen(compared("<", start, least), limit, inside)
        where.let(name, inside)
        where.variables = where.variables | {name}
        extend_variables(block, where)
        found = where.memo[key] = Affine(0, {name: 1})
    return found


def _dynamic_slice(writer, instruction, index, block):
    operand, *starts = instruction.operands
    begin = window_starts(writer, starts, operand.dims, instruction.dims, block)
    return writer._value(operand, tuple(a + b for a, b in zip(index, begin, strict=True)), block)


def _dynamic_update_slice(writer, instruction, index, block):
    operand, update, *starts = instruction.operands
    begin = window_starts(writer, starts, operand.dims, update.dims, block)
    inner = tuple(a + b * -1 for a, b in zip(index, begin, strict=True))
    asked = []
    for affine, extent, whole in zip(inner, update.dims, operand.dims, strict=True):
        here = conditions(writer, affine, extent) if extent < whole else []
        if here is None:
            return writer._value(operand, index, block)
        asked += here
    if not asked:
        return writer._value(update, inner, block)
    block = writer.place_of_choice(instruction, (*index, *inner), block)
    default = writer.value(operand, index, block)
    return _conditional(writer, block, asked, default, lambda branch: writer.value(update, inner, branch))


def _gather(writer, instruction, index, block):
    """The element at the clamped start of the window, which is read at this index, plus the place in the window."""
    operand, indices = instruction.operands
    w = gather_windows(operand.dims, indices.dims, instruction.attributes)
    which = [index[k] for k in w.places]
    inner = [ZERO] * len(operand.dims)
    for place, d in zip(w.offset, w.window_dimensions, strict=True):
        inner[d] = index[place]
    for d, k in zip(w.operand_batching, w.indices_batching, strict=True):
        inner[d] = which[w.index_dimensions.index(k)]
    for component, (d, room) in enumerate(zip(w.mapped, w.limits(), strict=True)):
        if room > 0:
            start, block = gathered_start(writer, indices, w, which, component, room, block)
            inner[d] = inner[d] + start
    return writer._value(operand, tuple(inner), block)


def gathered_start(writer, indices, w, which, component: int, room: int, block):
    """(the clamped start along one dimension as an index variable, the block)."""
    value, where = start_value(writer, indices, w, which, component, block)
    return _clamped(writer, value, indices.dtype, where, ("gathered", value), room, block), block


def start_value(writer, indices, w, which, component: int, block):
    """The element of the indexes that is this component of the start of the window `which`; as `Writer._value`."""
    place = [ZERO] * len(indices.dims)
    for d, affine in zip(w.index_dimensions, which, strict=True):
        place[d] = affine
    if w.vector < len(indices.dims):
        place[w.vector] = Affine(component)
    return writer._value(indices, tuple(place), block)


def _iota(writer, instruction, index, block):
    affine = index[instruction["iota_dimension"]]
    target = _innermost_guard(block, writer.place(block, (affine,), ()))
    name = writer.fresh()
    dtype = HLO_NAME[compute_dtype(instruction.dtype)]
    return target.let(name, cast(dtype, writer.position(affine, "c"))), target


def _size(writer, instruction, index, block):
    target = writer.place(block, (), ())
    dtype = HLO_NAME[instruction.dtype]
    key = ("size", dtype, instruction["value"])
    if key not in target.memo:
        name = writer.fresh("c")
        value = cast(dtype, writer.integer(f"constant_{dtype}", instruction["value"]))
        target.memo[key] = target.let(name, value), target
    return target.memo[key]


_INDEX_MAPS = {
    "broadcast": _broadcast,
    "transpose": _transpose,
    "reverse": _reverse,
    "slice": _slice,
    "reshape": _reshape,
    "pad": _pad,
    "concatenate": _concatenate,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _gather,
    "iota": _iota,
    "size": _size,
}
