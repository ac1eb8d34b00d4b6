"""The pretty syntax of ops: `FORMS[name]` parses and prints the text after an op's name.

A form consists of operands, fields (`, dim = 0`), the dictionary of the other attributes, and a signature. Ops with
other syntax have forms in `special_forms`. An op without a form is printed generically.
"""

from __future__ import annotations

import re
from typing import Protocol

from hloom.ir.op_table import OPS
from hloom.ir.stablehlo.assembly.attributes import Array, Dialect, Number, attribute_text, dictionary_text
from hloom.ir.stablehlo.lexer import is_identifier
from hloom.ir.stablehlo.types import Function, Tensor, Tuple, parse_results, parse_type_list


class Spelling(Protocol):
    """The parser and printer of an op after its name."""

    def read(self, reader, op) -> None: ...
    def write(self, op, printer) -> str: ...


FORMS: dict[str, Spelling] = {}


class NotPretty(Exception):
    """The op's attributes do not fit its pretty syntax; it is printed generically."""


# --- fields -------------------------------------------------------------------------------------------------------


def read_int(reader):
    return Number(str(reader.integer()), "i64")


def write_int(value) -> str:
    if not isinstance(value, Number) or value.type not in ("i64", ""):
        raise NotPretty
    return value.text


def read_ints(reader):
    return Array("i64", reader.integers())


def write_ints(value) -> str:
    if not isinstance(value, Array) or value.element != "i64":
        raise NotPretty
    return f"[{', '.join(map(str, value.values))}]"


def read_bool(reader):
    token = reader.peek()
    if token not in ("true", "false"):
        raise reader.unexpected("true or false")
    reader.at += 1
    return token == "true"


def write_bool(value) -> str:
    if not isinstance(value, bool):
        raise NotPretty
    return "true" if value else "false"


def read_string(reader):
    return reader.string()


def write_string(value) -> str:
    if not isinstance(value, str):
        raise NotPretty
    return attribute_text(value)


def read_format(reader):
    """`e5m10`: read as the pair of numbers."""
    token = reader.peek()
    match = re.fullmatch(r"e([0-9]{1,3})m([0-9]{1,3})", token)
    if match is None:
        raise reader.unexpected("a format such as e5m10")
    reader.at += 1
    return match[1], match[2]


def enum(dialect: str, name: str, space: str = " "):
    """An enumeration: printed as a bare word, represented as `#dialect<name WORD>`."""

    def read(reader):
        return Dialect(dialect, None, f"{name} {reader.identifier('a word in capitals')}")

    def write(value) -> str:
        if not isinstance(value, Dialect) or value.name != dialect or not value.body.startswith(name + " "):
            raise NotPretty
        return space + value.body[len(name) + 1 :]

    return read, write


def read_precision(reader):
    words = reader.bracketed("[", lambda: reader.identifier("a precision"), "]")
    return tuple(Dialect("stablehlo", None, f"precision {word}") for word in words)


def write_precision(value) -> str:
    words = []
    for element in value if isinstance(value, tuple) else (None,):
        if not isinstance(element, Dialect) or not element.body.startswith("precision "):
            raise NotPretty
        words.append(element.body[len("precision ") :])
    return f"[{', '.join(words)}]"


INT, INTS, BOOL, STRING = (
    (read_int, write_int),
    (read_ints, write_ints),
    (read_bool, write_bool),
    (
        read_string,
        write_string,
    ),
)
PRECISION = (read_precision, write_precision)


# --- signatures ---------------------------------------------------------------------------------------------------


def read_functional(reader, op) -> None:
    op.operand_types = parse_type_list(reader, reader.type_aliases)
    reader.expect("->")
    op.result_types = parse_results(reader, reader.type_aliases)


def read_rest(reader, op) -> None:
    """The other attributes and the functional type: the end of most forms."""
    reader.attribute_dictionary(op)
    reader.expect(":")
    read_functional(reader, op)


def write_functional(op) -> str:
    return str(Function(op.operand_types, op.result_types))


def read_same(reader, op) -> None:
    """One type for all operands and results, or the functional type."""
    if reader.peek() == "(":
        read_functional(reader, op)
        return
    found = reader.type()
    op.operand_types = (found,) * len(op.operands)
    op.result_types = (found,) * reader.result_count(op, 1)


def write_same(op) -> str:
    types = set(op.operand_types) | set(op.result_types)
    return str(types.pop()) if len(types) == 1 else write_functional(op)


def read_result(reader, op) -> None:
    """The types of the results, for ops without operands."""
    op.result_types = (reader.type(),)


