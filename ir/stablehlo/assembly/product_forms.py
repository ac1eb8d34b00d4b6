"""Pretty syntax of products: dot_general and convolution."""

from __future__ import annotations

import re

from hloom.ir.stablehlo.assembly.attributes import Array, Dense, Dialect, Number, attribute_text, dictionary_text
from hloom.ir.stablehlo.assembly.forms import (
    PRECISION,
    NotPretty,
    others,
    read_ints,
    read_rest,
    write_functional,
    write_ints,
)
from hloom.ir.stablehlo.assembly.special_forms import form
from hloom.ir.stablehlo.types import Tensor

_DOT_FIELDS = (
    "lhs_batching_dimensions",
    "rhs_batching_dimensions",
    "lhs_contracting_dimensions",
    "rhs_contracting_dimensions",
)


@form("stablehlo.dot_general")
class _DotGeneral:
    """Reads `%a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [..], algorithm = <...>`."""

    def read(self, reader, op) -> None:
        op.operands = reader.operand_list()
        fields: dict = {}
        while reader.accept(","):
            at = reader.at
            key = reader.identifier("contracting_dims")
            reader.expect("=")
            if key in ("batching_dims", "contracting_dims"):
                name = key.replace("_dims", "_dimensions")
                left = reader.integers()
                reader.keyword("x")
                right = reader.integers()
                for side, dims in (("lhs", left), ("rhs", right)):
                    if dims:
                        fields[f"{side}_{name}"] = tuple(Number(str(d)) for d in dims)
            elif key == "precision":
                op.attributes["precision_config"] = PRECISION[0](reader)
            elif key == "algorithm":
                op.attributes["algorithm"] = Dialect("stablehlo.dot_algorithm", reader.fields_in_angles())
            else:
                raise reader.fail(
                    f"dot_general has no '{key}'", "it has batching_dims, contracting_dims, precision", at=at
                )
        op.attributes["dot_dimension_numbers"] = Dialect(
            "stablehlo.dot", {k: fields[k] for k in _DOT_FIELDS if k in fields}
        )
        read_rest(reader, op)

    def write(self, op, printer) -> str:
        names = {"dot_dimension_numbers", "precision_config", "algorithm"}
        numbers = op.attributes.get("dot_dimension_numbers")
        if not isinstance(numbers, Dialect) or numbers.fields is None or set(numbers.fields) - set(_DOT_FIELDS):
            raise NotPretty
        lists = [tuple(v.text for v in numbers.fields.get(k, ())) for k in _DOT_FIELDS]
        left_batch, right_batch, left, right = (f"[{', '.join(texts)}]" for texts in lists)
        text = f" {', '.join(op.operands)}"
        if lists[0] or lists[1]:
            text += f", batching_dims = {left_batch} x {right_batch}"
        text += f", contracting_dims = {left} x {right}"
        if "precision_config" in op.attributes:
            text += f", precision = {PRECISION[1](op.attributes['precision_config'])}"
        if "algorithm" in op.attributes:
            algorithm = op.attributes["algorithm"]
            if not isinstance(algorithm, Dialect) or algorithm.fields is None:
                raise NotPretty
            text += f", algorithm = <{', '.join(f'{k} = {attribute_text(v)}' for k, v in algorithm.fields.items())}>"
        return f"{text}{others(op, names)} : {write_functional(op)}"


_WINDOW = (
    ("stride", "window_strides"),
    ("pad", "padding"),
    ("lhs_dilate", "lhs_dilation"),
    ("rhs_dilate", "rhs_dilation"),
    ("reverse", "window_reversal"),
)


@form("stablehlo.convolution")
class _Convolution:
    """`(%a, %b) dim_numbers = [..]x[..]->[..], window = {stride = [..], pad = [[..]], ...} {attributes} : ...`."""

    def read(self, reader, op) -> None:
        op.operands = reader.operands_in_parentheses()
        reader.keyword("dim_numbers")
        reader.expect("=")
        op.attributes["dimension_numbers"] = Dialect("stablehlo.conv", None, reader.convolution_dimensions())
        reader.expect(",")
        reader.keyword("window")
        reader.expect("=")
        reader.expect("{")
        names = dict(_WINDOW)
        first = True
        while not reader.accept("}"):
            if not first:
                reader.expect(",")
            first = False
            at = reader.at
            key = reader.identifier("a field of the window")
            if key not in names or names[key] in op.attributes:
                raise reader.fail(f"'{key}' is not a field of a window, or occurs twice", ", ".join(names), at=at)
            reader.expect("=")
            if key == "pad":
                op.attributes[names[key]] = self._padding(reader)
            elif key == "reverse":
                values = reader.array()
                if not all(isinstance(v, (bool, Number)) for v in values):
                    raise reader.fail("reverse is a list of true and false", at=at)
                flags = tuple([v if isinstance(v, bool) else bool(v.value) for v in values])
                op.attributes[names[key]] = Array("i1", flags)
            else:
                op.attributes[names[key]] = read_ints(reader)
        read_rest(reader, op)

    @staticmethod
    def _padding(reader) -> Dense:
        at = reader.at
        rows: list = []
        reader.expect("[")
        while not reader.accept("]"):
            if rows:
                reader.expect(",")
            rows.append(reader.integers())
            if len(rows[-1]) != 2:
                raise reader.fail("pad has two numbers for each dimension", at=at)
        body = ", ".join(f"[{a}, {b}]" for a, b in rows)
        return Dense(f"[{body}]" if rows else "", Tensor((len(rows), 2), "i64"))

    def write(self, op, printer) -> str:
        attributes = op.attributes
        numbers = attributes.get("dimension_numbers")
        if not isinstance(numbers, Dialect) or numbers.name != "stablehlo.conv":
            raise NotPretty
        fields = []
        for key, name in _WINDOW:
            if name not in attributes:
                continue
            value = attributes[name]
            if key == "pad":
                if not isinstance(value, Dense) or not re.fullmatch(r"\[\[.*\]\]", value.body):
                    raise NotPretty
                fields.append(f"pad = {value.body}")
            elif key == "reverse":
                if not isinstance(value, Array) or value.element != "i1":
                    raise NotPretty
                fields.append(f"reverse = [{', '.join('true' if v else 'false' for v in value.values)}]")
            else:
                fields.append(f"{key} = {write_ints(value)}")
        written = {"dimension_numbers", *(name for _, name in _WINDOW)}
        rest = {k: v for k, v in attributes.items() if k not in written}
        return (
            f"({', '.join(op.operands)}) dim_numbers = {numbers.body}, window = {{{', '.join(fields)}}}"
            f"{' ' + dictionary_text(rest) if rest else ''} : {write_functional(op)}"
        )
