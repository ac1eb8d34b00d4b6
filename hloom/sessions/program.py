"""`Program`: a graph of named placeholders, variables, tensors and updates, which sessions run by name.

    program = Program("mlp")
    with program:
        x = placeholder("x", [None, 32])
        w = variable("w", hnp.zeros((32, 8)))
        y = hnp.tanh(x @ w)                     # found as "y"

Every operation on nodes is recorded in their program; inside `with program:` all operations are. A result assigned to a
variable in the user's code (`y`) has that name in the program; other results are named after their operation: add,
add_1.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from difflib import get_close_matches
from typing import Any

import numpy as np

from hloom.errors import ArgumentError, DTypeError, FetchError, ShapeError
from hloom.ir.build import Builder
from hloom.ir.module import Instruction, Module
from hloom.ir.sizes.expressions import Size, SizeExpression
from hloom.ir.source import Source, current_source, device_scope, device_scopes
from hloom.ir.types import Shape, as_dtype
from hloom.sessions.arguments import (
    constant_arguments,
    constant_value,
    is_text,
    placeholder_arguments,
    text_value,
)
from hloom.sessions.graph import (
    GraphTrace,
    HostRecord,
    Node,
    Operation,
    Placeholder,
    PlaceholderRecord,
    ReadRecord,
    Target,
    Text,
    Update,
    UpdateRecord,
    Variable,
    VariableRecord,
)
from hloom.sessions.sizes.unknown import Sizes
from hloom.sessions.text import from_text, pruned, to_text
from hloom.tracing.active import TRACES
from hloom.tracing.trace import as_array, bind, resumed

GLOBAL_VARIABLES = "variables"  # the names of the collections that a program fills
TRAINABLE_VARIABLES = "trainable_variables"
LOSSES = "losses"
SUMMARIES = "summaries"
QUEUE_RUNNERS = "queue_runners"


class Program:
    """A graph under construction. Threads may run it in sessions; one thread at a time extends it.

    sources: the origin of each parameter of the graph. variables, updates, targets: by name. sizes: the unknown ones.
    collections: lists by name. scopes: the variable scopes that are open, the innermost last.

    >>> with hl.sessions.Program() as program:
    ...     x = hl.sessions.placeholder("f32", (None,))
    ...     y = hnp.sum(x * 2)
    >>> with hl.sessions.Session(program) as session:
    ...     print(session.run(y, {x: np.float32([1, 2])}))
    6.0
    """

    def __init__(self, name: str = "program"):
        self.name = name
        self.trace = GraphTrace(self)
        self.sizes = Sizes(self.trace)
        self.sources: dict[Instruction, Any] = {}
        self.variables: dict[str, Variable] = {}
        self.updates: dict[str, UpdateRecord] = {}
        self.targets: dict[str, Target] = {}
        self.collections: dict[str, list] = {}
        self.scopes: list = []
        self.ranges: list[tuple[int, int, tuple]] = []  # instructions from, to: their dependencies
        self.controls: list[tuple[int, tuple, dict]] = []  # open `control_dependencies`: begin, needs, reads
        self._names: dict[Instruction, str] = {}
        self._by_name: dict[str, Instruction] = {}
        self._index: dict[Instruction, int] = {}
        self._before: list[bool] = []  # the setting before each `with program:`
        self._chosen: set[str] = set()  # names that the user chose
        self._named = 0  # how many instructions have been offered a name

    # --- building ---

    def __enter__(self) -> Program:
        _programs.stack.append(self)
        TRACES.active.append(self.trace)
        self._before.append(device_scopes.anywhere)
        device_scopes.anywhere = True  # devices are looked up when the program runs
        return self

    def __exit__(self, *exception) -> None:
        device_scopes.anywhere = self._before.pop()
        TRACES.active.pop()
        _programs.stack.pop()

    @property
    def instructions(self) -> list[Instruction]:
        return self.trace.builder.instructions

    def placeholder(
        self, *given: Any, dtype: Any = None, shape: Sequence | None = None, name: str | None = None
    ) -> Placeholder:
        """A tensor that runs are fed with: `placeholder("x", [None, 32], "float32")`, or in TensorFlow's order
        `placeholder("float32", [None, 32], "x")`.

        The first argument is a dtype if it is not a string, or if it is the full name of one ("float32"). shape: None
        is a size that becomes known when the tensor is fed. None on the same axis is one size in the whole program;
        sizes that differ have names, ["rows", 32], or are dimensions with their own bounds: [hl.Dim("rows", 8, 64),
        32]. Without a shape it is a scalar, as ranks have to be known. Without a name it gets that of the variable that
        your line assigns, with a suffix if that is taken. Raises ArgumentError for a name that is taken, and for a
        dtype and a name that cannot be told apart; DTypeError.
        """
        called, shape, dtype = placeholder_arguments(given, dtype, shape, name)
        dims = tuple([self._dimension(n, k) for k, n in enumerate(shape)])
        kind, source = Shape(as_dtype(dtype), dims), current_source("placeholder")
        own = source.variable if source is not None else ""
        instruction = self._parameter(kind, self._new_name(called or own or "placeholder", not called), "placeholder")
        self.sources[instruction] = PlaceholderRecord(self.name_of(instruction), instruction)
        return Placeholder(self.trace, instruction)

    def _dimension(self, size, axis: int) -> Size:
        if size is None:
            return self.sizes.dim(f"?{axis}")
        if isinstance(size, str):
            return self.sizes.dim(size)
        if isinstance(size, SizeExpression):
            return self.sizes.adopt(size)
        if isinstance(size, bool) or not hasattr(size, "__index__") or size.__index__() < 0:
            raise ArgumentError("the shape of a placeholder", f"{size!r} on axis {axis}", "a size, a name, or None")
        return size.__index__()

    def variable(
        self,
        name: str,
        initial: Any = None,
        *,
        shape: Sequence[int] | None = None,
        dtype: Any = None,
        trainable: bool = True,
        collections: Iterable[str] = (GLOBAL_VARIABLES,),
    ) -> Variable:
        """A tensor that sessions keep between runs.

        initial: an array, a node, a number or a function without arguments that makes one; None if the variable is
        always assigned or restored before it is read (then shape is needed). trainable: whether `minimize` changes it.
        """
        name = self._new_name(name)
        start = None
        if initial is not None:
            with resumed(self.trace), self.outside_of_controls():
                value = as_array(initial() if callable(initial) else initial, f"the initial value of '{name}'")
                if dtype is not None and value.dtype != as_dtype(dtype):
                    value = value.astype(as_dtype(dtype))
                start = self.trace.node(value).instruction
            if shape is not None and start.shape.dims != tuple(shape):
                raise ShapeError(
                    f"variable {name!r} of shape {tuple(shape)}", f"its initial value is {start.shape!r}",
                    "leave out the shape, or change the value",
                )  # fmt: skip
            kind = start.shape
            if (given := self.name_of(start)) not in self._chosen:
                self._rename(start, given, f"{name}/initial_value")
            if kind.is_open:
                raise ShapeError(
                    f"variable {name!r}", f"its initial value is {self.sizes.shown(kind.dims)}: a size is unknown",
                    "variables have sizes that are known",
                )  # fmt: skip
        elif shape is None:
            raise ArgumentError(
                f"variable {name!r}", "neither an initial value nor a shape", "pass initial=, or shape= and dtype="
            )
        else:
            kind = Shape(as_dtype(dtype or "float32"), tuple(shape))
        instruction = self._parameter(kind, name, "variable")
        made = VariableRecord(name, instruction, start, bool(trainable))
        self.sources[instruction] = made
        variable = self.variables[name] = Variable(self.trace, instruction, record=made)
        chosen = [*collections, *([TRAINABLE_VARIABLES] if trainable else [])]
        for collection in dict.fromkeys(chosen):
            self.add_to_collection(collection, variable)
        return variable

    def _parameter(self, shape: Shape, name: str, kind: str = "") -> Instruction:
        # Its hint is made legal by the printer; its name is the whole one.
        instruction = self.trace.parameter(shape, name, None, False).instruction
        instruction.source = current_source(kind)
        self._names[instruction], self._by_name[name] = name, instruction
        return instruction

    def host_value(self, name: str, shape: Shape, source: Any, index: int) -> Node:
        """A tensor that the session asks a Python object for before each run that needs it (`HostRecord`)."""
        instruction = self._parameter(shape, self._new_name(name, unique=True))
        self.sources[instruction] = HostRecord(self.name_of(instruction), instruction, source, index)
        return Node(self.trace, instruction)

    def constant(self, value: Any, dtype: Any = None, shape: Any = None, name: str | None = None) -> Node | Text:
        """A constant; text and bytes are fetched unchanged.

        dtype: by default the value's. shape: a single value fills it; if there are fewer values than elements, the last
        one is repeated, as in TensorFlow. `constant(value, "name")` has a name only. Raises ArgumentError, DTypeError
        for values that the dtype cannot hold, ShapeError for more values than elements.
        """
        dtype, name = constant_arguments(dtype, name)
        if is_text(value):
            made = text_value(value, dtype, shape)
            return self._add(Text(self, self._new_name(name, unique=True), made, current_source("constant")))
        with resumed(self.trace):
            node = self.trace.node(constant_value(value, dtype, shape))
        self._give(node.instruction, name := self._new_name(name, unique=True))
        node.instruction.hint = name.rpartition("/")[2]  # as dumps and the log of placements call it
        return node

    def target(self, name: str, value: Any) -> Any:
        """Gives a tensor or an operation a name. Returns it."""
        if isinstance(value, (Operation, Text)):
            self.targets[self._new_name(name)] = value
            return value
        node = value if isinstance(value, Node) else self.trace.node(value, f"target {name!r}")
        self._give(node.instruction, self._new_name(name))
        return node

    def _give(self, instruction: Instruction, name: str) -> None:
        """Names an instruction. It keeps other names that the user chose for it."""
        self._name_all()
        before = self._names.get(instruction)
        if before is not None and before not in self._chosen:
            del self._by_name[before]
        self._names[instruction], self._by_name[name] = name, instruction

    def _add(self, target: Any) -> Any:
        self.targets[target.name] = target
        return target

    # --- updates and order ---

    def update(self, variable: Variable, new: Callable[[Node], Any], name: str, begin: int | None = None) -> Update:
        """The update of a variable to `new(its value at this place of the program)`.

        begin: the first instruction that belongs to the update, where it is built in several steps.
        """
        record = variable.record
        begin = len(self.instructions) if begin is None else begin
        home = record.instruction.device  # updates run where the variable is
        scope = device_scope(home) if home else nullcontext()
        with resumed(self.trace), scope:
            old = Node(self.trace, self.read(record))
            value = as_array(new(old), f"the new value of '{record.name}'")
            if value.shape != old.shape:
                raise ShapeError(
                    f"{name} of variable {record.name!r}", f"{self.sizes.shown(value.shape)}, it is {old._shape!r}",
                    "pass a value of the variable's shape",
                )  # fmt: skip
            if value.dtype != old.dtype:
                if not np.can_cast(value.dtype, old.dtype, "same_kind") and not value.weak:
                    raise DTypeError(
                        f"{name} of variable {record.name!r}",
                        f"{value.dtype}, it is {old.dtype}",
                        "convert with astype",
                    )
                value = value.astype(old.dtype)
            instruction = self.trace.node(value).instruction
            if home and instruction.device != home:  # the new value, too, is where the variable is
                instruction = bind("copy", Node(self.trace, instruction)).instruction
        own = tuple([i for i in self.instructions[begin:] if i.device == home])
        name = self._new_name(f"{record.name}/{name}", unique=True, scoped=False)
        made = UpdateRecord(name, record.name, instruction, len(self.instructions), self._open_needs(), own)
        self.updates[name] = made
        result = self.read(record, name)
        return Update(self.trace, result, record=made)

    def read(self, record: VariableRecord, update: str = "") -> Instruction:
        """The value of a variable at this place of the program."""
        shape = record.instruction.shape
        name = update or self._new_name(f"{record.name}/read", unique=True, scoped=False)
        result = self._parameter(shape, name)
        self.sources[result] = ReadRecord(record.name, result, update)
        return result

    def current_read(self, record: VariableRecord) -> Instruction:
        """The value inside of the innermost `control_dependencies`."""
        reads = self.controls[-1][2]
        if record.name not in reads:
            reads[record.name] = self.read(record)
        return reads[record.name]

    def _open_needs(self) -> tuple:
        return tuple([need for _, needs, _ in self.controls for need in needs])

    @contextmanager
    def control_dependencies(self, needs: Iterable[Target]):
        """Operations made inside run after these, and see the variable values that these assigned."""
        needs = tuple([self.find(need) for need in needs])
        self.controls.append((len(self.instructions), needs, {}))
        try:
            yield
        finally:
            begin, needs, _ = self.controls.pop()
            self.ranges.append((begin, len(self.instructions), needs))

    @contextmanager
    def outside_of_controls(self):
        """Operations made inside ignore the open `control_dependencies`: the initial values of variables."""
        opened = self.controls
        self.ranges += [(begin, len(self.instructions), needs) for begin, needs, _ in opened]
        self.controls = []
        try:
            yield
        finally:
            self.controls = [(len(self.instructions), needs, reads) for _, needs, reads in opened]

    def group(self, *needs: Any, name: str = "group") -> Operation:
        """The operation that runs all of these."""
        found = tuple([self.find(need) for need in needs])
        return self._add(Operation(self, self._new_name(name, unique=True), (*found, *self._open_needs())))

    def host_operation(self, name: str, needs: Iterable[Any], host: Any) -> Operation:
        """The operation that calls `host(values of needs)` in Python after the program has run."""
        nodes = [n if isinstance(n, (Node, Text)) else self.constant(n) for n in needs]
        return self._add(Operation(self, self._new_name(name, unique=True), tuple(nodes), host))

    def initializer(self, variables: Iterable[Variable] | None = None, name: str = "init") -> Operation:
        """The operation that sets variables (all by default) to their initial values."""
        chosen = list(self.variables.values()) if variables is None else list(variables)
        updates = []
        for variable in chosen:
            record = variable.record
            if record.initial is None:
                continue
            key = f"{record.name}/initialize"
            if key not in self.updates:
                self._chosen.add(key)
                made = UpdateRecord(key, record.name, record.initial, len(self.instructions))
                self.updates[key] = made
                self.read(record, key)
            updates.append(self.find(key))
        return self._add(Operation(self, self._new_name(name, unique=True), tuple(updates)))

    # --- parts and text ---

    def prune(self, fetches: Iterable[Any], feeds: Iterable[Any] = ()) -> Program:
        """The part of the program that some fetches need, given some feeds, under the same names. Fed tensors become
        placeholders. Raises FetchError."""
        return pruned(self, fetches, feeds)

    def to_text(self) -> str:
        """The program as text (`hloom.sessions.text`). Raises UnsupportedError for Python callbacks."""
        return to_text(self)

    def module(self) -> Module:
        """The whole graph as a module, with the program's names: for dumps and for `hl.summary.Writer.graph`."""
        builder = Builder(self.name)
        mapped: dict[Instruction, Instruction] = {}
        for instruction in self.instructions:
            copy = instruction.with_operands(tuple([mapped[o] for o in instruction.operands]))
            scope, _, copy.hint = self.name_of(instruction).rpartition("/")
            source = copy.source or Source("", 0, "")
            copy.source = source._replace(function=f"{scope}/{source.function.rpartition('/')[2]}".lstrip("/"))
            mapped[instruction] = builder.add(copy)
            if copy.opcode == "parameter":
                builder.parameters.append(copy)
        used = {o for i in builder.instructions for o in i.operands}
        return Module(self.name, builder.finish(builder.tuple([i for i in builder.instructions if i not in used])))

    @staticmethod
    def from_text(text: str) -> Program:
        """The program of such a text. Raises ParseError."""
        return from_text(text, Program)

    # --- collections ---

    def add_to_collection(self, name: str, value: Any) -> None:
        """Adds a value to a collection, which may be new."""
        self.collections.setdefault(name, []).append(value)

    def get_collection(self, name: str, scope: str = "") -> list:
        """The items of a collection; with a scope, those named below it."""
        found = list(self.collections.get(name, ()))
        below = f"{scope.rstrip('/')}/"
        return [v for v in found if f"{getattr(v, 'name', '')}/".startswith(below)] if scope else found

    # --- names ---

    def _new_name(self, name: str, unique: bool = False, scoped: bool = True) -> str:
        """The name below the current scopes. unique: with a number where it is taken. Raises ArgumentError."""
        if not isinstance(name, str) or not name or name.strip() != name or ":" in name:
            raise ArgumentError("a name in a program", f"{name!r}", "letters, digits, _ . - and / between scopes")
        scope = device_scopes.names if scoped else ""
        name = f"{scope}/{name}" if scope else name
        self._name_all()
        if unique:
            name = _numbered(name, self._chosen)
        elif name in self._chosen:
            raise ArgumentError(
                f"a second {name!r} in '{self.name}'", "names are unique",
                f"choose another name, or a scope: with hl.named_scope('second'): {name!r}",
            )  # fmt: skip
        self._chosen.add(name)
        if name in self._by_name:
            self._rename(self._by_name[name], name)  # a generated name is replaced
        return name

    def _rename(self, instruction: Instruction, name: str, new: str = "") -> None:
        del self._by_name[name]
        other = self._unused(new or name)
        self._names[instruction], self._by_name[other] = other, instruction

    def _unused(self, name: str) -> str:
        return _numbered(name, self._by_name, self._chosen)

    def _name_all(self, below: str = "") -> None:
        """Names new instructions: the last one of a line by the variable that the line assigns.

        below: a scope for those without a user line, such as gradients.
        """
        new = self.instructions[self._named :]
        last = {i.source: i for i in new if i.source is not None and i.source.variable and i.opcode != "constant"}
        for k, instruction in enumerate(new):
            self._index[instruction] = self._named + k
            if instruction in self._names:
                continue
            source = instruction.source
            base = instruction.opcode.replace("-", "_")
            if source is not None and not below and last.get(source) is instruction:
                base = source.variable
            scope = source.function.rpartition("/")[0] if source is not None else ""
            name = self._unused("/".join(filter(None, (below, scope, base))))
            self._names[instruction], self._by_name[name] = name, instruction
        self._named += len(new)

    def adopt_names(self, names: Mapping[Instruction, str]) -> None:
        """Takes over the names of instructions that were read or copied, and those of operations."""
        self._names.update(names)
        self._by_name.update({name: instruction for instruction, name in names.items()})
        self._chosen |= {*names.values(), *self.targets, *self.updates}

    def replace_from(self, begin: int, instructions: Sequence[Instruction], below: str) -> None:
        """Replaces the instructions from an index on, which are still unreferenced and unnamed. The new ones are named
        below a scope."""
        assert self._named <= begin
        self.instructions[begin:] = instructions
        self._name_all(below)

    def index(self, instruction: Instruction) -> int:
        """The place of an instruction in the program."""
        self._name_all()
        return self._index[instruction]

    def name_of(self, instruction: Instruction) -> str:
        """The name of an instruction's node; its opcode if it has none."""
        self._name_all()
        return self._names.get(instruction, instruction.opcode)

    def names(self) -> list[str]:
        """All names that can be fetched."""
        self._name_all()
        return [*self._by_name, *self.targets]

    def find(self, target: Any, what: str = "fetch") -> Target:
        """The node or operation denoted by a name ("cost", "cost:0") or a handle. Raises FetchError."""
        if isinstance(target, (Node, Operation, Text)):
            if target.program is not self:
                raise FetchError(
                    f"{what} {target!r} from '{self.name}'", f"it belongs to '{target.program.name}'",
                    "use a session of that program",
                )  # fmt: skip
            return target
        if hasattr(target, "as_target"):
            return target.as_target(self)
        if not isinstance(target, str):
            raise FetchError(
                f"{what} from '{self.name}'", f"{type(target).__name__} {target!r:.60}",
                "pass nodes, operations or their names, in lists, tuples and dicts",
            )  # fmt: skip
        name = target.removesuffix(":0")
        self._name_all()
        if name in self.targets:
            return self.targets[name]
        found = self._by_name.get(name)
        if found is None:
            near = get_close_matches(name, self.names(), 1, 0.5)
            raise FetchError(
                f"{what} {target!r} from '{self.name}'", "it has no node of this name",
                f"did you mean {near[0]!r}?" if near else "program.names() lists all of them",
            )  # fmt: skip
        return self._handle(found)

    def _handle(self, instruction: Instruction) -> Node:
        source = self.sources.get(instruction)
        if isinstance(source, VariableRecord):
            return self.variables[source.name]
        if isinstance(source, ReadRecord) and source.update:
            return Update(self.trace, instruction, record=self.updates[source.update])
        kind = Placeholder if isinstance(source, PlaceholderRecord) else Node
        return kind(self.trace, instruction)

    def __getitem__(self, name: str) -> Target:
        return self.find(name)

    def __repr__(self) -> str:
        return f"<program {self.name!r}: {len(self.instructions)} instructions, {len(self.variables)} variables>"


