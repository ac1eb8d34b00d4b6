"""Costs of a compiled module: floating point operations, bytes moved, kernels, memory."""

from __future__ import annotations

import math
from collections.abc import Callable

from hloom.compiler.schedule.scheduler import Plan
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.ops import OPS
from hloom.ir.ops.linalg.convolution import parse_labels
from hloom.ir.ops.linalg.dot import dot_dims
from hloom.ir.types import Shape, TupleShape


def instruction_flops(instruction: Instruction, known: dict[int, float] | None = None) -> float:
    """Approximate floating point operations of one instruction, including calls. known: as in `computation_flops`."""
    return _total(instruction, _flops, {} if known is None else known)


def computation_flops(computation: Computation, known: dict[int, float] | None = None) -> float:
    """As `instruction_flops`, for all instructions. known: cached results for computations, by id."""
    return _computation_total(computation, _flops, {} if known is None else known)


def arithmetic_flops(computation: Computation) -> float:
    """As `computation_flops`, without transcendental functions: XLA's definition of flops."""
    return _computation_total(computation, lambda i: 0.0 if OPS[i.opcode].transcendental else _flops(i), {})


def transcendentals(computation: Computation) -> float:
    """The number of evaluations of transcendental functions (`Op.transcendental`), as counted by XLA."""
    return _computation_total(computation, lambda i: _elements(i) if OPS[i.opcode].transcendental else 0.0, {})


def _total(instruction: Instruction, own: Callable[[Instruction], float], known: dict[int, float]) -> float:
    """The sum of `own` over an instruction, or over its called computations."""
    opcode = instruction.opcode
    if opcode in ("fusion", "call", "while", "conditional"):  # a step of a loop counts once, as in XLA
        return sum(_computation_total(c, own, known) for c in instruction.called())
    if opcode == "reduce":
        arrays = instruction.operands[: len(instruction.operands) // 2]
        return _computation_total(instruction["to_apply"], own, known) * sum(a.shape.size for a in arrays)
    return own(instruction)


def _computation_total(computation: Computation, own: Callable[[Instruction], float], known: dict[int, float]) -> float:
    if id(computation) not in known:
        known[id(computation)] = sum(_total(i, own, known) for i in computation.instructions)
    return known[id(computation)]


def _flops(instruction: Instruction) -> float:
    opcode = instruction.opcode
    if opcode == "dot":
        _, _, contracting, _ = dot_dims(instruction.attributes)
        return 2.0 * instruction.shape.size * math.prod(instruction.operands[0].dims[d] for d in contracting)
    if opcode == "convolution":
        labels, kernel = parse_labels(instruction["dim_labels"]), instruction.operands[1].dims
        return 2.0 * instruction.shape.size * math.prod(kernel) / max(kernel[labels.rhs.batch], 1)
    return OPS[opcode].flops * _elements(instruction)


def _elements(instruction: Instruction) -> float:
    """The number of elements of an array; 0 for a tuple."""
    return 0.0 if isinstance(instruction.shape, TupleShape) else float(instruction.shape.size)


def bytes_accessed(module: Module) -> int:
    """Bytes that the kernels of a module read and write, each operand and result once per kernel."""
    total = 0
    for instruction in module.entry.instructions:
        if OPS[instruction.opcode].family == "structure" and instruction.opcode not in ("fusion", "custom-call"):
            continue
        if instruction.opcode == "reshape":
            continue
        total += instruction.shape.bytes + sum(o.shape.bytes for o in dict.fromkeys(instruction.operands))
    return total


def cost_analysis(plan: Plan) -> dict[str, float]:
    """'flops', 'transcendentals' (whose cost is included in flops), 'bytes accessed', 'kernels' (launches),
    'distinct kernels' (compiled code)."""
    kernels = plan.kernels()
    return {
        "flops": computation_flops(plan.module.entry),
        "transcendentals": transcendentals(plan.module.entry),
        "bytes accessed": float(bytes_accessed(plan.module)),
        "kernels": float(len(kernels)),
        "distinct kernels": float(len({s.launch.source for s in kernels})),
    }


def memory_analysis(plan: Plan) -> dict[str, int]:
    """Bytes of arguments, outputs (those in donated arguments separately), temporaries (the arena) and constants,
    including memory kept between calls."""
    shapes: list[Shape] = plan.output_shapes
    return {
        "argument bytes": sum(s.bytes for s in plan.input_shapes),
        "output bytes": sum(s.bytes for k, s in enumerate(shapes) if k not in plan.donated),
        "donated bytes": sum(shapes[k].bytes for k in plan.donated),
        "temporary bytes": plan.arena_bytes,
        "constant bytes": sum(c.nbytes for c in plan.constants) + plan.kept_bytes,
    }
