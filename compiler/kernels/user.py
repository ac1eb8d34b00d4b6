"""The kernel kind of kernels that users write (`hloom.kernel`): their phases become launches, one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.compiler.kernel_ir.affine.dependences import Range
from hloom.compiler.kernel_ir.builder import number
from hloom.compiler.kernel_ir.nodes import Expr, Kernel, Load
from hloom.compiler.kernel_ir.rewrite import replaced, with_expressions, with_own_variables
from hloom.compiler.kernel_ir.transforms.optimize import transformed
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.launch import Launch, launch_by_grain, launch_by_work
from hloom.compiler.kernels.request import KernelRequest
from hloom.ir.module import Instruction
from hloom.ir.records import field, record, replace

__all__ = ["Phase", "Program", "phases_of", "user_launches"]


@record(frozen=True)
class Phase:
    """One loop whose iterations are independent, or statements that run once.

    arguments: for each parameter but lo and hi "in0" (an operand), "out0" (a result), the name of a temporary, or a
    size. items: iterations. work: element operations of one. whole: one thread runs all of them. copies: of a phase
    that only copies an operand to a result, (the result, the operand).
    """

    kernel: Kernel
    arguments: tuple[Any, ...]
    items: Any
    work: float
    whole: bool = False
    copies: tuple[str, str] | None = None


@record(frozen=True)
class Program:
    """A kernel at the shapes and dtypes of a call. temporaries: bytes by name. tables: constants by name."""

    phases: tuple[Phase, ...]
    temporaries: dict[str, int]
    tables: dict[str, np.ndarray] = field(default_factory=dict)

    def updates(self, result: int, operand: int) -> bool:
        """Whether a result begins as a copy of an operand that nothing else reads: it may be computed in its memory."""
        copies = (f"out{result}", f"in{operand}")
        return any(p.copies == copies for p in self.phases) and not any(
            copies[1] in p.arguments for p in self.phases if p.copies != copies
        )

    def temporaries_of(self, phase: Phase) -> dict[str, int]:
        """Those that a phase uses."""
        return {a: self.temporaries[a] for a in phase.arguments if isinstance(a, str) and a in self.temporaries}

    def tables_of(self, phase: Phase) -> dict[str, np.ndarray]:
        """Those that a phase reads."""
        return {a: self.tables[a] for a in phase.arguments if isinstance(a, str) and a in self.tables}


def phases_of(request: KernelRequest) -> tuple[Program, list[Phase]]:
    """(the program of a computation of one kernel, its phases with the pointers of the request's buffers)."""
    instruction = request.instruction("kernel")
    constants = {f"in{k}": operand for k, operand in enumerate(instruction.operands) if operand.opcode == "constant"}
    pointers = {f"in{k}": request.names.get(operand, "") for k, operand in enumerate(instruction.operands)}
    pointers |= {f"out{k}": request.output_name(k) for k in range(len(instruction.shape.elements))}
    program: Program = instruction["kernel"].program
    phases = []
    for phase in program.phases:
        if phase.copies is not None and pointers[phase.copies[0]] == pointers[phase.copies[1]]:
            continue
        given = [a for a in phase.arguments if not isinstance(a, str) or a not in constants]
        arguments = tuple([pointers.get(a, a) if isinstance(a, str) else a for a in given])
        phases.append(replace(phase, kernel=_with_constants(phase, constants), arguments=arguments))
    return program, phases


def user_launches(request: KernelRequest) -> list[Launch]:
    """The launches of a computation of one kernel."""
    launches = []
    program, phases = phases_of(request)
    for phase in phases:
        if not phase.items:
            continue
        kernel = transformed(phase.kernel, _known(phase))
        source = KernelSource.of(with_own_variables(kernel))  # phases share variables
        temporaries = program.temporaries_of(phase)
        arguments = list(phase.arguments)
        if phase.whole:
            work = float(phase.work) * phase.items
            made = launch_by_grain(source, arguments, phase.items, phase.items, temporaries, work)
        else:
            made = launch_by_work(source, arguments, phase.items, phase.work, temporaries, moved=request.moved)
        launches.append(replace(made, tables=program.tables_of(phase)))
    return launches


def _known(phase: Phase) -> dict[str, Range]:
    """What is known of the integer parameters of a phase, by name."""
    names = [var.name for var in phase.kernel.params]
    sizes: dict[str, Range] = {name: a for name, a in zip(names, phase.arguments, strict=False) if isinstance(a, int)}
    items = phase.items if isinstance(phase.items, int) else None
    return sizes | dict.fromkeys(names[-2:], (0, items))


def _with_constants(phase: Phase, constants: dict[str, Instruction]) -> Kernel:
    """The kernel with numbers in the place of operands that are constants of one element."""
    kernel = phase.kernel
    known = {
        var: constants[argument]["value"]
        for var, argument in zip(kernel.params, phase.arguments, strict=False)
        if isinstance(argument, str) and argument in constants
    }
    if not known:
        return kernel

    def known_value(expression: Expr) -> Expr | None:
        if isinstance(expression, Load) and expression.pointer in known:
            return number(known[expression.pointer].item(), expression.type)
        return None

    body = [with_expressions(s, lambda e: replaced(e, known_value)) for s in kernel.body]
    return Kernel(kernel.name, tuple([var for var in kernel.params if var not in known]), body)
