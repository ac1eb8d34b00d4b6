"""Prints modules, computations and instructions as HLO text.

Names are the hints of instructions, made unique over the module in text order. Printed text already has unique names,
so parsing and printing it yields the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from hloom.ir.loops import lower_scans
from hloom.ir.module import Computation, Instruction, Module, callees_first
from hloom.ir.op_table import OPS
from hloom.ir.ops.programs.transfer import WITHOUT_DEVICE
from hloom.ir.spmd.shardy import mesh_text
from hloom.ir.spmd.tiles import tiles_text
from hloom.ir.text.attributes import BRANCHES, POSITIONAL, is_frontend, kind_of, text_of_attribute
from hloom.ir.text.lexer import escape
from hloom.ir.text.placement import MESH, named_mesh
from hloom.ir.text.provenance import DEVICE, TABLES, metadata_text
from hloom.ir.text.shapes import PRIMITIVE_TYPES, numbered, shape_text, signature_text
from hloom.ir.text.sizes import has_sizes, written
from hloom.ir.types import PRED, Shape, TupleShape

_ILLEGAL = re.compile(r"[^A-Za-z0-9_.\-]")
_RESERVED = PRIMITIVE_TYPES | {"ROOT", "ENTRY", "HloModule", *TABLES}


def _legal(name: str) -> str:
    """The name with invalid characters replaced by underscores."""
    name = _ILLEGAL.sub("_", name)
    if not name or not (name[0].isalpha() or name[0] == "_"):
        name = "_" + name
    return name + "_" if name in _RESERVED or name[-1] == "-" else name


class _Namer:
    """Generates unique names: the base itself if unused, otherwise base.1, base.2, ..."""

    def __init__(self):
        self.taken: set[str] = set()
        self.last: dict[str, int] = {}

    def give(self, base: str, bare: bool = True) -> str:
        name = base
        if not bare or name in self.taken:
            number = self.last.get(base, 0) + 1
            while f"{base}.{number}" in self.taken:
                number += 1
            self.last[base] = number
            name = f"{base}.{number}"
        self.taken.add(name)
        return name


def callees(instruction: Instruction) -> list[Computation]:
    """The computations that an instruction calls, in the printing order of its attributes."""
    entry = OPS.get(instruction.opcode)
    declared = list(entry.attributes) if entry else []
    found = []
    for name in declared + [name for name in instruction.attributes if name not in declared]:
        value = instruction.attributes.get(name)
        for element in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(element, Computation):
                found.append(element)
    return found


def printing_order(entry: Computation) -> list[Computation]:
    """The computations below an entry, callees before callers, the entry last.

    Determined by text order alone (not that of attribute dictionaries), so that a parsed module has the same order.
    """
    return callees_first(entry, callees)


class Names:
    """The printed names of a list of computations and of their instructions."""

    def __init__(self, computations: list[Computation]):
        namer = _Namer()
        self.computations = {id(c): namer.give(_legal(c.name)) for c in computations}
        namer = _Namer()
        self.instructions: dict[tuple[int, Instruction], str] = {}
        for computation in computations:
            for instruction in computation.instructions:
                # An instruction may be shared by computations, with a separate name in each.
                key = id(computation), instruction
                if key not in self.instructions:
                    base = instruction.hint or instruction.opcode
                    self.instructions[key] = namer.give(_legal(base), bare=bool(instruction.hint))

    def computation(self, computation: Computation) -> str:
        return self.computations.get(id(computation)) or _legal(computation.name)

    def within(self, computation: Computation) -> Callable[[Instruction], str]:
        """instruction -> name. Instructions outside of the computation (in verifier messages) are named by their
        hints."""
        known, key = self.instructions, id(computation)
        return lambda instruction: known.get((key, instruction)) or _legal(instruction.hint or instruction.opcode)


def _line(
    instruction: Instruction,
    name: Callable[[Instruction], str],
    computation_name: Callable[[Computation], str],
    metadata: bool,
) -> str:
    """`%name = shape opcode(operands), attributes`."""
    entry = OPS.get(instruction.opcode)
    declared = entry.attributes if entry else {}
    target = entry.text if entry and entry.is_custom_call else ""
    written = "custom-call" if target else entry.text if entry else instruction.opcode
    shape = instruction.shape
    shape = shape_text(shape) if isinstance(shape, (Shape, TupleShape)) else repr(shape)
    operands = _operands(instruction, declared, name, computation_name)
    pieces = [f"%{name(instruction)} = {shape} {written}({operands})"]
    if target:
        pieces.append(f'custom_call_target="{target}"')
        if called := callees(instruction):
            pieces.append(f"called_computations={{{', '.join(f'%{computation_name(c)}' for c in called)}}}")
    own, frontend = _attributes(instruction, declared, bool(target), computation_name)
    pieces += own
    if instruction.device and instruction.opcode not in WITHOUT_DEVICE:
        frontend.append(f"{DEVICE}={escape(instruction.device)}")
    if instruction.sharding is not None:
        pieces.append(f"sharding={tiles_text(instruction.sharding)}")
    if frontend:
        pieces.append(f"frontend_attributes={{{','.join(frontend)}}}")
    # The verifier rejects undeclared attributes; its message still shows them.
    pieces.extend(f"{key}={value!r}" for key, value in instruction.attributes.items() if key not in declared)
    if metadata and (text := metadata_text(instruction)):
        pieces.append(f"metadata={{{text}}}")
    return ", ".join(pieces)


def _operands(instruction: Instruction, declared: Mapping[str, str], name, computation_name) -> str:
    """The text in parentheses: the names of the operands, or the attribute that is printed there."""
    inside = POSITIONAL.get(instruction.opcode)
    if inside in instruction.attributes:
        return _value(declared[inside], instruction.attributes[inside], computation_name)
    return numbered([f"%{name(o)}" for o in instruction.operands])


def _attributes(
    instruction: Instruction, declared: Mapping[str, str], is_custom_call: bool, computation_name
) -> tuple[list[str], list[str]]:
    """The declared attributes: (those in HLO's form, those among the frontend attributes)."""
    opcode, attributes = instruction.opcode, instruction.attributes
    inside, branches = POSITIONAL.get(opcode), attributes.get("branch_computations", ())
    own: list[str] = []
    frontend: list[str] = []
    if opcode == "conditional" and len(branches) == 2 and instruction.operands[0].shape is Shape(PRED, ()):
        own += [f"{key}=%{computation_name(c)}" for key, c in zip(BRANCHES, branches, strict=True)]
        inside = "branch_computations"
    for key, kind in declared.items():
        if key not in attributes or key == inside or kind == "hidden":
            continue
        if is_frontend(kind):
            frontend.append(f"{key}={_value(kind, attributes[key], computation_name)}")
        elif not is_custom_call:
            own.append(f"{key}={_value(kind, attributes[key], computation_name)}")
        elif not kind.startswith("computation"):
            frontend.append(f"{key}={escape(text_of_attribute(kind, attributes[key]))}")
    return own, frontend


def _value(kind: str, value, computation_name) -> str:
    known = kind_of(kind)
    if has_sizes(value) and not is_frontend(kind):
        return written(value)
    return known.write(value, computation_name) if known.holds(value) else repr(value)


def _computation_lines(computation: Computation, names: Names, entry: bool, metadata: bool) -> list[str]:
    name = names.within(computation)
    parameters = ", ".join(f"{name(p)}: {signature_text(p.shape)}" for p in computation.parameters)
    head = f"%{names.computation(computation)} ({parameters}) -> {signature_text(computation.shape)} {{"
    lines = [f"ENTRY {head}" if entry else head]
    for instruction in computation.instructions:
        lead = "  ROOT " if instruction is computation.root else "  "
        lines.append(lead + _line(instruction, name, names.computation, metadata))
    lines.append("}")
    return lines


def print_module(module: Module, *, metadata: bool = False) -> str:
    """The module as HLO text, which XLA's parser accepts. A scan, which HLO lacks, is printed as its loop.

    metadata: also print the provenance of instructions (`Instruction.source`, `made_by`).
    """
    entry = lower_scans(module).entry
    computations = printing_order(entry)
    names = Names(computations)
    header = f"HloModule {_legal(module.name)}"
    if module.aliases:
        is_tuple = isinstance(entry.shape, TupleShape)
        pairs = [
            f"{{{output if is_tuple else ''}}}: ({parameter}, {{}}, may-alias)"
            for output, parameter in sorted(module.aliases.items())
        ]
        header += f", input_output_alias={{ {', '.join(pairs)} }}"
    if module.replicas * module.partitions > 1:
        header += f", replica_count={module.replicas}, num_partitions={module.partitions}"
    mesh = named_mesh(module)
    if mesh is not None:
        header += f", frontend_attributes={{{MESH}={escape(mesh_text(mesh))}}}"
    arguments = numbered([shape_text(p.shape) for p in entry.parameters])
    header += f", entry_computation_layout={{({arguments})->{shape_text(entry.shape)}}}"
    blocks = [header]
    for computation in computations:
        blocks.append("\n".join(_computation_lines(computation, names, computation is entry, metadata)))
    return "\n\n".join(blocks) + "\n"


def print_computation(computation: Computation, *, metadata: bool = False) -> str:
    """One computation as HLO text, without those that it calls."""
    names = Names([computation])
    return "\n".join(_computation_lines(computation, names, False, metadata)) + "\n"


def print_instruction(instruction: Instruction, computation: Computation | None = None) -> str:
    """One instruction as a line of HLO text, with the names of `print_computation(computation)`."""
    if computation is None:
        return _line(instruction, lambda i: _legal(i.hint or i.opcode), lambda c: _legal(c.name), False)
    names = Names([computation])
    return _line(instruction, names.within(computation), names.computation, False)
