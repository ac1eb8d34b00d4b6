"""The twin of a weakly typed number: its value in double width, kept until the dtype of the other operand is known.

A Python number, and any value computed from Python numbers alone, has a default dtype (s32, f32, c64) and is weakly
typed. Combined with a 64-bit array it takes that dtype, and then has the value that Python computes with, as a constant
in the source would. Eagerly an Array holds its twin (`Array._exact`). In a trace the twin is made on demand:

- For results of ops, by repeating the ops in double width.
- For a value of an outer trace, by requesting it there; the twin is then captured like the value.
- For an argument, as a further parameter of the traced function (`Traced.wide`), whose value the caller passes. An
  integer argument is its own twin: 32 bits hold it.
- For a result of a nested function (a loop, a branch, an inner jit, a derivative), as a further result of it. These are
  made only where `TRACES.twins` is set, since few programs need them. A trace that lacks one restarts with them.
"""

from __future__ import annotations

import warnings

import numpy as np

from hloom.arrays.array import Array
from hloom.arrays.digits import DOUBLE, WIDE, is_repeated, widened_operands
from hloom.errors import PrecisionWarning
from hloom.ir.module import Instruction
from hloom.ir.source import current_source
from hloom.ir.types import INEXACT, INTEGERS, Shape
from hloom.tracing.active import require_twins
from hloom.tracing.trace import Trace, Tracer, bind, resumed, twins_of_results, with_weakness


def widened(x: Array | Tracer, dtype: np.dtype):
    """The twin of a weakly typed value that is converted to `dtype`; None if the conversion of the value itself is
    the same."""
    own = x._shape.dtype
    if own not in DOUBLE or (dtype not in WIDE and not _may_have_wrapped(x, dtype)):
        return None
    if not x.weak:
        _warn_of_creation(x)
        return None
    return twin(x)


def _may_have_wrapped(x: Array | Tracer, dtype: np.dtype) -> bool:
    """Whether x is an integer that was computed of Python's, which do not wrap, and becomes a float."""
    if not x.weak or x._shape.dtype not in INTEGERS or dtype not in INEXACT:
        return False
    if isinstance(x, Array):
        return getattr(x, "_exact", None) is not None
    return x.instruction.opcode not in ("parameter", "constant") and is_repeated(x.instruction.opcode)


def twin(x: Array | Tracer) -> Array | Tracer:
    """A weakly typed value in double width."""
    return exact_array(x) if isinstance(x, Array) else _exact_tracer(x)


def exact_array(x: Array) -> Array:
    """The value of an Array in double width; converted where the Array knows no better."""
    exact = getattr(x, "_exact", None)
    wide = DOUBLE[x._shape.dtype]
    if exact is None:
        return Array(x._value().astype(wide), False, x._device)
    value = np.asarray(exact, wide)
    return Array(value if value.shape == x.shape else np.full(x.shape, value), False, x._device)


def created(x, name: str, numbers):
    """x, which the function `name` made without a dtype from these Python numbers (None: from computed ones).

    If f32 cannot hold all their digits, using x with double precision warns."""
    if x._shape.dtype in DOUBLE and (numbers is None or any(n != complex(np.complex64(n)) for n in numbers)):
        if isinstance(x, Array):
            x._created_by = name
        else:
            x.trace.created_by[x.instruction] = name
    return x


def strongly_typed(result, name: str, *operands):
    """result, which the function `name` made from operands; records if weakly typed ones lose digits in it."""
    if result.weak or result._shape.dtype not in DOUBLE or not has_digits(result):
        return result
    return created(result, name, None) if any(map(_lacks_digits, operands)) else result


def _lacks_digits(x) -> bool:
    if not x.weak or not has_digits(x) or x._shape.dtype not in DOUBLE:
        return False
    if isinstance(x, Tracer):
        return True
    exact = getattr(x, "_exact", None)
    return exact is not None and not np.array_equal(exact, x._value(), equal_nan=True)


def _warn_of_creation(x: Array | Tracer) -> None:
    name = getattr(x, "_created_by", "") if isinstance(x, Array) else x.trace.created_by.get(x.instruction, "")
    if not name:
        return
    source = current_source()
    text = (
        f"{name} without a dtype, used beside double precision\n"
        f"  found:  {x._shape!r}, the default, which has 7 digits\n"
        f"  where:  {source or ''}\n"
        f"  repair: pass dtype='float64' to {name}, or arrays of float64, or set hl.config.enable_x64"
    )
    where, line = (source.file, source.line) if source else ("hloom", 0)
    warnings.warn_explicit(text, PrecisionWarning, where, line, registry=_REGISTRY)


_REGISTRY: dict = {}  # of the warnings that were shown: each line warns once


def exact_arguments(leaves: list, wide: tuple[int, ...]) -> list:
    """The twins of the arguments that `Traced.wide` names."""
    return [wide_value(leaves[k]) for k in wide]


