"""Functions of which some arguments are known, under the names of `jax.interpreters.partial_eval`."""

from __future__ import annotations

from hloom.arrays.keys import KeyArray
from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.ir.build import Builder
from hloom.ir.module import Computation, Module
from hloom.jax.compatibility import Program
from hloom.tracing.trace import Trace, apply_computation, as_array, with_weakness


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


def _given(value):
    return value if isinstance(value, KeyArray) else as_array(value)


def _parameter(trace: Trace, aval):
    if isinstance(aval, KeyArray):
        return aval._with(_parameter(trace, aval._data))
    return trace.parameter(aval._shape, "", None, aval.weak)


def trace_to_jaxpr_nounits(fun, pvals, instantiate: bool = False):
    """Traces a `WrappedFun` of flat arguments; what depends on known ones only is computed.

    Returns (program of the unknown arguments, a PartialVal for each result, []). instantiate: all results unknown.
    """
    trace = Trace(fun.__name__, carries_values=True)
    with trace:
        given = [_given(pval[1]) if pval.is_known() else _parameter(trace, pval[0]) for pval in pvals]
        returned = list(fun.call_wrapped(*given))
        results = [as_array(leaf._data if isinstance(leaf, KeyArray) else leaf) for leaf in returned]
        computation = trace.finish(results)
    captured = list(trace.captures.values())  # (tracer, parameter)
    outside = {parameter for _, parameter in captured}
    depends = {p for p in computation.parameters if p not in outside}
    for instruction in computation.instructions:
        if not depends.isdisjoint(instruction.operands):
            depends.add(instruction)
    outputs = computation.outputs()
    known = [k for k, output in enumerate(outputs) if not instantiate and output not in depends]
    found_values = _outside(computation, captured, [outputs[k] for k in known])
    values = {k: with_weakness(value, results[k].weak) for k, value in zip(known, found_values, strict=True)}
    found = [
        PartialVal.known(values[k]) if k in values else PartialVal.unknown(ShapeDtypeStruct.like(result))
        for k, result in enumerate(results)
    ]
    for k, leaf in enumerate(returned):
        if isinstance(leaf, KeyArray):
            known_keys, structure = found[k][1], found[k][0]
            data = structure if known_keys is None else known_keys
            found[k] = PartialVal((None, leaf._with(data)) if known_keys is not None else (leaf._with(data), None))
    program = Program(
        Module(computation.name, computation),
        [pval[0] for pval in pvals if not pval.is_known()],
        [ShapeDtypeStruct.like(r) for r in results],
        None,
    )
    return program, found, []


def _outside(computation: Computation, captured: list, outputs) -> list:
    """Some outputs of a computation, which depend on captured values alone: computed where those are."""
    needed, waiting = set(), list(outputs)
    while waiting:
        instruction = waiting.pop()
        if instruction not in needed:
            needed.add(instruction)
            waiting += instruction.operands
    builder = Builder(computation.name)
    mapped = {p: builder.parameter(p.shape, p.hint) for _, p in captured}
    for instruction in computation.instructions:
        if instruction in needed and instruction not in mapped:
            mapped[instruction] = builder.add(instruction.with_operands(tuple(mapped[o] for o in instruction.operands)))
    program = builder.finish(builder.tuple([mapped[o] for o in outputs]))
    return apply_computation(program, [tracer for tracer, _ in captured])


__all__ = ["PartialVal", "trace_to_jaxpr_nounits"]
__dir__ = __all__.copy