def write_result(op) -> str:
    return ", ".join(map(str, op.result_types))


def read_pairwise(reader, op) -> None:
    """A type for each operand, which is also the type of the corresponding result."""
    if not op.operands:
        return
    op.operand_types = op.result_types = tuple(reader.separated(reader.type))


def write_pairwise(op) -> str:
    if op.operand_types != op.result_types:
        raise NotPretty
    return ", ".join(map(str, op.operand_types))


def read_arrow(reader, op) -> None:
    """CHLO: `type, type -> type`."""
    if reader.peek() == "(":
        read_functional(reader, op)
        return
    op.operand_types = tuple(reader.separated(reader.type))
    if reader.accept("->"):
        op.result_types = parse_results(reader, reader.type_aliases)
    else:
        op.result_types = op.operand_types[:1]


def write_arrow(op) -> str:
    left = ", ".join(map(str, op.operand_types))
    right = ", ".join(map(str, op.result_types))
    return f"{left} -> {right}" if len(op.result_types) == 1 else f"{left} -> ({right})"


def read_select(reader, op) -> None:
    """The types of the predicate and of the values."""
    if reader.peek() == "(":
        read_functional(reader, op)
        return
    predicate = reader.type()
    reader.expect(",")
    value = reader.type()
    op.operand_types, op.result_types = (predicate, value, value), (value,)


def write_select(op) -> str:
    types = {*op.operand_types[1:], *op.result_types}
    return f"{op.operand_types[0]}, {types.pop()}" if len(types) == 1 else write_functional(op)


def read_complex(reader, op) -> None:
    """The complex type of the result; the operands have the type of its parts."""
    if reader.peek() == "(":
        read_functional(reader, op)
        return
    at = reader.at
    found = reader.type()
    if not isinstance(found, Tensor) or not str(found.element).startswith("complex<"):
        raise reader.fail("expected a tensor of complex elements", f"{found}", at=at)
    part = Tensor(found.dims, str(found.element)[8:-1], found.encoding)
    op.operand_types, op.result_types = (part, part), (found,)


def write_complex(op) -> str:
    found = op.result_types[0]
    if isinstance(found, Tensor) and str(found.element).startswith("complex<"):
        part = Tensor(found.dims, str(found.element)[8:-1], found.encoding)
        if op.operand_types == (part, part):
            return str(found)
    return write_functional(op)


def read_tuple(reader, op) -> None:
    at = reader.at
    found = reader.type()
    if not isinstance(found, Tuple):
        raise reader.fail("expected a tuple type", f"{found}", at=at)
    op.operand_types, op.result_types = found.elements, (found,)


def read_tokens(reader, op) -> None:
    found = reader.type()
    op.operand_types, op.result_types = (found,) * len(op.operands), (found,)


SAME, FUNCTIONAL, RESULT = (read_same, write_same), (read_functional, write_functional), (read_result, write_result)
PAIRWISE, ARROW, SELECT = (read_pairwise, write_pairwise), (read_arrow, write_arrow), (read_select, write_select)
COMPLEX, TUPLE, TOKENS = (read_complex, write_complex), (read_tuple, write_result), (read_tokens, write_result)


# --- forms --------------------------------------------------------------------------------------------------------


class Form:
    """Operands, fields, the other attributes, signature: `%a, %b, dim = 0 {name = value} : (types) -> type`.

    fields: (keyword, attribute, (read, write)); a keyword with a question mark marks an optional field.
    """

    def __init__(self, signature, *fields, operands: bool = True):
        self.signature = signature
        self.fields = [(keyword.rstrip("?"), keyword[-1:] == "?", name, kind) for keyword, name, kind in fields]
        self.operands = operands

    def read(self, reader, op) -> None:
        separated = False
        if self.operands and reader.peek()[:1] == "%":
            op.operands = reader.operand_list()
            separated = True
            if reader.tokens[reader.at : reader.at + 2] == [",", ","]:
                reader.at += 1  # as MLIR prints the empty list of a slice of rank 0
        pending = list(self.fields)
        while pending:
            keyword, optional, name, (read, _) = pending[0]
            if reader.tokens[reader.at + separated] == keyword:
                if separated:
                    reader.expect(",")
                reader.at += 1
                reader.expect("=")
                op.attributes[name] = read(reader)
                separated = True
            elif not optional:
                raise reader.unexpected(f"'{keyword} ='" if not separated else f"', {keyword} ='")
            pending.pop(0)
        reader.attribute_dictionary(op)
        reader.expect(":")
        self.signature[0](reader, op)

    def write(self, op, printer) -> str:
        pieces = [", ".join(op.operands)] if op.operands else []
        written = set()
        for keyword, optional, name, (_, write) in self.fields:
            if name in op.attributes:
                pieces.append(f"{keyword} = {write(op.attributes[name])}")
                written.add(name)
            elif not optional:
                raise NotPretty
        text = ", ".join(pieces)
        rest = others(op, written)
        return f"{' ' if text else ''}{text}{rest} : {self.signature[1](op)}"


