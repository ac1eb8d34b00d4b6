"""A user's kernel at given shapes and dtypes: its phases, temporaries and results.

A phase is one parallel loop, or the statements between two of them, which run once. Numbers that a phase needs of an
earlier one are passed in memory.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from hloom.compiler.kernel_ir.nodes import Assign, Binary, Const, For, Scratch, Stmt, Store, Var
from hloom.errors import ArgumentError, ShapeError, UndecidedSizeError
from hloom.ir.records import record, replace
from hloom.ir.source import Source
from hloom.ir.types import DTYPES, HLO_NAME, Shape, default_dtype
from hloom.kernels import language
from hloom.kernels.frontend import functions
from hloom.kernels.frontend.memory import Check, WritesArgument
from hloom.kernels.frontend.names import Again, Widen
from hloom.kernels.frontend.numpy_rules import RULES
from hloom.kernels.frontend.statements import Statements
from hloom.kernels.frontend.syntax import assigned_names, carried_names
from hloom.kernels.frontend.values import S64, Lazy, Number, Static, Value, View, integer
from hloom.kernels.programs import Array, Body, Draft, Names, Table, Tile, fault_array, passed_on

__all__ = ["Lowered", "Lowering", "Part", "lowered"]

# Names that kernel text has a meaning for.
_RESERVED = frozenset(
    ("min", "max", "range", "lo", "hi", "item", "fault", "inf", "nan", "select", "quotient", "address", "part", "fma",
     "prefetch", "pass", "and", "or", "not", "call_kernel")
)  # fmt: skip
_INNER = 32  # iterations from which on the last index of a parallel loop is a loop of its own in an item


@record(frozen=True)
class Lowered:
    """body: the loops; where there are checks, the last result is `fault`. result: what the function returns, as a tree
    of numbers of results. checks: the meaning of each fault. proved: indices that need none. changed: the indices of
    results that are the last values of arguments. weak: indices of results that are Python numbers."""

    body: Body
    fault: Var
    result: Any
    checks: tuple[Check, ...]
    proved: int
    changed: Mapping[str, int]
    weak: frozenset[int]


@record(frozen=True)
class Part:
    """An array that is a part of an argument, where its elements lie: strides and start are in elements."""

    of: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    start: int


def lowered(
    definition: ast.FunctionDef, file: str, above: int, outside: Mapping[str, Any], arguments: Mapping[str, Any],
    name: str, weak: frozenset[str] = frozenset(), unchecked: bool = False, prange: bool = True,
    parts: Mapping[str, Part] | None = None, written: set[str] | None = None,
    lowering: Callable[..., Lowering] | None = None,
) -> Lowered:  # fmt: skip
    """The kernel.

    arguments: a Shape for each array, else a Python value. weak: names of Python numbers. prange: whether
    `numba.prange` divides a loop among the cores. parts: names of parts of arguments. written: arguments that the
    kernel may write instead of copying them; arguments found to be written are added. None: it may write none.
    lowering: the language of the kernel. Raises the errors of the kernel's mistakes, at their lines.
    """
    lowering = lowering or Lowering
    declared: dict[str, tuple[np.dtype, bool]] = {}
    while True:
        made = lowering(definition, file, above, outside, name, weak, declared, unchecked, prange)
        try:
            return made.run(definition, arguments, parts or {}, written or ())
        except Widen as found:
            declared[found.key] = (found.dtype, found.weak)
        except Again:
            continue
        except WritesArgument as found:
            if written is None:
                raise
            written.add(made.argument_of(found.pointer))


class Lowering(Statements):
    """A function becomes the phases of a kernel, statement by statement."""

    rules = RULES

    def __init__(
        self, definition: ast.FunctionDef, file: str, above: int, outside: Mapping[str, Any], name: str,
        weak: frozenset[str], declared: dict[str, tuple[np.dtype, bool]], unchecked: bool,
        prange: bool,
    ):  # fmt: skip
        super().__init__(Source(file, above + definition.lineno, name), _RESERVED, unchecked)
        self.file, self.above, self.function, self.outside = file, above, name, outside
        self.names, self.unset, self.bound_in, self.owners = {}, set(), {}, {}
        self.own = {*assigned_names(definition.body), *[a.arg for a in definition.args.args]}
        self.weak, self.implied, self.prange = weak, {}, prange
        self.declared, self.cells, self.stack = declared, {}, []
        self.drafts: list[Draft] = []
        self.scratches: list[Scratch] = []
        self.prologue: list[Stmt] = []
        self.inputs: dict[Var, Array] = {}
        self.pointers: dict[str, Var] = {}  # of arguments
        self.tables: dict[Table, View] = {}
        self.made: dict[Var, View] = {}  # arrays that the kernel makes, by pointer
        self.scalars: dict[str, View] = {}  # arguments of no dimension
        self.read: dict[str, Number] = {}  # of these, in this phase
        self.within = False  # a parallel loop
        self.outer: set[Var] = set()  # variables of numbers from before the parallel loop
        self.returned: dict[Var, int] = {}
        self.weak_results: set[int] = set()
        self.digits: tuple[Var, ...] = ()
        self.tiles: dict[Var, Tile] = {}
        self.lengths: dict[tuple[Var, Var], Number] = {}  # of tiles, by stop and start

    def fresh(self, hint: str) -> str:
        return super().fresh(f"{hint}_v" if hint.rpartition("_")[2] in DTYPES else hint)

    # --- the whole

    def argument_of(self, pointer: Var) -> str:
        """The name of the argument that lies there."""
        return next(name for name, own in self.pointers.items() if own is pointer)

    def run(
        self, definition: ast.FunctionDef, arguments: Mapping[str, Any], parts: Mapping[str, Part],
        written: Iterable[str],
    ) -> Lowered:  # fmt: skip
        self.carried = carried_names(definition.body, [*arguments, *parts])
        number = 0
        for name, value in arguments.items():
            if isinstance(value, Shape):
                self.names[name] = self._argument(name, value, number)
                number += 1
            else:
                self.names[name] = self._from_outside(name, value)
        changed = {}
        for name in sorted(written):
            given = self.names[name]
            assert isinstance(given, View)
            made = self._copied(given)
            self.drafts[-1] = replace(self.drafts[-1], copies=(made.pointer, given.pointer))
            changed[name] = self.names[name] = replace(made, name=name)
        for name, part in parts.items():
            self.names[name] = self._part_of(part, name)
        *statements, last = definition.body
        if not isinstance(last, ast.Return) or last.value is None:
            self.refuse(ArgumentError, f"the kernel '{self.function}'", "it returns nothing",
                        "return the arrays that it makes")  # fmt: skip
        self.block_of(statements)
        with self.at(last):
            result = self._results(self.value(last.value))
            numbers = {name: self._results(view) for name, view in changed.items()}
        self._flush()
        return self._finish(result, numbers)

    def _part_of(self, part: Part, name: str) -> View:
        whole = self.names[part.of]
        assert isinstance(whole, View)
        dims, strides = [tuple(map(integer, numbers)) for numbers in (part.dims, part.strides)]
        return View(whole.pointer, whole.dtype, dims, strides, integer(part.start), name, whole.writable)

    def _argument(self, name: str, shape: Shape, number: int) -> Value:
        pointer = Var(f"*{HLO_NAME[shape.dtype]}", self.fresh(name))
        self.inputs[pointer] = Array(shape.dtype, shape.dims, "in", number)
        self.pointers[name] = pointer
        sizes = [self._size(n, f"{name}_{k}") for k, n in enumerate(shape.dims)]
        view = View(pointer, shape.dtype, tuple(sizes), self.strides(sizes), integer(0), name)
        if not sizes:
            self.scalars[name] = view
        return view

    def _from_outside(self, name: str, value: Any) -> Value:
        return self._table(name, value) if isinstance(value, Table) else super()._from_outside(name, value)

    def _table(self, name: str, table: Table) -> View:
        """Constants, which are no operand."""
        found = self.tables.get(table)
        if found is None:
            values = table.values
            pointer = Var(f"*{HLO_NAME[values.dtype]}", self.fresh(name))
            self.inputs[pointer] = Array(values.dtype, values.shape, "table", shared=True, table=table)
            sizes = tuple(map(integer, values.shape))
            found = View(pointer, values.dtype, sizes, self.strides(sizes), integer(0), name)
            self.tables[table] = found
        return found

    def _size(self, value: int, hint: str) -> Number:
        """A size: small ones are written into the kernel, others are its arguments."""
        if not isinstance(value, int):
            self.refuse(
                UndecidedSizeError, f"the kernel '{self.function}' is compiled for a size that calls decide",
                f"{value}, which is known only when the program is called",
                "call it in a function without dims=, so that each size is compiled",
            )  # fmt: skip
        if value < 9:
            return integer(value)
        var = Var("s64", self.fresh(hint))
        self.loops.known[var] = value
        self.spans[var] = (value, value)
        return Number(var, S64, True, (value, value), value)

    def of_name(self, node: ast.Name) -> Value:
        """A number that was passed is read once in each phase."""
        view = self.scalars.get(node.id)
        if view is None or self.names.get(node.id) is not view:
            return super().of_name(node)
        found = self.read.get(node.id)
        if found is None:
            outer, self.block = self.block, self.prologue
            loaded = self.load(view, ())
            weak = node.id in self.weak
            found = self.read[node.id] = Number(
                self.named(loaded.expr, f"{node.id}_value"), view.dtype, weak, loaded.span
            )
            self.block = outer
        return found

    # --- arrays that the kernel makes

    def _known(self, name: str, given: list[Value], named: dict[str, Value], text: str) -> Value:
        if name in functions.MADE:
            return self._new(name, given, dict(named), text)
        if name == "copy" and not self.within and not self.depth and isinstance(given[0], (View, Lazy)):
            return self._copied(given[0])
        return super()._known(name, given, named, text)

    def _new(self, name: str, given: list[Value], named: dict[str, Value], text: str) -> View:
        """np.empty(shape, dtype) and its like."""
        given = list(given)
        if name.endswith("_like"):
            model = self.as_operand(given.pop(0), text)
            dims = () if isinstance(model, Number) else model.dims
            dtype = model.dtype
        else:
            dims = self._dims(given.pop(0) if given else named.pop("shape"), text)
            dtype = default_dtype(float)
        number = self._first_value(name, given, named, text)
        if given or "dtype" in named:
            dtype = self.dtype(given.pop(0) if given else named.pop("dtype"), text)
        elif name == "full" and number is not None:
            dtype = self._strong(number)
        if named or given:
            self.unsupported(f"arguments of {text:.60}", "pass a shape and a dtype")
        inside = self.within or self.depth
        view = self.scratch(dims, dtype, self._hint()) if inside else self._global(dims, dtype, text)
        if number is not None:
            (self.assign if inside else self._fill)(view, number)
        return view

    def _dims(self, shape: Value, text: str) -> tuple[Number, ...]:
        sizes = self.static(shape)
        entries = sizes if isinstance(sizes, tuple) else (sizes,)
        return tuple([self.whole(self.as_operand_number(self.as_value(n), text)) for n in entries])

    def _first_value(self, name: str, given: list[Value], named: dict[str, Value], text: str) -> Number | None:
        """What the elements are at first; None: it is not said."""
        if name.startswith("full"):
            return self.as_operand_number(given.pop(0) if given else named.pop("fill_value"), text)
        fill = {"zeros": 0, "ones": 1}.get(name.removesuffix("_like"))
        return None if fill is None else self.number(fill)

    @staticmethod
    def _strong(number: Number) -> np.dtype:
        """The dtype of an array of a number."""
        if not number.weak:
            return number.dtype
        return default_dtype({"f": float, "b": bool}.get(number.dtype.kind, int))

    def _hint(self) -> str:
        return self.assigning or "made"

    assigning: str = ""

    def do_assign(self, node: ast.Assign) -> None:
        match node.targets:
            case [ast.Name(id=name)]:
                self.assigning = name
        super().do_assign(node)
        self.assigning = ""

    def _global(self, dims: Sequence[Number], dtype: np.dtype, text: str) -> View:
        """An array of all iterations."""
        sizes = []
        for size in dims:
            if size.known is None:
                self.refuse(
                    ArgumentError, f"{text:.60}", "its size is the value of an argument, which is not known now",
                    "take sizes from shapes, or name the argument in static_argnames",
                )  # fmt: skip
            if size.known < 0:
                self.refuse(ShapeError, f"{text:.60}", f"a size of {size.known}", "give sizes that are not negative")
            sizes.append(size)
        name = self.fresh(self._hint())
        pointer = Var(f"*{HLO_NAME[dtype]}", name)
        view = View(pointer, dtype, tuple(sizes), self.strides(sizes), integer(0), self._hint(), True)
        self.made[pointer] = view
        return view

    def _fill(self, view: View, value: Number) -> None:
        """A phase that sets all elements to one value."""
        with self._phase(self.product(view.dims)) as item:
            flat = self._flat(view)
            self.store(flat, [item], value)

    def _flat(self, view: View) -> View:
        return View(view.pointer, view.dtype, (self.product(view.dims),), (integer(1),), view.start, view.name, True)

    def _copied(self, array: View | Lazy) -> View:
        """x.copy() outside of loops: a phase that copies rows."""
        dtype = (
            default_dtype(float) if array.dtype.kind == "f" and isinstance(array, Lazy) and array.weak else array.dtype
        )
        made = self._global(array.dims, dtype, "copy")
        rows = made.dims[0] if len(made.dims) > 1 else self.product(made.dims)
        with self._phase(rows if made.dims else integer(1)) as item:
            if len(made.dims) > 1:
                source = self.taken_from(array, [item], "") if isinstance(array, View) else self._row(array, item)
                target = self.taken_from(made, [item], "")
                assert isinstance(target, View)
                self.assign(target, source)
            else:
                at = [item] if made.dims else []
                self.store(made, at, self.number_at(array, at))
        return made

    def kept(self, array: View | Lazy, hint: str) -> View:
        """Outside of loops and branches an array is memory of all phases."""
        if self.within or self.depth or self.conditions or any(size.known is None for size in array.dims):
            return super().kept(array, hint)
        return self._copied(array)

    @staticmethod
    def _row(array: Lazy, item: Number) -> Lazy:
        return Lazy(array.dims[1:], array.dtype, array.weak, lambda at: array.element([item, *at]), array.reads)

    # --- phases

    @contextmanager
    def _phase(self, items: Number):
        """A parallel loop over `items` iterations; yields the index of one."""
        self._flush()
        var = Var("s64", self.fresh("i"))
        high = None if items.known is None else items.known - 1
        item = Number(var, S64, span=(0, high))
        self.spans[var], self.limits[var] = item.span, items.expr
        self.loop_spans[var], self.digits = item.span, (var,)
        self.loops.parallel = {var: items.known}
        self.accesses = []
        self.within, self.outer = True, self._variables()
        kept = dict(self.names)
        yield item
        self.unset |= set(self.names) - set(kept)
        self.names = kept
        self.within, self.outer = False, set()
        self._end(var, items, self.combines)
        self.combines = False

    combines: bool = False  # whether this phase has atomic updates

    def combining(self, array: View, op: str) -> View:
        self.combines = self.within
        return array

    def _variables(self) -> set[Var]:
        """Those of the numbers that names hold."""
        held = {value.expr for value in self.names.values() if isinstance(value, Number)}
        return {var for var in self.cells.values() if var in held}

    def _flush(self) -> None:
        """Ends the statements that run once."""
        if self.block:
            self._end(None, integer(1), True)

    def _end(self, item: Var | None, items: Number, whole: bool) -> None:
        self.drafts.append(Draft(self.block, item, items.known, self.scratches, self.prologue, whole, self.digits))
        self.block, self.scratches, self.prologue, self.read, self.accesses = [], [], [], {}, []
        self.loops.parallel, self.digits = {}, ()

    def require_own(self, var: Var, name: str) -> None:
        if var in self.outer:
            self.refuse(
                ArgumentError, f"the iterations of a parallel loop assign '{name}'",
                "it is one variable of all iterations: a race",
                f"combine into an array: {name} = np.zeros(1), then hl.atomic_add({name}, 0, ...)",
            )  # fmt: skip

    def do_for(self, node: ast.For) -> None:
        call = node.iter
        if self.within or self.depth or not isinstance(call, ast.Call):
            super().do_for(node)
            return
        function = self.static(self.value(call.func))
        if function is language.parallel or (functions.is_prange(function) and self._is_parallel(node)):
            self._parallel(node, call)
        elif function is language.tile:
            self._tiles(node, call)
        else:
            super().do_for(node)

    def _is_parallel(self, node: ast.For) -> bool:
        """Whether a loop over `numba.prange` is divided: not where it sums into variables from before the loop."""
        return self.prange and not any(name in self.names for name in assigned_names(node.body))

    def _sizes(self, call: ast.Call) -> list[Number]:
        given, _ = self.arguments_of(call)
        if len(given) == 1 and isinstance(given[0], Static) and isinstance(given[0].value, tuple):
            given = list(given[0].value)
        return [self.whole(self.as_operand_number(self.as_value(g), ast.unparse(call))) for g in given]

    def _parallel(self, node: ast.For, call: ast.Call) -> None:
        if call.keywords or not call.args or node.orelse:
            self.unsupported(f"{ast.unparse(call):.60}", "write for i in hl.parallel(n)")
        sizes = self._sizes(call)
        for size in sizes:
            if size.known is None:
                self.refuse(
                    ArgumentError, f"{ast.unparse(call):.60}", "the size is the value of an argument",
                    "take sizes from shapes, or name the argument in static_argnames",
                )  # fmt: skip
        *outer, last = sizes
        split = bool(outer) and last.known >= _INNER
        counted = outer if split else sizes
        with self._phase(self.product(counted)) as item:
            indices = self._indices(item, counted)
            if not split:
                self._iteration(node, indices)
            else:
                var = Var("s64", self.fresh("j"))
                inner = Number(var, S64, span=(0, last.known - 1))
                self.spans[var], self.limits[var] = inner.span, last.expr
                self.loop_spans[var], self.trips[var] = inner.span, last.known
                self.loops.parallel[var] = last.known
                block, self.block = self.block, []
                self._iteration(node, [*indices, inner])
                block.append(For(var, Const("s64", 0), last.expr, Const("s64", 1), self.block))
                self.block = block

    def _iteration(self, node: ast.For, indices: list[Number]) -> None:
        value = Static(tuple(indices)) if len(indices) > 1 else indices[0]
        self._assign_to(node.target, value, ast.unparse(node.iter))
        self.block_of(node.body)

    def _indices(self, item: Number, sizes: list[Number]) -> list[Number]:
        """The indices of an item, the last one of which counts fastest."""
        if len(sizes) == 1:
            return [item]
        self.loops.parallel, self.digits = {}, ()
        found, rest = list[Number](), item
        for size in reversed(sizes[1:]):
            index = Var("s64", self.fresh("q"))
            self.block.append(Assign(index, Binary("s64", "%", rest.expr, size.expr)))
            found.append(self._index(index, size))
            quotient = Var("s64", self.fresh("q"))
            self.block.append(Assign(quotient, Binary("s64", "//", rest.expr, size.expr)))
            rest = Number(quotient, S64)
        assert isinstance(rest.expr, Var)
        found.append(self._index(rest.expr, sizes[0]))
        return found[::-1]

    def _index(self, var: Var, size: Number) -> Number:
        span = (0, max(0, size.known - 1))
        self.spans[var], self.limits[var] = span, size.expr
        self.loop_spans[var] = span
        self.digits = (*self.digits, var)
        self.loops.parallel[var] = size.known
        return Number(var, S64, span=span)

    def _tiles(self, node: ast.For, call: ast.Call) -> None:
        named = {k.arg: self.value(k.value) for k in call.keywords}
        asked = named.pop("tile", None)
        given = [self.value(a) for a in call.args]
        asked = given.pop(1) if len(given) == 2 else asked
        if len(given) != 1 or named:
            self.unsupported(f"{ast.unparse(call):.60}", "write for t in hl.tile(shape)")
        several = isinstance(given[0], Static) and isinstance(given[0].value, tuple)
        sizes = self._sizes(ast.Call(call.func, call.args[:1], []))
        known = [size.known for size in sizes]
        if None in known:
            self.refuse(ArgumentError, f"{ast.unparse(call):.60}", "the size is the value of an argument",
                        "take sizes from shapes, or name the argument in static_argnames")  # fmt: skip
        steps = None
        if asked is not None and not (isinstance(asked, Static) and asked.value is None):
            wanted = self.static(asked)
            steps = [self.static(s) for s in wanted] if isinstance(wanted, tuple) else [wanted]
            if any(not isinstance(s, int) for s in steps):
                self.unsupported(f"{ast.unparse(call):.60}", "give tile= numbers that are known")
        try:
            steps = language.tile_of(known, steps)
        except ArgumentError as error:
            self.refuse(ArgumentError, error.asked, error.found, error.repair)
        counts = [integer(-(-n // step)) for n, step in zip(known, steps, strict=True)]
        counts = [self._size(c.known, "tiles") for c in counts]
        with self._phase(self.product(counts)) as item:
            parts = [
                self._part(index, size, step)
                for index, size, step in zip(self._indices(item, counts), sizes, steps, strict=True)
            ]
            self._assign_to(node.target, Static(tuple(parts)) if several else parts[0], "")
            self.block_of(node.body)

    def _part(self, index: Number, size: Number, step: int) -> Static:
        """The slice that a tile is along one dimension."""
        start = self.binary("*", index, integer(step))
        start_var = self.named(start.expr, "start")
        self.loops.definitions[start_var] = start.expr
        start = Number(start_var, S64, span=(0, max(0, size.known - 1)))
        stop = self.binary("min", self.binary("+", start, integer(step)), size)
        stop_var = self.named(stop.expr, "stop")
        length = self.named(Binary("s64", "-", stop_var, start_var), "length")
        made = Number(stop_var, S64, span=(min(1, size.known), size.known))
        assert isinstance(index.expr, Var) and isinstance(size.known, int)
        self.tiles[length] = Tile(index.expr, step, size.known)
        self.lengths[stop_var, start_var] = Number(length, S64, span=(min(1, size.known), min(step, size.known)))
        self.spans |= {start_var: start.span, stop_var: made.span}
        return Static(slice(start, made))

    def sliced(self, view: View, dimension: int, part: slice):
        match part:
            case slice(start=Number(expr=Var() as start), stop=Number(expr=Var() as stop), step=None):
                length = self.lengths.get((stop, start))
                size = view.dims[dimension]
                if length is not None and part.stop.span[1] is not None and size.span[0] is not None:
                    if part.stop.span[1] <= size.span[0]:
                        self.proved += 1
                        return part.start, length, 1
                    self.refuse(
                        ShapeError, f"a tile of '{view.name}'",
                        f"tiles go up to {part.stop.span[1]}, dimension {dimension} has {size.known}",
                        "make tiles of the shape of the array",
                    )  # fmt: skip
        return super().sliced(view, dimension, part)

    # --- results

    def _results(self, value: Value) -> Any:
        """The tree of numbers of results."""
        if isinstance(value, Static) and isinstance(value.value, tuple):
            return tuple([self._results(self.as_value(part)) for part in value.value])
        value = self.as_number(value) if not isinstance(value, View) else value
        if isinstance(value, Number):
            view = self._global((), self._strong(value), "a result")
            self.store(view, (), value)
            if value.weak:
                self.weak_results.add(len(self.returned))
            value = view
        if isinstance(value, View) and value.pointer not in self.made and not self.within:
            value = self._copied(value)
        whole = isinstance(value, View) and self.made.get(value.pointer)
        if not isinstance(value, View) or not whole or value.dims != whole.dims or value.start != whole.start:
            if isinstance(value, (View, Lazy)):
                value = self._copied(value)
            else:
                self.refuse(ArgumentError, f"the result of the kernel '{self.function}'",
                            "it is no array", "return arrays that the kernel makes")  # fmt: skip
        if value.pointer in self.returned:
            value = self._copied(value)
        self.returned[value.pointer] = len(self.returned)
        return self.returned[value.pointer]

    def _finish(self, result: Any, changed: Mapping[str, int]) -> Lowered:
        arrays = dict(self.inputs)
        for pointer, view in self.made.items():
            dims = tuple([size.known for size in view.dims])
            number = self.returned.get(pointer)
            arrays[pointer] = Array(view.dtype, dims, "temporary" if number is None else "out", number or 0)
        names = Names(self.taken)
        passed_on(self.drafts, arrays, names)
        if self.checks:
            arrays[self.fault] = fault_array("out", len(self.returned))
            clear: list[Stmt] = [Store(self.fault, Const("s64", 0), Const("s64", 0), "s64")]
            self.drafts.insert(0, Draft(clear, None, 1, whole=True))
        body = Body(
            self.function, self.drafts, arrays, self.loops.known, names, self.trips, self.loop_spans, self.tiles
        )
        return Lowered(body, self.fault, result, tuple(self.checks), self.proved, changed, frozenset(self.weak_results))
