"""Shardy in programs that JAX prints: meshes and the placement of arrays on them, which on one device do nothing."""

from __future__ import annotations

from hloom.ir.stablehlo.assembly.attributes import Dialect, symbol_text
from hloom.ir.stablehlo.assembly.forms import NotPretty, others, read_same, write_same
from hloom.ir.stablehlo.assembly.special_forms import form
from hloom.ir.stablehlo.reader.registry import converts


@form("sdy.mesh")
class _Mesh:
    """`@mesh = <["x"=2, "y"=4]> {attributes}`, beside the functions of a module."""

    def read(self, reader, op) -> None:
        op.attributes["sym_name"] = reader.symbol()
        reader.expect("=")
        op.attributes["mesh"] = Dialect("sdy.mesh", None, _angles(reader))
        reader.attribute_dictionary(op)

    def write(self, op, printer) -> str:
        text = f" {symbol_text(op.attributes['sym_name'])} = {_body(op, 'mesh')}"
        return text + others(op, ("sym_name", "mesh"))


@form("sdy.sharding_constraint", "sdy.reshard")
class _Constraint:
    """Reads `%x <@mesh, [{"x"}, {}]> : type`."""

    def read(self, reader, op) -> None:
        op.operands = [reader.operand()]
        op.attributes["sharding"] = Dialect("sdy.sharding", None, _angles(reader))
        reader.attribute_dictionary(op)
        reader.expect(":")
        read_same(reader, op)

    def write(self, op, printer) -> str:
        return f" {op.operands[0]} {_body(op, 'sharding')}{others(op, ('sharding',))} : {write_same(op)}"


def _angles(reader) -> str:
    if reader.peek() != "<":
        raise reader.unexpected("'<'")
    return reader.raw()


def _body(op, name: str) -> str:
    value = op.attributes.get(name)
    if not isinstance(value, Dialect) or value.body[:1] != "<":
        raise NotPretty
    return value.body


@converts("sdy.sharding_constraint", "sdy.reshard", "sdy.propagation_barrier")
def _placed(scope, op, items):
    return items


@converts("sdy.sharding_group")
def _group(scope, op, items):
    return []
