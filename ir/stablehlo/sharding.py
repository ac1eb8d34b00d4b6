"""Shardy: meshes, constraints, collectives and manual computations, in both directions.

Shardy's collectives specify the layout of their result (`out_sharding`). On whole arrays they are the identity, so each
is read as a constraint.
"""

from __future__ import annotations

from hloom.ir.spmd.axes import with_groups
from hloom.ir.spmd.shardy import names_text, parse_names, sharding_text, shardings_text
from hloom.ir.stablehlo.assembly.attributes import Dialect, symbol_text
from hloom.ir.stablehlo.assembly.forms import (
    NotPretty,
    others,
    read_functional,
    read_same,
    write_functional,
    write_same,
)
from hloom.ir.stablehlo.assembly.special_forms import form
from hloom.ir.stablehlo.reader.placement import body_text, for_token
from hloom.ir.stablehlo.reader.registry import converts
from hloom.ir.stablehlo.writer.module import emits
from hloom.ir.types import Shape, TupleShape, result_shapes

COLLECTIVES = tuple(
    f"sdy.{name}"
    for name in (
        "all_gather all_slice all_to_all all_reduce collective_permute reduce_scatter sharded_to_unreduced"
        " replicated_to_unreduced"
    ).split()
)


@form("sdy.mesh")
class _Mesh:
    """`@mesh = <["x"=2, "y"=4]> {attributes}`, at module level."""

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


@form(*COLLECTIVES)
class _Collective:
    """Reads `[{}, {"x"}] %x out_sharding=<@mesh, [...]> : type`; the part before the operand is kept as text."""

    def read(self, reader, op) -> None:
        if reader.peek()[:1] != "%":
            op.attributes["axes"] = reader.raw()
        op.operands = [reader.operand()]
        reader.keyword("out_sharding")
        reader.expect("=")
        op.attributes["out_sharding"] = Dialect("sdy.sharding", None, _angles(reader))
        reader.attribute_dictionary(op)
        reader.expect(":")
        read_same(reader, op)

    def write(self, op, printer) -> str:
        axes = f" {op.attributes['axes']}" if "axes" in op.attributes else ""
        rest = others(op, ("axes", "out_sharding"))
        return f"{axes} {op.operands[0]} out_sharding={_body(op, 'out_sharding')}{rest} : {write_same(op)}"


@form("sdy.propagation_barrier", "sdy.sharding_group")
class _Marked:
    """Reads `%x allowed_direction=BACKWARD : type`, or `%x group_id=0 : type`."""

    def read(self, reader, op) -> None:
        op.operands = [reader.operand()]
        key = reader.identifier("allowed_direction or group_id")
        reader.expect("=")
        op.attributes[key] = reader.raw()
        reader.attribute_dictionary(op)
        reader.expect(":")
        read_same(reader, op)
        if op.name == "sdy.sharding_group":
            op.result_types = ()

    def write(self, op, printer) -> str:
        key = "allowed_direction" if "allowed_direction" in op.attributes else "group_id"
        value = op.attributes.get(key)
        if not isinstance(value, str) or not op.operand_types:
            raise NotPretty
        return f" {op.operands[0]} {key}={value}{others(op, (key,))} : {op.operand_types[0]}"


@form("sdy.manual_computation")
class _Manual:
    """Reads `(%x, ...) in_shardings=[...] out_shardings=[...] manual_axes={...} (%a: type, ...) {body} {attributes} :
    (types) -> types`."""

    def read(self, reader, op) -> None:
        op.operands = reader.operands_in_parentheses()
        for name in ("in_shardings", "out_shardings", "manual_axes"):
            reader.keyword(name)
            reader.expect("=")
            op.attributes[name] = reader.raw()
        arguments = reader.typed_arguments() if reader.peek() == "(" else []
        op.regions.append(reader.region(arguments))
        reader.attribute_dictionary(op)
        reader.expect(":")
        read_functional(reader, op)

    def write(self, op, printer) -> str:
        words = ("in_shardings", "out_shardings", "manual_axes")
        if any(not isinstance(op.attributes.get(w), str) for w in words) or len(op.regions) != 1:
            raise NotPretty
        stated = " ".join(f"{w}={op.attributes[w]}" for w in words)
        arguments = ", ".join(f"{name}: {type_}" for name, type_ in op.regions[0].arguments)
        body = printer.region(op.regions[0], labelled=False)
        return f"({', '.join(op.operands)}) {stated} ({arguments}) {body}{others(op, words)} : {write_functional(op)}"