def others(op, written) -> str:
    """The attributes not covered by the form, in braces after a space; '' for none."""
    rest = {k: v for k, v in op.attributes.items() if k not in written}
    return f" {dictionary_text(rest)}" if rest else ""


def _plain(signature, names: str, dialect: str = "stablehlo") -> None:
    for name in names.split():
        FORMS[f"{dialect}.{name}"] = Form(signature)


_plain(SAME, "clamp convert uniform_quantize uniform_dequantize")
_plain(FUNCTIONAL, "bitcast_convert reshape dynamic_reshape dynamic_pad dynamic_update_slice real_dynamic_slice")
for _opcode, _entry in OPS.items():
    if _entry.arity:
        _plain(SAME, _opcode.replace("-", "_"))
        _plain(ARROW, _opcode.replace("-", "_"), "chlo")
    if _entry.arity == 2:
        _plain(FUNCTIONAL, f"broadcast_{_opcode.replace('-', '_')}", "chlo")
_plain(SELECT, "select")
_plain(COMPLEX, "complex")
_plain(PAIRWISE, "optimization_barrier return")
_plain(TUPLE, "tuple")
_plain(TOKENS, "after_all")
_plain(RESULT, "create_token partition_id replica_id")
_plain(ARROW, "conj constant_like is_inf is_neg_inf is_pos_inf mulhi square", "chlo")
_plain(FUNCTIONAL, "broadcast_compare broadcast_select", "chlo")

FORMS["stablehlo.iota"] = Form(RESULT, ("dim", "iota_dimension", INT), operands=False)
FORMS["stablehlo.dynamic_iota"] = Form(FUNCTIONAL, ("dim", "iota_dimension", INT))
FORMS["stablehlo.broadcast_in_dim"] = Form(FUNCTIONAL, ("dims", "broadcast_dimensions", INTS))
FORMS["stablehlo.dynamic_broadcast_in_dim"] = Form(FUNCTIONAL, ("dims", "broadcast_dimensions", INTS))
FORMS["stablehlo.broadcast"] = Form(FUNCTIONAL, ("sizes", "broadcast_sizes", INTS))
FORMS["stablehlo.concatenate"] = Form(FUNCTIONAL, ("dim", "dimension", INT))
FORMS["stablehlo.dynamic_slice"] = Form(FUNCTIONAL, ("sizes", "slice_sizes", INTS))
FORMS["stablehlo.pad"] = Form(
    FUNCTIONAL,
    ("low", "edge_padding_low", INTS),
    ("high", "edge_padding_high", INTS),
    ("interior", "interior_padding", INTS),
)
FORMS["stablehlo.transpose"] = Form(FUNCTIONAL, ("dims", "permutation", INTS))
FORMS["stablehlo.reverse"] = Form(SAME, ("dims", "dimensions", INTS))
FORMS["stablehlo.get_dimension_size"] = Form(FUNCTIONAL, ("dim", "dimension", INT))
FORMS["stablehlo.set_dimension_size"] = Form(FUNCTIONAL, ("dim", "dimension", INT))
FORMS["stablehlo.cholesky"] = Form(SAME, ("lower?", "lower", BOOL))
FORMS["stablehlo.dot"] = Form(FUNCTIONAL, ("precision?", "precision_config", PRECISION))
FORMS["stablehlo.einsum"] = Form(FUNCTIONAL, ("config", "einsum_config", STRING))
FORMS["stablehlo.unary_einsum"] = Form(FUNCTIONAL, ("config", "einsum_config", STRING))
FORMS["stablehlo.fft"] = Form(
    FUNCTIONAL, ("type", "fft_type", enum("stablehlo", "fft_type", " ")), ("length", "fft_length", INTS)
)
FORMS["stablehlo.rng"] = Form(FUNCTIONAL, ("distribution", "rng_distribution", enum("stablehlo", "rng_distribution")))
FORMS["stablehlo.rng_bit_generator"] = Form(
    FUNCTIONAL, ("algorithm", "rng_algorithm", enum("stablehlo", "rng_algorithm"))
)
__all__ = ["FORMS", "Form", "NotPretty", "is_identifier", "others"]
