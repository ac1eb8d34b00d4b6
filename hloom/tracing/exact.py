"""The double-precision value of a weakly typed number: it keeps its digits until the dtype beside it is known.

A Python float, and what is computed of Python floats alone, has the default dtype f32 (c64) and is weakly typed. Beside
an f64 array it becomes f64, and then has the value that Python computes with, as a constant in the source would.
Eagerly an Array holds that value (`Array._exact`). In a trace it is computed where it is asked for: the scalar
instructions of the number are repeated in double precision. The program of a jitted function then has a further f64
parameter for each weakly typed argument that is used so. Where an argument is differentiated, what f32 lacks is added.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from hloom.arrays.array import Array
from hloom.arrays.digits import DOUBLE, is_repeated
from hloom.errors import PrecisionWarning
from hloom.ir.module import Instruction
from hloom.ir.source import current_source
from hloom.tracing.trace import Trace, Tracer, bind, resumed

_DOUBLES = frozenset(DOUBLE.values())


def widened(x: Array | Tracer, dtype: np.dtype):
    """A weakly typed array of single precision with its value in double precision; None where x is anything else, or
    `dtype`, to which it is converted, has no more digits."""
    if dtype not in _DOUBLES or x._shape.dtype not in DOUBLE:
        return None
    if not x.weak:
        _warn_of_creation(x)
        return None
    if isinstance(x, Array):
        return exact_array(x)
    return _exact_tracer(x) if x.trace.active else None


def exact_array(x: Array) -> Array:
    """The value of an Array in double precision; converted where the Array knows no better."""
    exact = getattr(x, "_exact", None)
    wide = DOUBLE[x._shape.dtype]
    if exact is None:
        return Array(x._value().astype(wide))
    value = np.asarray(exact, wide)
    return Array(value if value.shape == x.shape else np.full(x.shape, value))


def created(x, name: str, numbers):
    """x, which the function `name` made without a dtype of these Python numbers (None: of computed ones).

    Where f32 lacks digits of them, its use beside double precision warns."""
    if x._shape.dtype in DOUBLE and (numbers is None or any(n != complex(np.complex64(n)) for n in numbers)):
        if isinstance(x, Array):
            x._created_by = name
        else:
            x.trace.created_by[x.instruction] = name
    return x


def _warn_of_creation(x: Array | Tracer) -> None:
    name = getattr(x, "_created_by", "") if isinstance(x, Array) else x.trace.created_by.get(x.instruction, "")
    if not name:
        return
    source = current_source()
    text = (
        f"{name} without a dtype, used beside double precision\n"
        f"  found:  {x._shape!r}, the default, which has 7 digits\n"
        f"  where:  {source or ''}\n"
        f"  repair: pass dtype='float64' to {name}, or set hl.config.enable_x64"
    )
    where, line = (source.file, source.line) if source else ("hloom", 0)
    warnings.warn_explicit(text, PrecisionWarning, where, line, registry=_REGISTRY)


_REGISTRY: dict = {}  # of the warnings that were shown: each line warns once


def exact_arguments(leaves: list, wide: tuple[int, ...]) -> list:
    """The arguments of a program that `Traced.wide` names, in double precision."""
    return [_exact_argument(leaves[k]) for k in wide]


def _exact_argument(x: Array | Tracer):
    double = DOUBLE[x._shape.dtype]
    exact = widened(x, double)
    return bind("convert", x, shape=x._shape.with_dtype(double)) if exact is None else exact


def _exact_tracer(x: Tracer) -> Tracer:
    trace, exact = x.trace, x.trace.exact
    with resumed(trace):
        constants = {instruction: array for array, instruction in trace.constants.values()}
        stack = [x.instruction]
        while stack:
            instruction = stack[-1]
            missing = [o for o in _repeated(instruction) if o not in exact]
            if instruction not in exact and not missing:
                exact[instruction] = _exact_of(trace, instruction, constants)
            if missing:
                stack += missing
            else:
                stack.pop()
    return exact[x.instruction]


def _repeated(instruction: Instruction) -> list[Instruction]:
    """The operands of single precision of a scalar instruction that is repeated in double precision."""
    if not _repeats(instruction):
        return []
    return [o for o in instruction.operands if o.shape.dtype in DOUBLE]


def _repeats(instruction: Instruction) -> bool:
    operands = instruction.operands
    if not operands or not is_repeated(instruction.opcode):
        return False
    if instruction.opcode == "convert":
        return operands[0].shape.dtype.kind in "biu"
    return True


def _exact_of(trace: Trace, instruction: Instruction, constants: dict[Instruction, Array]) -> Tracer:
    shape = instruction.shape.with_dtype(DOUBLE[instruction.shape.dtype])
    if instruction in constants:
        return Tracer(trace, *trace.lift(exact_array(constants[instruction])))
    if _repeats(instruction):
        operands = [trace.exact[o] if o in trace.exact else _tracer(trace, o) for o in instruction.operands]
        return bind(instruction.opcode, *operands, shape=shape, **instruction.attributes)
    number = trace.weak_arguments.get(instruction)
    if isinstance(number, int):
        trace.wide_arguments.append(number)
        parameter = trace.builder.parameter(shape, instruction.hint)
        trace.wide_parameters.append(parameter)
        return Tracer(trace, parameter)
    converted = bind("convert", _tracer(trace, instruction), shape=shape)
    return converted if number is None else _with_rest(trace, converted, number)


def _with_rest(trace: Trace, converted: Tracer, argument: Array | Tracer) -> Tracer:
    """The converted parameter plus what the argument's value in single precision lacks, which has no derivative."""
    double = converted._shape.dtype
    with resumed(argument.trace if isinstance(argument, Tracer) else None):
        exact = widened(argument, double)
        if exact is None or (isinstance(argument, Array) and not np.isfinite(argument._value()).all()):
            return converted
        rest = bind("subtract", exact, bind("convert", argument, shape=converted._shape))
    return bind("add", converted, rest)


def _tracer(trace: Trace, instruction: Instruction) -> Tracer:
    value: Any = None
    if trace.carries_values:
        value = trace.values.get(instruction, trace.parameter_values.get(instruction))
        if value is None and instruction.opcode == "constant":
            value = instruction["value"]
    return Tracer(trace, instruction, value)
