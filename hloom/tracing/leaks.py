"""`hl.checking_leaks`: traced values that are still referenced when their trace ends."""

from __future__ import annotations

import gc

from hloom.errors import LeakedTracerError


class HoldsTracers:
    """Base of hloom's records that legitimately hold values of the trace they belong to."""


def check_leaks(trace, tracer: type) -> None:
    """Looks for a `tracer` of this trace that is referenced outside hloom's records. Raises LeakedTracerError."""
    gc.collect()
    # isinstance would ask dead weak proxies for their class.
    objects = gc.get_objects()
    found = [x for x in objects if issubclass(type(x), tracer) and x.trace is trace]
    if not found:
        return
    own = {id(objects), id(found)}
    waiting = [x for x in objects if issubclass(type(x), HoldsTracers)]
    while waiting:
        holder = waiting.pop()
        if id(holder) not in own:
            own.add(id(holder))
            parts = gc.get_referents(holder)
            waiting += [p for p in parts if type(p) in (list, tuple, dict)]
    origins = {
        f"{x!r}, created at {x.instruction.source or 'a parameter'}"
        for x in found
        if not all(id(r) in own for r in gc.get_referrers(x))
    }
    if origins:
        raise LeakedTracerError(
            f"check_tracer_leaks: no traced value outlives the trace of '{trace.name}'",
            "; ".join(sorted(origins)[:3]),
            "return the value from the function instead of storing it",
        )