@form("sdy.return")
class _Return:
    """Reads `%a, %b : type, type`."""

    def read(self, reader, op) -> None:
        if reader.peek()[:1] == "%":
            op.operands = reader.operand_list()
        reader.attribute_dictionary(op)
        if op.operands:
            reader.expect(":")
            op.operand_types = tuple(reader.separated(reader.type))

    def write(self, op, printer) -> str:
        if not op.operands:
            return others(op, ())
        return f" {', '.join(op.operands)}{others(op, ())} : {', '.join(map(str, op.operand_types))}"


# --- to the IR ----------------------------------------------------------------------------------------------------


@converts("sdy.sharding_constraint", "sdy.reshard")
def _placed(scope, op, items):
    return scope.converter.placement.constraint(scope, op, items[0], op.attributes["sharding"])


@converts(*COLLECTIVES)
def _exchanged(scope, op, items):
    return scope.converter.placement.constraint(scope, op, items[0], op.attributes["out_sharding"])


@converts("sdy.propagation_barrier")
def _barrier(scope, op, items):
    return items


@converts("sdy.sharding_group")
def _group(scope, op, items):
    return []


@converts("sdy.manual_computation")
def manual_computation(scope, op, items):
    placement = scope.converter.placement
    given, found = (placement.shardings(op, op.attributes[name]) for name in ("in_shardings", "out_shardings"))
    axes = op.attributes["manual_axes"]
    text = axes if isinstance(axes, str) else body_text(axes).removeprefix("<manual_axes").removesuffix(">")
    names = placement.understood(op, parse_names, text)
    given = tuple(for_token(s, i.shape) for s, i in zip(given, items, strict=True))
    if len({s.mesh for s in (*given, *found)}) > 1:  # sub-axes are axes of the atomic mesh
        names = tuple(atom for name in names for atom in (*given, *found)[0].mesh.atomic().parts(name))
        given, found = tuple(s.atomic() for s in given), tuple(s.atomic() for s in found)
    shapes = [Shape(scope.converter.dtype(op, t), t.sizes) for _, t in op.regions[0].arguments]
    body = scope.region(op.regions[0], shapes)
    results = result_shapes(body.root.shape)
    found = tuple(for_token(s, shape) for s, shape in zip(found, results, strict=True))
    if all(s.mesh.size == 1 for s in (*given, *found)):
        made = scope.emit("call", *items, to_apply=body)
        return scope.elements(made) if isinstance(made.shape, TupleShape) else made
    made = scope.emit(
        "manual-computation", *items, to_apply=body, in_shardings=given, out_shardings=found, manual_axes=names
    )
    return scope.elements(made) if isinstance(made.shape, TupleShape) else made


# --- from the IR --------------------------------------------------------------------------------------------------


def _attribute(body, sharding) -> Dialect:
    return Dialect("sdy.sharding", None, sharding_text(sharding, body.emitter.meshes))


@emits("sharding-constraint")
def _write_constraint(body, instruction, operands):
    return body.simple(
        "sdy.sharding_constraint", instruction, operands, sharding=_attribute(body, instruction["sharding"])
    )


@emits("manual-computation")
def _write_manual(body, instruction, operands):
    attributes = instruction.attributes
    mesh = (*attributes["in_shardings"], *attributes["out_shardings"])[0].mesh
    region = body.region(with_groups(attributes["to_apply"], mesh))
    region.operations[-1].name = "sdy.return"
    names = body.emitter.meshes
    return body.simple(
        "sdy.manual_computation", instruction, operands, [region],
        in_shardings=shardings_text(attributes["in_shardings"], names),
        out_shardings=shardings_text(attributes["out_shardings"], names),
        manual_axes=names_text(attributes["manual_axes"]),
    )  # fmt: skip
