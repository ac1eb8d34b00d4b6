"""The verifier: checks a module against the rules of the IR. Run after a pass in debug mode, and on parsed text.

Each rule has a name (`RULES`), which the error states along with the instruction's text and provenance.
"""

from __future__ import annotations

from typing import NoReturn

from hloom.ir.errors import HloomError
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.op_table import OPS
from hloom.ir.spmd.checks import check_sharding
from hloom.ir.spmd.shardy import all_shardings
from hloom.ir.text.attributes import is_required, kind_of
from hloom.ir.text.printer import callees, print_instruction, printing_order
from hloom.ir.types import Shape, TupleShape, are_equal, result_shapes


class VerifyError(HloomError):
    """A module breaks a rule of the IR. Raised by the verifier, after a pass or a parse."""

    rule: str
    instruction: Instruction | None


RULES = {
    "opcode": "every opcode is in the op table",
    "once": "an instruction occurs in a computation once",
    "operand": "operands are defined before their use, in the same computation",
    "attribute": "an instruction has the attributes that its op declares, with values of their kinds",
    "shape": "the shape of an instruction is what its op infers",
    "parameter": "parameters are the computation's parameter instructions, in the order of their indexes",
    "root": "the root is an instruction of the computation",
    "recursion": "no computation calls itself, not through others either",
    "sharding": "a sharding fits the array and the module's partitions",
    "alias": "an alias joins an output to a parameter of its shape, each to one at most",
}


def _fail(
    rule: str, found: str, computation: Computation, instruction: Instruction | None = None, repair: str = ""
) -> NoReturn:
    text = ""
    if instruction is not None:
        line = print_instruction(instruction, computation)
        text = f"\n    {line if len(line) <= 400 else line[:400] + '...'}"
        if instruction.made_by:
            found += f" (made by {', '.join(instruction.made_by)})"
    error = VerifyError(
        f"rule '{rule}' is broken in computation {computation.name}: {RULES[rule]}{text}", found, repair
    )
    # The user's line of the instruction; the verifier's call site is irrelevant.
    error.source = instruction.source if instruction is not None else None
    error.rule, error.instruction = rule, instruction
    raise error


def verify(module: Module) -> None:
    """Checks all computations of a module, their calls, and its aliases. Raises VerifyError."""
    _check_calls(module.entry)
    for computation in printing_order(module.entry):
        verify_computation(computation)
        if module.partitions > 1:
            _check_shardings(computation, module.partitions)
    _check_aliases(module)


def verify_computation(computation: Computation) -> None:
    """Checks one computation, and only the signatures of those that it calls. Raises VerifyError."""
    seen: set[Instruction] = set()
    for instruction in computation.instructions:
        if instruction in seen:
            _fail("once", "it occurs again", computation, instruction, "add each instruction once")
        entry = OPS.get(instruction.opcode)
        if entry is None:
            _fail("opcode", f"'{instruction.opcode}'", computation, instruction, "declare the op in hloom/ir/ops")
        for k, operand in enumerate(instruction.operands):
            if operand not in seen:
                where = "later" if operand in computation.instructions else "in another computation, or nowhere"
                _fail(
                    "operand", f"operand {k}, {operand!r}, is defined {where}", computation, instruction,
                    "keep the instructions in topological order",
                )  # fmt: skip
        _check_attributes(computation, instruction, entry.attributes)
        _check_shape(computation, instruction, entry)
        seen.add(instruction)
    _check_parameters(computation)
    if computation.root not in seen:
        _fail("root", repr(computation.root), computation, repair="pass an instruction that was added")


def _check_shardings(computation: Computation, partitions: int) -> None:
    for instruction in computation.instructions:
        if instruction.sharding is None:
            continue
        try:
            check_sharding("the sharding slot", instruction.sharding, instruction.shape)
        except HloomError as error:
            _fail("sharding", f"{error.asked}; {error.found}", computation, instruction, error.repair)
        for sharding in all_shardings(instruction.sharding):
            if sharding.device is None and sharding.is_replicated:
                continue  # scalar combiners are shared between modules
            last = sharding.mesh.size - 1 if sharding.device is None else sharding.device
            if last >= partitions or (sharding.device is None and last + 1 < partitions):
                found = f"a mesh of {last + 1} devices, the module has {partitions} partitions"
                _fail("sharding", found, computation, instruction, "lay it out over all partitions")


