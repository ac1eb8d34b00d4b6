"""Programs as text: HLO text preceded by the names of nodes, placeholders, variables, updates and operations.

    hloom-program 2
    {"name": "mlp", "sizes": {"?0": "axis0"}, "parameters": [{"placeholder": "x"}, ...], ...}
    HloModule mlp, ...

The module is HLO; sizes that are unknown are expressions of dimensions in it (`hloom.sessions.sizes`). Nothing in a
text is executed, and a text that refers to anything missing from its module is an error.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from hloom.compiler.pipeline import run_passes
from hloom.errors import HloomError, ParseError, UnsupportedError
from hloom.ir.build import Builder
from hloom.ir.module import Computation, Instruction, Module, below
from hloom.ir.ops.programs.structure import HostFunction
from hloom.ir.source import Source, on_device
from hloom.ir.text import parse_module, print_module
from hloom.ir.text.printer import Names, printing_order
from hloom.ir.verify import verify
from hloom.sessions.graph import (
    Graph,
    HostRecord,
    Node,
    Operation,
    PlaceholderRecord,
    ReadRecord,
    Text,
    UpdateRecord,
    Variable,
    VariableRecord,
)
from hloom.sessions.lowering import Needed, needed
from hloom.sessions.sizes.unknown import Sizes

G = TypeVar("G", bound=Graph)
MAGIC = "hloom-program 2"
LARGE = 1024  # bytes of constants that a binary form keeps outside of the text


def to_text(program: Graph, constants: dict[str, np.ndarray] | None = None) -> str:
    """The program as text. constants: receives large constants, which become parameters in the text.

    Raises UnsupportedError for Python callbacks. Operations of queues are left out, and their results must be fed.
    """
    program.names()
    _check_callbacks(program)
    module, rows, called = _as_module(program, constants)
    header = {
        "name": program.name,
        "sizes": program.sizes.identifiers(),
        "parameters": rows,
        "updates": [_update(u, called) for u in program.updates.values()],
        "after": _after(program, called),
        "targets": [_target(t) for t in program.targets.values() if getattr(t, "host", None) is None],
        "collections": _collections(program),
        "names": {text: name for i, text in called.items() if (name := program.name_of(i)) != text},
    }
    return f"{MAGIC}\n{json.dumps(header, indent=1)}\n{print_module(module, metadata=True)}"


def _as_module(
    program: Graph, constants: dict[str, np.ndarray] | None
) -> tuple[Module, list[dict[str, Any]], dict[Instruction, str]]:
    """(the module, the origins of its parameters, the name of each instruction in its text)."""
    builder = Builder(program.name)
    mapped: dict[Instruction, Instruction] = {}
    rows: list[dict[str, Any]] = []
    taken: set[str] = set()
    for instruction in program.instructions:
        source = program.sources.get(instruction)
        if constants is not None and instruction.opcode == "constant" and instruction["value"].nbytes > LARGE:
            name = f"constant/{program.name_of(instruction)}"
            constants[name] = instruction["value"]
            source = name
        if source is not None:
            copy = builder.parameter(instruction.shape, source=instruction.source)
            rows.append(_parameter(source))
        else:
            copy = builder.add(instruction.with_operands(tuple([mapped[o] for o in instruction.operands])))
        copy.hint = _unused(program.name_of(instruction), taken)
        mapped[instruction] = copy
    roots = [mapped[u.value] for u in program.updates.values()] or builder.instructions[-1:]
    module = run_passes(Module(program.name, builder.finish(builder.tuple(roots))), ("lower-scans",))
    names = Names(printing_order(module.entry)).within(module.entry)
    printed = {i.hint: names(i) for i in module.entry.instructions}
    called = {i: printed.get(copy.hint, copy.hint) for i, copy in mapped.items()}
    for row, parameter in zip(rows, builder.parameters, strict=True):
        if row.get("initial") is not None:
            row["initial"] = called[row["initial"]]
        row["in"] = printed[parameter.hint]
    return module, rows, called


def _after(program: Graph, called: Mapping[Instruction, str]) -> list[list]:
    """[first node, last node, the names of what runs before them] of each part that waits for others."""
    return [
        [*_ends(program, begin, end, called), [need.name for need in needs]]
        for begin, end, needs in program.ranges
        if end > begin and all(called.get(i) for i in program.instructions[begin:end])
    ]


def _collections(program: Graph) -> dict[str, list[str]]:
    """The names of the items of each collection that are in the program."""
    members = {
        name: [v.name for v in values if isinstance(v, (Node, Operation, Text))]
        for name, values in program.collections.items()
    }
    return {name: found for name, found in members.items() if found}


def _unused(name: str, taken: set[str]) -> str:
    found, k = name, 0
    while found in taken:
        k += 1
        found = f"{name}.{k}"
    taken.add(found)
    return found


def _check_callbacks(program: Graph) -> None:
    for instruction in below(program.instructions):
        if any(isinstance(value, HostFunction) for value in instruction.attributes.values()):
            raise UnsupportedError(
                f"'{program.name}' as text", f"it calls a Python function: {instruction['custom_call_target']}",
                "prune it to a part without them: program.prune(fetches)", instruction.source,
            )  # fmt: skip


def _parameter(source: Any) -> dict[str, Any]:
    if isinstance(source, VariableRecord):
        device = source.instruction.device
        return {"variable": source.name, "trainable": source.trainable, "initial": source.initial, "device": device}
    if isinstance(source, ReadRecord):
        return {"read": source.variable, "update": source.update}
    if isinstance(source, str):
        return {"constant": source}
    return {"placeholder": source.name}


def _update(update: UpdateRecord, called: Mapping[Instruction, str]) -> dict[str, Any]:
    return {
        "name": update.name,
        "variable": update.variable,
        "value": called[update.value],
        "needs": [need.name for need in update.needs],
        "own": [called[i] for i in update.own],
    }


def _ends(program: Graph, begin: int, end: int, called: Mapping[Instruction, str]) -> tuple[str, str]:
    inside = program.instructions[begin:end]
    return called[inside[0]], called[inside[-1]]


def _target(target: Any) -> dict[str, Any]:
    if isinstance(target, Text):
        source = target.source
        where = [] if source is None else [source.file, source.line, source.function, source.variable, source.device]
        return {"name": target.name, "text": _encoded(target.value), "source": where}
    return {"name": target.name, "needs": [need.name for need in target.needs]}


def _encoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, np.ndarray):
        return {"array": _encoded(value.tolist()), "dtype": value.dtype.str if value.dtype.kind != "O" else "O"}
    if isinstance(value, (list, tuple)):
        return [_encoded(v) for v in value]
    return str(value)


def _source(row: Any) -> Source | None:
    if not row:
        return None
    file, line, function, variable, device = row
    return Source(str(file), int(line), str(function), str(variable), str(device))


def _decoded(value: Any) -> Any:
    if isinstance(value, dict) and "bytes" in value:
        return base64.b64decode(value["bytes"])
    if isinstance(value, dict):
        kind = str(value["dtype"])
        if kind != "O" and kind[1:2] not in ("U", "S"):
            raise ValueError(f"a text of dtype {kind}")
        return np.array(_decoded(value["array"]), kind if kind == "O" else kind[:2])
    return [_decoded(v) for v in value] if isinstance(value, list) else str(value)


# --- reading -------------------------------------------------------------------------------------------------------


def from_text(
    text: str, made: Callable[[str], G], constants: Mapping[str, np.ndarray] | None = None, file: str = "<text>"
) -> G:
    """The program of a text that `to_text` wrote. made: a new program of a name. Raises ParseError."""
    head, _, rest = text.partition("\n")
    cut = rest.find("\nHloModule ")
    if head != MAGIC or cut < 0:
        raise _damaged(file, f"it begins with {head[:40]!r}", f"pass a text whose first line is {MAGIC!r}")
    try:
        header = json.loads(rest[:cut])
        program = made(str(header["name"]))
        sizes = {str(name): str(identifier) for name, identifier in header["sizes"].items()}
        if len(set(sizes.values())) < len(sizes) or not all(one.isidentifier() for one in sizes.values()):
            raise ValueError(f"unknown sizes of the names {[*sizes.values()]}")
        program.sizes = Sizes(program.trace, sizes)
        module = parse_module(rest[cut + 1 :], file, {dim.name: dim for dim in program.sizes.dims.values()})
        verify(module)
        _fill(program, header, module.entry, constants or {})
        return program
    except HloomError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise _damaged(file, f"{type(error).__name__}: {error}", "write the program again") from error


def _damaged(file: str, found: str, repair: str) -> ParseError:
    return ParseError(f"a program in {file}", found, repair, "")


def _fill(program: Graph, header: dict[str, Any], entry: Computation, constants: Mapping[str, np.ndarray]) -> None:
    """Builds a new program from its text."""
    instructions = _with_constants(header, entry, constants)
    program.trace.builder.instructions[:] = instructions
    program.trace.builder.parameters[:] = [i for i in instructions if i.opcode == "parameter"]
    by_text = {i.hint: i for i in instructions}
    names = {text: str(header["names"].get(text, text)) for text in by_text}
    if len(set(names.values())) < len(names):
        raise ValueError("two nodes of one name")
    program.adopt_names({by_text[text]: name for text, name in names.items()})
    for row in header["parameters"]:
        if "constant" not in row:
            _read_parameter(program, row, by_text)
    if len(program.sources) != len(program.trace.builder.parameters):
        raise ValueError("parameters that are declared neither placeholders nor variables")
    place = {instruction: k for k, instruction in enumerate(instructions)}
    _read_updates(program, header["updates"], by_text, place)
    for row in header["targets"]:
        name = str(row["name"])
        program.targets[name] = (
            Text(program, name, _decoded(row["text"]), _source(row.get("source")))
            if "text" in row
            else Operation(program, name, tuple(row["needs"]))
        )
    _find_needs(program)
    for first, last, needs in header["after"]:
        found = tuple([program.find(str(n)) for n in needs])
        program.ranges.append((place[by_text[first]], place[by_text[last]] + 1, found))
    for name, members in header["collections"].items():
        program.collections[str(name)] = [program.find(str(m)) for m in members]


def _read_updates(
    program: Graph,
    rows: Iterable[Mapping[str, Any]],
    by_text: Mapping[str, Instruction],
    place: Mapping[Instruction, int],
) -> None:
    results = _results_of_updates(program)
    for row in rows:
        name, variable, value = str(row["name"]), str(row["variable"]), by_text[row["value"]]
        if value.shape is not program.variables[variable]._shape:
            raise ValueError(f"{name!r} sets {variable!r} to {value.shape!r}")
        own = tuple([by_text[text] for text in row["own"]])
        program.updates[name] = UpdateRecord(name, variable, value, place[results[name]], tuple(row["needs"]), own)


def _results_of_updates(program: Graph) -> dict[str, Instruction]:
    """By the name of an update: the node that reads the variable after it."""
    return {s.update: i for i, s in program.sources.items() if isinstance(s, ReadRecord) and s.update}


def _find_needs(program: Graph) -> None:
    """The dependencies of updates and operations, which are names until all their targets exist."""
    program.adopt_names({})
    for one in (*program.updates.values(), *program.targets.values()):
        if isinstance(one, (UpdateRecord, Operation)):
            one.needs = tuple([program.find(str(name)) for name in one.needs])


def _with_constants(
    header: dict[str, Any], entry: Computation, constants: Mapping[str, np.ndarray]
) -> list[Instruction]:
    """The instructions, without the root; parameters that are constants replaced by them."""
    large = {row["in"]: row["constant"] for row in header["parameters"] if "constant" in row}
    mapped: dict[Instruction, Instruction] = {}
    found, count = [], 0
    for instruction in entry.instructions:
        if instruction is entry.root:
            continue
        new = instruction.replaced(mapped, {})
        if instruction.opcode == "parameter" and instruction.hint in large:
            value = constants[large[instruction.hint]]
            if value.shape != instruction.dims or value.dtype != instruction.dtype:
                raise ValueError(f"the constant {large[instruction.hint]!r} has another shape")
            new = Instruction("constant", (), instruction.shape, {"value": value}, instruction.hint, instruction.source)
        elif instruction.opcode == "parameter":
            if large:
                new = Instruction("parameter", (), instruction.shape, {}, instruction.hint, instruction.source)
            new.attributes["index"] = count
            count += 1
        if new is not instruction:
            mapped[instruction] = new
        found.append(new)
    return found


def _read_parameter(program: Graph, row: Mapping[str, Any], by_text: Mapping[str, Instruction]) -> None:
    instruction = by_text[row["in"]]
    if instruction.opcode != "parameter":
        raise ValueError(f"{row['in']} is not a parameter")
    if "variable" in row:
        name = str(row["variable"])
        initial = None if row["initial"] is None else by_text[row["initial"]]
        if initial is not None and initial.shape is not instruction.shape:
            raise ValueError(f"{name!r} begins with {initial.shape!r}")
        if row["device"]:  # which a parameter of HLO does not have
            instruction.source = on_device(instruction.source, str(row["device"]))
        record = VariableRecord(name, instruction, initial, bool(row["trainable"]))
        program.sources[instruction] = record
        program.variables[name] = Variable(program.trace, instruction, record=record)
    elif "read" in row:
        program.sources[instruction] = ReadRecord(str(row["read"]), instruction, str(row["update"]))
    else:
        program.sources[instruction] = PlaceholderRecord(str(row["placeholder"]), instruction)


def pruned(program: G, fetches: Iterable[Any], feeds: Iterable[Any]) -> G:
    """The part of a program that some fetches need; feeds become placeholders. Names are kept."""
    targets = [program.find(fetch) for fetch in fetches]
    fed = [program.find(feed, "feed").instruction for feed in feeds]  # type: ignore[union-attr]  # a Node
    result = type(program)(program.name)
    pruning = _Pruning(program, result, needed(program, targets, fed, complete=False))
    pruning.take_instructions(fed)
    pruning.take_variables()
    pruning.take_updates()
    pruning.take_targets(targets)
    _find_needs(result)
    pruning.take_ranges()
    pruning.take_collections()
    return result


class _Pruning:
    """A part of a program that is being copied. mapped: the copies of its instructions; begins: for each instruction of
    the program, and for the end, how many instructions of the copy precede it."""

    def __init__(self, program: Graph, result: Graph, need: Needed):
        self.program, self.result, self.need = program, result, need
        result.sizes = program.sizes  # the shapes of the one are those of the other
        self.mapped: dict[Instruction, Instruction] = {}
        self.begins: list[int] = []

    def take_instructions(self, fed: list[Instruction]) -> None:
        program, result, mapped = self.program, self.result, self.mapped
        wanted = {*self.need.instructions, *(record.instruction for record in self.need.variables.values())}
        results = _results_of_updates(program)
        wanted |= {results[name] for name in self.need.updates}
        builder = result.trace.builder
        for instruction in program.instructions:
            self.begins.append(len(builder.instructions))
            if instruction not in wanted:
                continue
            source = program.sources.get(instruction)
            if source is not None or instruction in fed:
                copy = builder.parameter(instruction.shape, instruction.hint, instruction.source)
                result.sources[copy] = _moved(source, copy, program.name_of(instruction), instruction in fed)
            else:
                copy = builder.add(instruction.with_operands(tuple([mapped[o] for o in instruction.operands])))
            mapped[instruction] = copy
        self.begins.append(len(builder.instructions))
        result.adopt_names({copy: program.name_of(i) for i, copy in mapped.items()})

    def take_variables(self) -> None:
        for name, variable in self.program.variables.items():
            if name in self.need.variables:
                copy = self.mapped[variable.record.instruction]
                initial = self.mapped.get(variable.record.initial) if variable.record.initial is not None else None
                self.result.sources[copy] = made = VariableRecord(name, copy, initial, variable.trainable)
                self.result.variables[name] = Variable(self.result.trace, copy, record=made)

    def take_updates(self) -> None:
        for name, update in self.program.updates.items():
            if name in self.need.updates:
                own = tuple([self.mapped[i] for i in update.own if i in self.mapped])
                value, at, needs = self.mapped[update.value], self.begins[update.at], _names_of(update.needs)
                self.result.updates[name] = UpdateRecord(name, update.variable, value, at, needs, own)

    def take_targets(self, fetched: list[Any]) -> None:
        for target in self.program.targets.values():
            if target not in self.need.operations and target not in fetched:
                continue
            if isinstance(target, Text):
                copy: Text | Operation = Text(self.result, target.name, target.value, target.source)
            else:
                assert isinstance(target, Operation)  # nodes are instructions, not targets
                copy = Operation(self.result, target.name, _names_of(target.needs), target.host)
            self.result.targets[target.name] = copy

    def take_ranges(self) -> None:
        known = set(self.result.names())
        for begin, end, needs in self.program.ranges:
            kept = tuple([self.result.find(name) for name in _names_of(needs) if name in known])
            if kept and self.begins[end] > self.begins[begin]:
                self.result.ranges.append((self.begins[begin], self.begins[end], kept))

    def take_collections(self) -> None:
        known = set(self.result.names())
        for name, members in self.program.collections.items():
            if inside := [m.name for m in members if getattr(m, "name", None) in known]:
                self.result.collections[name] = [self.result.find(m) for m in inside]


def _names_of(needs: Iterable[Any]) -> tuple[str, ...]:
    return tuple([need.name for need in needs])


def _moved(source: Any, copy: Instruction, name: str, fed: bool) -> Any:
    if fed or isinstance(source, PlaceholderRecord):
        return PlaceholderRecord(name, copy)
    if isinstance(source, ReadRecord):
        return ReadRecord(source.variable, copy, source.update)
    if isinstance(source, HostRecord):
        return HostRecord(source.name, copy, source.source, source.index)
    return source


__all__ = ["MAGIC", "from_text", "pruned", "to_text"]