def _numbered(name: str, *taken: Container[str]) -> str:
    """The name, or the first of name_1, name_2, ... that is free."""
    found, k = name, 0
    while any(found in names for names in taken):
        k += 1
        found = f"{name}_{k}"
    return found


class _Programs(threading.local):
    def __init__(self):
        self.stack: list[Program] = []


_programs = _Programs()
_default: list[Program] = []


@contextmanager
def outside_of_programs():
    """Within it, nothing is recorded, and devices are those of this process: for runs inside of `with program:`."""
    before, device_scopes.anywhere = device_scopes.anywhere, False
    try:
        with resumed(None), device_scope(""):
            yield
    finally:
        device_scopes.anywhere = before


def current_program() -> Program:
    """The program of the surrounding `with program:`, else the default one of this process."""
    if _programs.stack:
        return _programs.stack[-1]
    if not _default:
        _default.append(Program("default"))
    return _default[0]


def reset_default_program() -> None:
    """The next use of the default program begins a new one."""
    _default.clear()


def program_of(*values: Any) -> Program:
    """The program of the first node among the values, else the current one."""
    found = [v.program for v in values if isinstance(v, (Node, Operation, Text))]
    return next((graph for graph in found if isinstance(graph, Program)), None) or current_program()


__all__ = ["Program", "current_program", "outside_of_programs", "program_of", "reset_default_program"]