def _check_attributes(computation: Computation, instruction: Instruction, declared: dict[str, str]) -> None:
    for name, value in instruction.attributes.items():
        if name not in declared:
            has = ", ".join(declared) or "none"
            _fail(
                "attribute",
                f"'{name}', which {instruction.opcode} does not have; it has: {has}",
                computation,
                instruction,
            )
        kind = kind_of(declared[name])
        if not kind.holds(value):
            _fail("attribute", f"{name}={value!r:.80}, expected {kind.meaning}", computation, instruction)
    for name, written in declared.items():
        if is_required(written) and name not in instruction.attributes:
            _fail("attribute", f"'{name}' is missing", computation, instruction, f"give {name}=")


def _check_shape(computation: Computation, instruction: Instruction, entry) -> None:
    if not isinstance(instruction.shape, (Shape, TupleShape)):
        _fail("shape", f"{instruction.shape!r} is no shape", computation, instruction)
    try:
        shape = entry.infer([o.shape for o in instruction.operands], instruction.attributes, instruction.shape)
    except HloomError as error:
        found = f"{error.asked}; {error.found}" if error.found else error.asked
        _fail("shape", found, computation, instruction, error.repair)
    except (AttributeError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        # Shape rules access the expected operands without always checking that they exist and are arrays.
        _fail("shape", f"{instruction.opcode} cannot take these operands ({error})", computation, instruction)
    if not are_equal(shape, instruction.shape):
        _fail("shape", f"{instruction.shape!r}, inferred {shape!r}", computation, instruction)


def _check_parameters(computation: Computation) -> None:
    found = {i for i in computation.instructions if i.opcode == "parameter"}
    for index, parameter in enumerate(computation.parameters):
        if parameter not in found:
            _fail("parameter", f"parameter {index} is not among the instructions", computation, parameter)
        if parameter["index"] != index:
            _fail("parameter", f"it is at index {index} of the parameters", computation, parameter)
    for extra in found.difference(computation.parameters):
        _fail("parameter", "it is not among the computation's parameters", computation, extra)


def _check_calls(entry: Computation) -> None:
    """Checks that the call graph is acyclic, by depth-first search with the chain of open calls."""

    def calls(computation):
        return iter([(c, i) for i in computation.instructions for c in callees(i)])

    done: set[int] = set()
    chain = {id(entry)}
    stack = [(entry, calls(entry))]
    while stack:
        computation, following = stack[-1]
        for callee, instruction in following:
            if id(callee) in chain:
                _fail("recursion", f"it calls {callee.name}, which is being called", computation, instruction)
            if id(callee) not in done:
                chain.add(id(callee))
                stack.append((callee, calls(callee)))
                break
        else:
            stack.pop()
            chain.discard(id(computation))
            done.add(id(computation))


def _check_aliases(module: Module) -> None:
    entry = module.entry
    shapes = result_shapes(entry.shape)
    used: set[int] = set()
    for output, parameter in module.aliases.items():
        if not 0 <= output < len(shapes):
            _fail("alias", f"output {output} of {len(shapes)}", entry)
        if not 0 <= parameter < len(entry.parameters):
            _fail("alias", f"parameter {parameter} of {len(entry.parameters)}", entry)
        if shapes[output] is not entry.parameters[parameter].shape:
            found = f"output {output} is {shapes[output]!r}, parameter {parameter} is another shape"
            _fail("alias", found, entry, entry.parameters[parameter])
        if parameter in used:
            _fail("alias", f"parameter {parameter} is given away twice", entry, entry.parameters[parameter])
        used.add(parameter)
