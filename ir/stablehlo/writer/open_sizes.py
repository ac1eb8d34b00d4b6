"""Printing of programs with dynamic sizes, through StableHLO's dynamic ops, whose sizes are operands.

A dimension is the `get_dimension_size` of an argument that has it as a size. Other sizes are computed from these in i64
at their uses. Calls are inlined, because a function's arguments need not determine its sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hloom.ir.errors import UnsupportedError
from hloom.ir.module import Computation, Instruction
from hloom.ir.sizes import terms as t
from hloom.ir.sizes.expressions import Dim, Size, SizeExpression, dims_of, size_of_terms
from hloom.ir.sizes.terms import Atom, Extremum, Quotient, Symbol, Terms
from hloom.ir.stablehlo.assembly.attributes import Array, Dense, Dialect, Number
from hloom.ir.stablehlo.types import ELEMENT_NAME, Tensor
from hloom.ir.types import HLO_NAME, Shape, TupleShape

__all__ = ["Sizes", "in_open_form", "is_open"]

_FIXED = ("rng-bit-generator", "custom-call", "lu-pivots-to-permutation", "set-dimension-size")
_I32, _I64, _PRED = Tensor((), "i32"), Tensor((), "i64"), Tensor((), "i1")
_FORMS: dict[str, Callable[[Any, Instruction, list], Any]] = {}


def _written_as(*opcodes: str) -> Callable:
    """Registers `function(body, instruction, names of the operands) -> names of the result`, or None if the op itself
    has no open sizes."""

    def register(function: Callable) -> Callable:
        _FORMS.update(dict.fromkeys(opcodes, function))
        return function

    return register


def is_open(computation: Computation) -> bool:
    """Whether the parameters of a computation have dynamic sizes."""
    return any(shape.is_open for p in computation.parameters for shape in _arrays(p.shape))


def _arrays(shape: Shape | TupleShape) -> Iterator[Shape]:
    if isinstance(shape, TupleShape):
        for element in shape.elements:
            yield from _arrays(element)
    else:
        yield shape


def in_open_form(body: Any, instruction: Instruction, operands: list) -> Any:
    """The result names of an instruction printed with sizes as operands; None for one printed as with static sizes.
    Raises UnsupportedError for an op that StableHLO supports only with static sizes."""
    form = _FORMS.get(instruction.opcode)
    if form is not None:
        return form(body, instruction, operands)
    if instruction.opcode in _FIXED and any(shape.is_open for shape in _arrays(instruction.shape)):
        raise _refused(instruction, f"its result is {instruction.shape!r}, and it takes no sizes")
    return None


class Sizes:
    """The sizes of a program as values in its text."""

    def __init__(self, body: Any, computation: Computation, names: Callable[[Instruction], Any]):
        """body: of the entry, which first computes the dimensions. names: of its parameters."""
        self.dims: dict[str, str] = {}
        for parameter in computation.parameters:
            if isinstance(parameter.shape, Shape):
                for axis, size in enumerate(parameter.shape.dims):
                    for name, dim in dims_of(size).items():
                        if isinstance(size, SizeExpression) and dim.terms == size.terms and name not in self.dims:
                            self.dims[name] = self._dimension(body, names(parameter), parameter.shape, axis, dim)

    def _dimension(self, body: Any, operand: str, shape: Shape, axis: int, dim: Dim) -> str:
        type_, attributes = body.type_of(shape), {"dimension": Number(str(axis), "i64")}
        (found,) = body.add("stablehlo.get_dimension_size", [operand], [type_], [_I32], attributes)
        (wide,) = body.add("stablehlo.convert", [found], [_I32], [_I64])
        return wide if dim.multiple_of == 1 else self.quotient(body, wide, self.number(body, dim.multiple_of))

    def number(self, body: Any, value: int) -> str:
        return body.add("stablehlo.constant", [], [], [_I64], {"value": Dense(str(value), _I64)}, lead="c")[0]

    def _binary(self, body: Any, name: str, left: str, right: str) -> str:
        return body.add(f"stablehlo.{name}", [left, right], [_I64, _I64], [_I64])[0]

    def quotient(self, body: Any, left: str, right: str) -> str:
        """The floor of a quotient by a positive number; StableHLO rounds towards 0."""
        found = self._binary(body, "divide", left, right)
        rest = self._binary(body, "remainder", left, right)
        zero, one = self.number(body, 0), self.number(body, 1)
        attributes = {
            "comparison_direction": Dialect("stablehlo", None, "comparison_direction LT"),
            "compare_type": Dialect("stablehlo", None, "comparison_type SIGNED"),
        }
        (below,) = body.add("stablehlo.compare", [rest, zero], [_I64, _I64], [_PRED], attributes)
        less = self._binary(body, "subtract", found, one)
        return body.add("stablehlo.select", [below, less, found], [_PRED, _I64, _I64], [_I64])[0]

    def value(self, body: Any, size: Size, instruction: Instruction) -> str:
        """The name of a size as an i64."""
        if not isinstance(size, SizeExpression):
            return self.number(body, int(size))
        known = body.size_names.get(size.terms)
        if known is None:
            known = body.size_names[size.terms] = self._polynomial(body, size.terms, instruction)
        return known

    def _polynomial(self, body: Any, terms: Terms, instruction: Instruction) -> str:
        total = ""
        for monomial, factor in terms:
            parts = [self._atom(body, atom, instruction) for atom in monomial]
            if factor != 1 or not parts:
                parts.append(self.number(body, factor))
            product = parts[0]
            for part in parts[1:]:
                product = self._binary(body, "multiply", product, part)
            total = self._binary(body, "add", total, product) if total else product
        return total

    def _atom(self, body: Any, atom: Atom, instruction: Instruction) -> str:
        if isinstance(atom, Symbol):
            if atom.name not in self.dims:
                raise _refused(instruction, f"the size {atom.name} is not itself a size of any argument")
            return self.dims[atom.name]
        if isinstance(atom, Quotient):
            if (t.value_of(atom.divisor) or 0) < 1:
                raise _refused(instruction, f"{size_of_terms(t.of(atom))} is divided by a size")
            parts = [self.value(body, size_of_terms(part), instruction) for part in atom.parts()]
            return self.quotient(body, *parts)
        assert isinstance(atom, Extremum), atom
        found, *rest = [self.value(body, size_of_terms(part), instruction) for part in atom.operands]
        for other in rest:
            found = self._binary(body, "minimum" if atom.kind == "min" else "maximum", found, other)
        return found

    def vector(self, body: Any, sizes: Sequence[Size], instruction: Instruction) -> tuple[str, Tensor]:
        """(name, type) of several sizes as a vector of i64."""
        type_ = Tensor((len(sizes),), "i64")
        if not any(isinstance(size, SizeExpression) for size in sizes):
            text = f"[{', '.join(str(int(size)) for size in sizes)}]" if sizes else ""
            return body.add("stablehlo.constant", [], [], [type_], {"value": Dense(text, type_)}, lead="c")[0], type_
        one = Tensor((1,), "i64")
        parts = [self.value(body, size, instruction) for size in sizes]
        parts = [body.add("stablehlo.reshape", [part], [_I64], [one])[0] for part in parts]
        if len(parts) == 1:
            return parts[0], type_
        attributes = {"dimension": Number("0", "i64")}
        return body.add("stablehlo.concatenate", parts, [one] * len(parts), [type_], attributes)[0], type_


def _refused(instruction: Instruction, found: str) -> UnsupportedError:
    return UnsupportedError(
        f"{instruction.opcode} written as StableHLO with open sizes", found,
        "print it as HLO text, or for arrays of given sizes", instruction.source,
    )  # fmt: skip


def _has_sizes(*rows: Sequence[Size]) -> bool:
    return any(isinstance(size, SizeExpression) for row in rows for size in row)


def _dynamic(body: Any, name: str, instruction: Instruction, operands: list, rows: Sequence, **attributes: Any) -> str:
    """An op with vectors of sizes after its regular operands."""
    vectors = [body.emitter.sizes.vector(body, row, instruction) for row in rows]
    types = [body.type_of(o.shape) for o in instruction.operands] + [type_ for _, type_ in vectors]
    names = [*operands, *[n for n, _ in vectors]]
    return body.add(f"stablehlo.{name}", names, types, [body.type_of(instruction.shape)], attributes)[0]


@_written_as("size")
def _size(body: Any, instruction: Instruction, operands: list) -> str:
    wide = body.emitter.sizes.value(body, instruction["value"], instruction)
    type_ = Tensor((), ELEMENT_NAME[HLO_NAME[instruction.shape.dtype]])
    return wide if type_ == _I64 else body.add("stablehlo.convert", [wide], [_I64], [type_])[0]


@_written_as("broadcast")
def _broadcast(body: Any, instruction: Instruction, operands: list) -> str | None:
    if not instruction.shape.is_open:
        return None
    dimensions = Array("i64", tuple(instruction["dimensions"]))
    return _dynamic(
        body, "dynamic_broadcast_in_dim", instruction, operands, [instruction.dims], broadcast_dimensions=dimensions
    )


@_written_as("iota")
def _iota(body: Any, instruction: Instruction, operands: list) -> str | None:
    if not instruction.shape.is_open:
        return None
    dimension = Number(str(instruction["iota_dimension"]), "i64")
    return _dynamic(body, "dynamic_iota", instruction, operands, [instruction.dims], iota_dimension=dimension)


@_written_as("reshape")
def _reshape(body: Any, instruction: Instruction, operands: list) -> str | None:
    if not instruction.shape.is_open:
        return None
    return _dynamic(body, "dynamic_reshape", instruction, operands, [instruction.dims])


@_written_as("slice")
def _slice(body: Any, instruction: Instruction, operands: list) -> str | None:
    if not _has_sizes(*instruction["slice"]):
        return None
    rows = zip(*instruction["slice"], strict=True)
    return _dynamic(body, "real_dynamic_slice", instruction, operands, [*rows])


@_written_as("pad")
def _pad(body: Any, instruction: Instruction, operands: list) -> str | None:
    if not _has_sizes(*instruction["padding"]):
        return None
    return _dynamic(body, "dynamic_pad", instruction, operands, [*zip(*instruction["padding"], strict=True)])


@_written_as("gather")
def _gather(body: Any, instruction: Instruction, operands: list) -> str | None:
    if not _has_sizes(instruction["slice_sizes"]):
        return None
    return _dynamic(
        body, "dynamic_gather", instruction, operands, [instruction["slice_sizes"]],
        dimension_numbers=body.gather_numbers(instruction),
        indices_are_sorted=bool(instruction.attributes.get("indices_are_sorted", False)),
    )  # fmt: skip


@_written_as("call", "fusion")
def _call(body: Any, instruction: Instruction, operands: list) -> Any:
    return body.inlined(instruction.attributes.get("to_apply") or instruction["calls"], operands)
