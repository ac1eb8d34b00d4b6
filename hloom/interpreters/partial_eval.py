"""Functions of which some arguments are known, under the names of `jax.interpreters.partial_eval`."""

from __future__ import annotations

from hloom.array import Array
from hloom.compatibility import Program
from hloom.ir.module import Module
from hloom.shapes import ShapeDtypeStruct
from hloom.tracing import Trace, Tracer, as_array


class PartialVal(tuple):
    """(None, value) where the value is known, (shape and dtype, None) where it is not."""

    def __new__(cls, pair):
        return super().__new__(cls, pair)

    @classmethod
    def known(cls, const) -> PartialVal:
        return cls((None, const))

    @classmethod
    def unknown(cls, aval) -> PartialVal:
        return cls((aval, None))

    def is_known(self) -> bool:
        return self[0] is None

    def get_known(self):
        """The value, or None."""
        return self[1] if self[0] is None else None

    def get_aval(self):
        return ShapeDtypeStruct.like(as_array(self[1])) if self[0] is None else self[0]


def trace_to_jaxpr_nounits(fun, pvals, instantiate: bool = False):
    """Traces a `WrappedFun` of flat arguments; what depends on known ones only is computed.

    Returns (program of the unknown arguments, a PartialVal for each result, []). instantiate: all results unknown.
    """
    trace = Trace(fun.__name__, carries_values=True)
    with trace:
        given = [
            as_array(pval[1]) if pval.is_known() else trace.parameter(pval[0]._shape, "", None, pval[0].weak)
            for pval in pvals
        ]
        flat = fun.call_wrapped(*given)
        results = [as_array(leaf) for leaf in flat]
        computation = trace.finish(results)
    found = []
    for result in results:
        value = result.value if isinstance(result, Tracer) else result._value()
        if instantiate or value is None:
            found.append(PartialVal.unknown(ShapeDtypeStruct.like(result)))
        else:
            found.append(PartialVal.known(result if isinstance(result, Array) else Array(value, result.weak)))
    program = Program(
        Module(computation.name, computation),
        [pval[0] for pval in pvals if not pval.is_known()],
        [ShapeDtypeStruct.like(r) for r in results],
        None,
    )
    return program, found, []
