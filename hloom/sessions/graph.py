"""The nodes of a program: tensors, placeholders, variables, and operations that return nothing.

A node is a Tracer of the program's own trace, so that every function of hloom accepts it. Nodes are equal to themselves
only and can be keys of a dict: `session.run(cost, {x: images})`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from hloom.errors import ArgumentError, LeakedTracerError
from hloom.ir.module import Instruction
from hloom.ir.records import field, record
from hloom.ir.source import Source, current_source
from hloom.ir.types import HLO_NAME
from hloom.sessions.sizes.unknown import Sizes
from hloom.tracing.trace import Trace, Tracer, as_array


class Graph(Protocol):
    """The view of a program used by its nodes, its runs and its text: `hloom.sessions.program.Program`, which builds
    it.

    sources: the origin of each parameter. sizes: the unknown ones. ranges: instructions from, to: their dependencies.
    controls: open `control_dependencies`: begin, needs, reads.
    """

    name: str
    trace: GraphTrace
    sizes: Sizes
    sources: dict[Instruction, Any]
    variables: dict[str, Variable]
    updates: dict[str, UpdateRecord]
    targets: dict[str, Target]
    collections: dict[str, list]
    ranges: list[tuple[int, int, tuple]]
    controls: list[tuple[int, tuple, dict]]

    def __init__(self, name: str = ...) -> None: ...

    @property
    def instructions(self) -> list[Instruction]: ...

    def index(self, instruction: Instruction) -> int:
        """Which of the instructions it is."""

    def name_of(self, instruction: Instruction) -> str: ...

    def names(self) -> list[str]: ...

    def adopt_names(self, names: Mapping[Instruction, str]) -> None:
        """Names instructions of a text, or of another program."""

    def find(self, target: Any, what: str = ...) -> Target:
        """Resolves a name or a node. Raises FetchError."""

    def read(self, record: VariableRecord, update: str = ...) -> Instruction:
        """The value of a variable at this place of the program."""

    def current_read(self, record: VariableRecord) -> Instruction:
        """The value inside of the innermost `control_dependencies`."""

    def update(self, variable: Variable, new: Callable[[Node], Any], name: str) -> Update:
        """The update of a variable to `new(its value at this place of the program)`."""

    def initializer(self, variables: Iterable[Variable] | None = ..., name: str = ...) -> Operation: ...


class GraphTrace(Trace):
    """The trace of a program, which never ends. Its tracers are nodes."""

    def __init__(self, program: Graph):
        super().__init__(program.name)
        self.program = program
        self.kind = "the program"
        self.assumptions = None  # its text has none
        self.active = True  # for its whole life: nodes may be used outside of `with program:`

    def emit(self, opcode: str, operands, shape, attributes) -> Any:
        self.builder.source = current_source()  # of constants among the operands
        result = super().emit(opcode, operands, shape, attributes)
        return tuple([_node(r) for r in result]) if isinstance(result, tuple) else _node(result)

    def node(self, value, what: str = "a tensor") -> Node:
        """The node of anything that can be an array."""
        self.builder.source = current_source()
        return Node(self, self.lift(as_array(value, what))[0])

    def inline(self, computation, operands, known) -> list:
        return [_node(r) for r in super().inline(computation, operands, known)]


def _node(tracer: Tracer) -> Node:
    return Node(tracer.trace, tracer.instruction, tracer.value, tracer.weak)


class Node(Tracer):
    """A tensor of a program. Sizes that are unknown are dimensions in `shape` (`hloom.sessions.sizes`); `dims` has None
    or their name there."""

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore[assignment]  # arrays have none

    @property
    def program(self) -> Graph:
        return self.trace.program  # type: ignore[attr-defined]  # a GraphTrace

    @property
    def name(self) -> str:
        """The name by which it is fetched and fed."""
        return self.program.name_of(self.instruction)

    def trace_ended(self):
        """Raises LeakedTracerError: a node has no value outside of its program."""
        raise LeakedTracerError(
            f"a compiled function that uses {self!r} of '{self.program.name}'",
            "it is called outside of the program, where a node has no value",
            "call it inside `with program:`, or pass it the result of session.run",
        )

    @property
    def dims(self) -> tuple:
        """The shape with None, or the name, for each size that is unknown."""
        return self.program.sizes.shown(self._shape.dims)

    @property
    def device_name(self) -> str:
        """The device that was chosen for it; '' if none was."""
        return self.instruction.device

    def __repr__(self) -> str:
        dims = ",".join("?" if n is None else str(n) for n in self.dims)
        return f"<{type(self).__name__.lower()} {self.name!r} {HLO_NAME[self._shape.dtype]}[{dims}]>"


class Placeholder(Node):
    """A tensor whose value a run is fed with."""

    __slots__ = ()


_SLOT: Any = Tracer.__dict__["instruction"]  # where a tracer keeps it


class Variable(Node):
    """A tensor that sessions keep from run to run. `hloom.sessions.variable` makes one.

    Its value is the one that it had when the run began; inside `control_dependencies([update])` it is the one after the
    update.
    """

    __slots__ = ("record",)

    def __new__(cls, *made, **options):
        if not made or not isinstance(made[0], GraphTrace):
            raise ArgumentError(
                "Variable(...), the class of variables",
                "it is called",
                "make one: variable('w', initial), get_variable",
            )
        return super().__new__(cls)

    def __init__(self, trace, instruction, value=None, weak: bool = False, record: VariableRecord | None = None):
        super().__init__(trace, instruction, value, weak)
        self.record = record or trace.program.sources[instruction]

    @property
    def instruction(self) -> Instruction:  # a slot of Tracer
        own = _SLOT.__get__(self)
        program = self.trace.program  # type: ignore[attr-defined]
        return program.current_read(self.record) if program.controls else own

    @instruction.setter
    def instruction(self, instruction: Instruction) -> None:
        _SLOT.__set__(self, instruction)

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def trainable(self) -> bool:
        return self.record.trainable

    @property
    def initial_value(self) -> Node | None:
        """The tensor that the variable starts with; None if it has to be assigned or restored."""
        return None if self.record.initial is None else Node(self.trace, self.record.initial)

    @property
    def initializer(self) -> Operation:
        """The operation that sets the variable to its initial value."""
        return self.program.initializer([self])

    def read_value(self) -> Node:
        """The value after those updates of the same run that were made before this call."""
        return Node(self.trace, self.program.read(self.record))

    def assign(self, value, name: str = "assign") -> Update:
        """The operation that sets the variable; as a tensor it is the new value."""
        return self.program.update(self, lambda old: value, name)

    def assign_add(self, value, name: str = "assign_add") -> Update:
        """Adds to the variable. All updates of a run count, in the order in which they were made."""
        return self.program.update(self, lambda old: old + value, name)

    def assign_sub(self, value, name: str = "assign_sub") -> Update:
        """An operation that subtracts a value."""
        return self.program.update(self, lambda old: old - value, name)

    def scatter_update(self, indices, values, name: str = "scatter_update") -> Update:
        """Sets rows: `variable[indices] = values`."""
        return self.program.update(self, lambda old: _at(old)[indices].set(values), name)

    def scatter_add(self, indices, values, name: str = "scatter_add") -> Update:
        """Adds to rows; a row that is named twice gets both."""
        return self.program.update(self, lambda old: _at(old)[indices].add(values), name)

    def scatter_sub(self, indices, values, name: str = "scatter_sub") -> Update:
        """An operation that subtracts values from the rows at indices."""
        return self.program.update(self, lambda old: _at(old)[indices].add(-values), name)


def _at(node: Any) -> Any:
    return node.at  # of `hloom.numpy.methods`, which all arrays and tracers get


class Update(Node):
    """An operation that changes a variable; as a tensor it is the variable's new value."""

    __slots__ = ("record",)

    def __init__(self, trace, instruction, value=None, weak: bool = False, record: UpdateRecord | None = None):
        super().__init__(trace, instruction, value, weak)
        self.record = record

    @property
    def name(self) -> str:
        return self.record.name if self.record is not None else super().name


