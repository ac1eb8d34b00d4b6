"""The op table: one entry declares everything that hloom knows about an op.

`op(name, ...)` adds an entry to `OPS`. The builder, verifier, printer, parser, interpreter, differentiation,
simplifier, fusion and kernel writer read it; nothing else lists ops by name to find their properties. Missing parts of
an entry are `No("reason")`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from hloom.ir.errors import AttributeValueError
from hloom.ir.records import field, record
from hloom.ir.spmd.factors import FactorRule, pointwise
from hloom.ir.types import HLO_NAME, compute_dtype, kind


@record(frozen=True)
class No:
    """A missing part of an op, with the reason. False in a condition."""

    reason: str

    def __bool__(self) -> Literal[False]:
        return False


@record(frozen=True)
class NumPy:
    """The functions of `hloom.numpy` that are one op on promoted operands.

    names: separated by blanks; the first is the function's name, the others are aliases. refused: kinds of dtypes that
    the functions reject although the op supports them.
    """

    names: str
    refused: tuple[str, ...] = ()


@record(frozen=True)
class Op:
    """An entry of the op table.

    name: HLO's opcode. family: 'elementwise', 'index' (moves elements), 'reduce', 'contraction', 'structure', 'control'
    (runs the computations it calls as programs), 'window' (combines the elements of a sliding window) or 'library' (a
    separate step, computed by the reference: NumPy and SciPy between two native segments). infer(operands: list of
    shapes, attributes: dict, shape: the requested shape or None) -> the result's shape; raises ShapeError, DTypeError
    or AttributeValueError. reference(*arrays, shape, **attributes) -> NumPy array (a tuple of them for a tuple shape):
    the meaning of the op.
    code: the expression for one element in the kernel dialect: a template by kind of dtype ({0}, {1} the operands, {t}
        the operand's compute dtype, {r} the result's), or a function (operand shapes, result shape, attributes,
        arguments) -> str.
    jvp(build, instruction, primals, tangents) -> tangent of the result, or None if it is zero. `primals` are Values
        of the new computation, `tangents` Values or None, at least one of them a Value; `build.primal` is the result's
        own Value. The tangent of a tuple is a list of Values and None.
    transpose(build, instruction, cotangent, operands) -> one cotangent or None for each operand. `operands` contains
    Values, None for those that the op is linear in. The cotangent of a tuple is a list of Values and None. batch(build,
    instruction, operands, mapped) -> the result for a batch of `build.size` independent elements.
        `operands` are Values of the new computation; those with mapped[k] have one more dimension, the first, of size
        `build.size` (for a tuple operand mapped[k] is a list, and so is operands[k]); the result has it first as well.
        `build.spread(value)` broadcasts an unmapped operand, `build.spread_all(operands, mapped)` all of them,
        `build.iota()` is the index of each batch element, `build.merge` and `build.split` fold the new dimension into
        another and back, `build.sequential(instruction, operands, mapped)` is the op once per element,
        `build.computation` batches a called computation (`hloom.compiler.transforms.batch.Batching`). At least one
        operand is mapped. The result of a tuple shape is a list of Values; `build.unmapped(value)` marks a result that
        is the same for all batch elements. An element-wise op whose operands have one shape needs no rule: it gets
        `elementwise_batch`.
    factors(instruction) -> the `FactorRule` with the corresponding dimensions of operands and results, for sharding
    propagation and partitioning. An element-wise op has `pointwise` by default. With No("reason") the op is replicated
    on every device; a sharded operand is gathered, with a warning. bounded(build, instruction, operands) -> the result
    with the shape of the bounds, if sizes of operands or of the result are computed by the program
    (`hloom.ir.sizes.counted`). `operands` are Values (lists of them for tuples)
        whose elements beyond a size are arbitrary, as those of the result may be. `build.stored(shape)` is the shape of
        the bounds, `build.size(size)` the value of a size, `build.masked(value, shape, dimensions, fill)` is a number
        beyond the sizes of some dimensions (`hloom.compiler.transforms.counted.Counting`). An element-wise op has
        `pointwise_bounded` by default. With No("reason") such arrays are rejected. attributes: name -> how it is
        written in HLO text ('ints', 'int', 'string', 'flag', 'enum', 'slices', 'padding', 'computation', 'literal',
        ...: `hloom.ir.text.attributes.KINDS`); all attributes an instruction of this op can have. Flags, and kinds
        followed by a question mark ('ints?'), are optional.
    dialects: the languages with this op, separated by blanks: 'hlo', 'stablehlo', 'chlo' (the last two with underscores
    for hyphens). In other languages the op is a custom call with the target `text`. text: the opcode in HLO text;
    `name` if HLO has the op. With a dot in it ("chlo.lgamma", "hloom.erfcx") it is the target of a custom call that
    represents the op; its attributes are then frontend attributes.
    arity, kinds: for an element-wise op on operands of equal shape and dtype, the number of operands and the kinds of
    the dtype.
    lax, numpy: the functions of `hloom.lax` (names separated by blanks) and `hloom.numpy` that are this op.
    doc: the first line of their docstrings, in terms of the operands {0}, {1}, .... example: a call of one of them,
    {f}, and its output: the end of their docstrings, which tests run. takes_accuracy: the functions of `hloom.lax`
    accept `accuracy=`. The only implementation is the accurate one. ulp: the largest observed error of its kernel in
    f32 and f64, in units in the last place (`hloom.compiler.kernels.math.registry`); None if exact or not measured.
    shaped: the result's shape is not determined by the operands and must be passed. flops: floating point operations
    per element of the result. transcendental: a function of real numbers beyond arithmetic (exp, sqrt, power), which
    cost analyses also count separately.
    """

    name: str
    family: str
    infer: Callable
    reference: Callable | No
    code: dict[str, str] | Callable | No
    jvp: Callable | No
    transpose: Callable | No
    batch: Callable | No = No("not declared yet")
    factors: Callable | No = No("not declared yet")
    bounded: Callable | No = No("it is not declared for such arrays")
    attributes: dict[str, str] = field(default_factory=dict)
    dialects: str = ""
    text: str = ""
    arity: int = 0
    kinds: tuple[str, ...] = ()
    lax: str = ""
    numpy: NumPy | None = None
    doc: str = ""
    example: tuple[str, str] | None = None
    takes_accuracy: bool = False
    ulp: tuple[float, float] | None = None
    shaped: bool = False
    flops: float = 1.0
    transcendental: bool = False
    commutative: bool = False
    associative: bool = False
    idempotent: bool = False  # f(x, x) = x
    involution: bool = False  # f(f(x)) = x
    identity: Callable[[Any], Any] | None = None  # dtype -> the neutral element
    effects: bool = False

    @property
    def is_custom_call(self) -> bool:
        """Whether HLO text lacks an opcode for the op, which is then written as a custom call with the target
        `text`."""
        return "." in self.text

    def neutral(self, dtype) -> np.ndarray:
        """The neutral element, a scalar array of the dtype."""
        if self.identity is None:
            raise ValueError(f"{self.name} has no neutral element")
        return np.asarray(self.identity(dtype)).astype(dtype)

    def evaluate(self, *arrays, shape, **attributes) -> Any:
        """The semantics of the op: its reference on arrays."""
        if isinstance(self.reference, No):
            raise KeyError(f"{self.name} has no reference: {self.reference.reason}")
        return self.reference(*arrays, shape=shape, **attributes)

    def expression(self, operands, shape, attributes, arguments: list[str]) -> str:
        """The kernel dialect's expression for one element. Shapes determine the dtypes; `arguments` are operand
        names."""
        if callable(self.code):
            return self.code(operands, shape, attributes, arguments)
        if isinstance(self.code, No):
            raise KeyError(f"{self.name} has no expression for one element: {self.code.reason}")
        which = kind(operands[0].dtype)
        template = self.code.get(which)
        if template is None and which in ("signed", "unsigned"):
            template = self.code.get("integer")
        if template is None:
            template = self.code["any"]
        return template.format(
            *arguments, t=HLO_NAME[compute_dtype(operands[0].dtype)], r=HLO_NAME[compute_dtype(shape.dtype)]
        )


# Exceptions of shape rules for tuples and for missing or mistyped attributes. For array operands and declared
# attributes, shape rules raise hloom errors.
RULE_ERRORS = (AttributeError, TypeError, ValueError, LookupError, ArithmeticError)


def refused_by_rule(opcode: str, shapes, attributes, error: Exception) -> AttributeValueError:
    """The error for operands and attributes of the wrong kind for a shape rule."""
    declared = ", ".join(f"{name} ({kind})" for name, kind in OPS[opcode].attributes.items()) or "none"
    given = ", ".join(f"{name}={value!r:.60}" for name, value in attributes.items())
    return AttributeValueError(
        f"{opcode} takes arrays, and attributes of the kinds that it declares: {declared}",
        f"operands ({', '.join(map(repr, shapes))}){', ' * bool(given)}{given}: {error}",
        "pass as many operands as it has, none of them a tuple, and attributes of these kinds",
    )


def factor_rule(instruction) -> FactorRule | No:
    """The corresponding dimensions of an instruction's operands and results. A custom call of a function has the rule
    of its target (`HostFunction.factors`), if any."""
    own = getattr(instruction.attributes.get("custom_call_target"), "factors", None)
    factors = own or OPS[instruction.opcode].factors
    return factors if isinstance(factors, No) else factors(instruction)


def elementwise_batch(build, instruction, operands, mapped):
    """All operands with the new dimension, and the op on them: the default of the family 'elementwise'."""
    first, *rest = build.spread_all(operands, mapped)
    shape = instruction.shape.with_dims((build.size, *instruction.shape.dims))
    return first.op(instruction.opcode, *rest, shape=shape, **instruction.attributes)


def pointwise_bounded(build, instruction, operands):
    """The op on all stored elements: the default of the family 'elementwise'."""
    first, *rest = operands
    return first.op(instruction.opcode, *rest, shape=build.stored(instruction.shape), **instruction.attributes)


OPS: dict[str, Op] = {}


def op(name: str, **parts) -> Op:
    """Declares an op (see `Op`). Its opcode must be new. numpy: a `NumPy`, or its names alone."""
    if name in OPS:
        raise ValueError(f"op {name} is declared twice")
    known = parts.get("dialects", "").split()
    custom = f"{'chlo' if 'chlo' in known else 'hloom'}.{name.replace('-', '_')}"
    parts.setdefault("text", name if "hlo" in known else custom)
    if isinstance(parts.get("numpy"), str):
        parts["numpy"] = NumPy(parts["numpy"])
    if parts["family"] == "elementwise":
        parts.setdefault("batch", elementwise_batch)
        parts.setdefault("factors", pointwise)
        parts.setdefault("bounded", pointwise_bounded)
    entry = OPS[name] = Op(name=name, **parts)
    return entry