def wide_shape(shape: Shape) -> Shape:
    """The shape of a twin."""
    return shape.with_dtype(DOUBLE[shape.dtype])


def wide_value(x: Array | Tracer):
    """x in double width: its twin where it is weakly typed."""
    return twin(x) if x.weak else bind("convert", x, shape=wide_shape(x._shape))


def note_twin(x, exact):
    """Records the twin of a weakly typed value, which a nested function returned; returns the value."""
    if isinstance(x, Tracer):
        x.trace.exact[x.instruction] = exact
    else:
        x._exact = exact._value() if isinstance(exact, Array) else None
    return x


def note_lack(values) -> None:
    """Records that the twins of the weakly typed values among these parameters are not passed."""
    for x in values:
        if x.weak and has_digits(x):
            x.trace.without_twin.add(x.instruction)


def narrowed(exact, shape, weak: bool = True):
    """The value whose twin this is: in single width, and weakly typed."""
    return note_twin(with_weakness(bind("convert", exact, shape=shape), weak), exact)


def _twins(results: list) -> tuple[list, tuple[int, ...]]:
    """(twins, the indices of the results that have one): of weakly typed floats."""
    numbers = tuple(k for k, r in enumerate(results) if r.weak and r._shape.dtype in DOUBLE and has_digits(r))
    return [twin(results[k]) for k in numbers], numbers


twins_of_results["find"], twins_of_results["note"] = _twins, note_twin


def has_digits(x) -> bool:
    """Whether it has digits beyond single precision: integers in 32 bits are exact."""
    return x._shape.dtype in INEXACT


def _exact_tracer(x: Tracer) -> Tracer:
    trace, exact = x.trace, x.trace.exact
    if x.instruction in exact:
        return exact[x.instruction]
    if not trace.active:
        require_twins()
        return bind("convert", x, shape=wide_shape(x._shape))
    with resumed(trace):
        captured = {parameter: value for value, parameter in trace.captures.values()}
        constants = {instruction: array for array, instruction in trace.constants.values()}
        stack = [x.instruction]
        while stack:
            instruction = stack[-1]
            missing = [o for o in _repeated(instruction) if o not in exact]
            if instruction not in exact and not missing:
                exact[instruction] = _exact_of(trace, instruction, captured, constants)
            if missing:
                stack += missing
            else:
                stack.pop()
    return exact[x.instruction]


def _repeated(instruction: Instruction) -> list[Instruction]:
    """The operands of an instruction that take part in double width where it is repeated so."""
    operands = instruction.operands
    if not operands or not is_repeated(instruction.opcode):
        return []
    wanted = widened_operands(instruction.opcode, tuple([o.shape.dtype for o in operands]), instruction.shape.dtype)
    return [o for o, widens in zip(operands, wanted, strict=True) if widens]


def _exact_of(trace: Trace, instruction: Instruction, captured, constants) -> Tracer:
    own, shape = instruction.shape.dtype, wide_shape(instruction.shape)
    if instruction in constants:
        return Tracer(trace, *trace.lift(exact_array(constants[instruction])))
    if instruction in captured:
        return Tracer(trace, *trace.lift(twin(captured[instruction])))
    if instruction.operands and is_repeated(instruction.opcode):
        repeated = frozenset(_repeated(instruction))
        operands = [trace.exact[o] if o in repeated else _tracer(trace, o) for o in instruction.operands]
        return bind(instruction.opcode, *operands, shape=shape, **instruction.attributes)
    if own in INEXACT:
        if instruction in trace.weak_arguments:
            return _wide_parameter(trace, instruction, shape)
        if instruction.opcode in _NESTED or instruction in trace.without_twin:
            require_twins()
    return bind("convert", _tracer(trace, instruction), shape=shape)


_NESTED = frozenset(("get-tuple-element", "call"))  # whose results a nested function computed


def _wide_parameter(trace: Trace, instruction: Instruction, shape) -> Tracer:
    """A further parameter of the traced function: the twin of one that is weakly typed."""
    number, argument = trace.weak_arguments[instruction]
    if number < trace.carried:  # each step has to compute the twin for the next one
        require_twins()
    trace.wide_arguments.append(number)
    parameter = trace.builder.parameter(shape, instruction.hint)
    trace.wide_parameters.append(parameter)
    value = None
    if trace.carries_values and _tracer(trace, instruction).value is not None:
        with resumed(argument.trace if isinstance(argument, Tracer) else None):
            exact = twin(argument)
        value = trace.parameter_values[parameter] = exact.value if isinstance(exact, Tracer) else exact._value()
    return Tracer(trace, parameter, value)


def _tracer(trace: Trace, instruction: Instruction) -> Tracer:
    value = None
    if trace.carries_values:
        value = trace.values.get(instruction, trace.parameter_values.get(instruction))
        if value is None and instruction.opcode == "constant":
            value = instruction["value"]
    return Tracer(trace, instruction, value)