class Operation:
    """A node that can be run and returns None: a group of updates, an initializer, an enqueue.

    needs: nodes and operations that run first. host: the function called then with their values (a queue's operation).
    """

    def __init__(self, program: Graph, name: str, needs: tuple, host: Any = None):
        self.program, self.name, self.needs, self.host = program, name, needs, host

    def __repr__(self) -> str:
        return f"<operation {self.name!r}>"


class Text:
    """A constant of text or bytes: NumPy's strings and objects, which no device computes with. Fetched unchanged.

    source: where it was made, with the device that was chosen there.
    """

    def __init__(self, program: Graph, name: str, value: Any, source: Source | None = None):
        self.program, self.name, self.value, self.source = program, name, value, source
        self.shape, self.dtype = np.shape(value), "string"

    def __repr__(self) -> str:
        return f"<text {self.name!r} {self.value!r:.60}>"


Target = Node | Operation | Text


# --- a program's records of its parameters and updates -------------------------------------------------------------


@record(eq=False)
class PlaceholderRecord:
    name: str
    instruction: Instruction


@record(eq=False)
class VariableRecord:
    name: str
    instruction: Instruction
    initial: Instruction | None
    trainable: bool


@record(eq=False)
class ReadRecord:
    """The value of a variable at a place of the program. update: the one whose result this is."""

    variable: str
    instruction: Instruction
    update: str = ""


@record(eq=False)
class HostRecord:
    """A value that the session gets from Python before a run: `source()` -> the values of all nodes of one source."""

    name: str
    instruction: Instruction
    source: Any
    index: int


@record(eq=False)
class UpdateRecord:
    """at: how many instructions the program had when it was made. own: the instructions that make the new value, where
    the variable is: a server of variables runs them in one piece, on the value that the variable then has."""

    name: str
    variable: str
    value: Instruction
    at: int
    needs: tuple = field(default=())
    own: tuple[Instruction, ...] = field(default=())


__all__ = ["GraphTrace", "Node", "Operation", "Placeholder", "Target", "Text", "Update", "Variable"]
