"""Tracks which keys were used, under `hl.config.debug_key_reuse`: a reused key yields the same numbers.

Samplers and `split` consume a key; `fold_in`, `key_data` and `clone` do not. Outside traces a key is identified by its
array, inside by the instruction that made it. A key that is an argument of a jitted function, or captured by a traced
function, is consumed for the caller if the function consumes it.
"""

from __future__ import annotations

import weakref

from hloom.arrays.array import Array
from hloom.errors import KeyReuseError
from hloom.ir.module import Instruction
from hloom.ir.source import current_source
from hloom.tracing.trace import Tracer, current_trace

_MOVES = ("slice", "reshape", "get-tuple-element", "broadcast", "transpose", "concatenate")
_used: dict[int, tuple[weakref.ref, str]] = {}  # by the id of an array: the array, and its consumer


def use_key(data: Array | Tracer, name: str) -> None:
    """Records that `name` consumes the key with these words. Raises KeyReuseError if it was already consumed."""
    user = f"{name} at {current_source() or 'an unknown line'}"
    trace = current_trace()
    if trace is not None:
        identity = _identity(trace.lift(data)[0])
        before = trace.used_keys.get(identity)
        trace.used_keys[identity] = user
    elif isinstance(data, Array):
        number = id(data)
        known = _used.get(number)
        before = known[1] if known is not None else None
        _used[number] = weakref.ref(data, lambda _: _used.pop(number, None)), user
    else:
        return
    if before is not None:
        raise KeyReuseError(
            f"{name} of a key that was used before",
            f"used by {before}; it yields the same random numbers again",
            "split it: key, subkey = hl.random.split(key), and use each key once; hl.random.clone allows a second use",
        )


def _identity(instruction: Instruction):
    """The same for instructions that take the same part of the same value."""
    if instruction.opcode not in _MOVES:
        return instruction
    attributes = tuple((name, repr(value)) for name, value in sorted(instruction.attributes.items()))
    return (instruction.opcode, attributes, repr(instruction.shape), *map(_identity, instruction.operands))


__all__ = ["use_key"]
