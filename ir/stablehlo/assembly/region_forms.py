"""Pretty syntax of ops with regions: reduce and while."""

from __future__ import annotations

import dataclasses

from hloom.ir.stablehlo.assembly.attributes import Array, dictionary_text
from hloom.ir.stablehlo.assembly.forms import INTS, NotPretty, others, read_functional, write_functional
from hloom.ir.stablehlo.assembly.special_forms import INDENT, form
from hloom.ir.stablehlo.syntax import Block, Operation, Region
from hloom.ir.stablehlo.types import Tensor, parse_type_list


@form("stablehlo.reduce")
class _Reduce:
    """`(%x init: %c), ... applies stablehlo.add across dimensions = [0] : ...`, or with a reducer's body."""

    def read(self, reader, op) -> None:
        arrays, starts = [], []
        while True:
            reader.expect("(")
            arrays.append(reader.operand())
            reader.keyword("init")
            reader.expect(":")
            starts.append(reader.operand())
            reader.expect(")")
            if not reader.accept(","):
                break
        op.operands = arrays + starts
        applied, at = None, reader.at
        if reader.accept("applies"):
            token = reader.peek()
            applied = reader.string() if token[:1] == '"' else reader.identifier("an op")
        reader.keyword("across")
        reader.keyword("dimensions")
        reader.expect("=")
        op.attributes["dimensions"] = Array("i64", reader.integers())
        reader.attribute_dictionary(op)
        reader.expect(":")
        types_at = reader.at
        read_functional(reader, op)
        if len(op.operand_types) != len(op.operands):
            raise reader.fail("reduce has a type for each operand", f"{len(op.operand_types)} types", at=types_at)
        if applied is not None:
            op.regions.append(self._applied(reader, op, applied, at))
        else:
            self._reducer(reader, op)

    @staticmethod
    def _applied(reader, op, applied: str, at: int) -> Region:
        """The body (a, b) -> applied(a, b) of the short syntax."""
        element = op.operand_types[-1]
        if not isinstance(element, Tensor) or len(op.operands) != 2:
            raise reader.fail("'applies' is for reductions of one array", at=at)
        inner = Operation(applied, [("%result", 1)], ["%a", "%b"], {}, [], (element, element), (element,), place=at)
        last = Operation("stablehlo.return", [], ["%result"], {}, [], (element,), (), place=at)
        return Region([Block("", [("%a", element), ("%b", element)], [inner, last])])

    @staticmethod
    def _reducer(reader, op) -> None:
        """`reducer(%a: type, %b: type) (%c: type, %d: type) { body }`: the pairs of accumulator and element."""
        reader.keyword("reducer")
        firsts, seconds = [], []
        while reader.peek() == "(":
            pair = reader.typed_arguments()
            if len(pair) != 2:
                raise reader.fail("a reducer has two arguments for each array", f"{len(pair)}")
            firsts.append(pair[0])
            seconds.append(pair[1])
        op.regions.append(reader.region(firsts + seconds))

    def write(self, op, printer) -> str:
        half = len(op.operands) // 2
        if (
            len(op.regions) != 1
            or len(op.regions[0].blocks) != 1
            or not isinstance(op.attributes.get("dimensions"), Array)
        ):
            raise NotPretty
        text = ", ".join(f"({a} init: {b})" for a, b in zip(op.operands[:half], op.operands[half:], strict=True))
        applied = self._simple(op)
        if applied:
            text += f" applies {applied}"
        text += f" across dimensions = {INTS[1](op.attributes['dimensions'])}{others(op, ('dimensions',))}"
        text += f" : {write_functional(op)}"
        if applied:
            return text
        region = op.regions[0]
        if len(region.arguments) != 2 * half:
            raise NotPretty
        pairs = zip(region.arguments[:half], region.arguments[half:], strict=True)
        reducer = " ".join(f"({a}: {s}, {b}: {t})" for (a, s), (b, t) in pairs)
        lead = INDENT * printer.depth
        return f"{text}\n{lead} reducer{reducer}  {printer.region(region, labelled=False)}"

    @staticmethod
    def _simple(op) -> str:
        """The op of a body that is (a, b) -> op(a, b), as MLIR abbreviates it; otherwise ''."""
        region = op.regions[0]
        operations = region.operations
        if len(op.operands) != 2 or len(operations) != 2 or len(region.arguments) != 2:
            return ""
        inner, last = operations
        (a, type_), (b, other) = region.arguments
        if inner.operands != [a, b] or last.operands != inner.result_names() or inner.attributes or inner.regions:
            return ""
        if (
            last.name != "stablehlo.return"
            or type_ != other
            or set(inner.operand_types + inner.result_types) != {type_}
        ):
            return ""
        if op.operand_types[1] != type_ or inner.name not in _APPLIED:
            return ""
        return inner.name


_APPLIED = {f"stablehlo.{name}" for name in "add and maximum minimum multiply or xor".split()}


@form("stablehlo.while")
class _While:
    """Reads `(%a = %x, ...) : types attributes {...} cond { ... } do { ... }`."""

    def read(self, reader, op) -> None:
        names: list[tuple[str, int]] = []
        reader.expect("(")
        while not reader.accept(")"):
            if names:
                reader.expect(",")
            at = reader.at
            names.append((reader.value(), at))
            reader.expect("=")
            op.operands.append(reader.operand())
        types = []
        if names:
            reader.expect(":")
            types = reader.separated(reader.type)
        if len(types) != len(names):
            raise reader.fail("while has a type for each value", f"{len(types)} types, {len(names)} values")
        op.operand_types = op.result_types = tuple(types)
        if reader.accept("attributes"):
            op.attributes.update(reader.dictionary())
        arguments = [(name, at, type_) for (name, at), type_ in zip(names, types, strict=True)]
        reader.keyword("cond")
        op.regions.append(reader.region(arguments))
        reader.keyword("do")
        op.regions.append(reader.region(arguments))

    def write(self, op, printer) -> str:
        if len(op.regions) != 2 or any(len(r.blocks) != 1 for r in op.regions):
            raise NotPretty
        condition, body = op.regions
        if op.operand_types != op.result_types or len(condition.arguments) != len(op.operands):
            raise NotPretty
        if [n for n, _ in condition.arguments] != [n for n, _ in body.arguments]:
            body = renamed(body, [n for n, _ in condition.arguments])
        pairs = [f"{name} = {operand}" for (name, _), operand in zip(condition.arguments, op.operands, strict=True)]
        text = f"({', '.join(pairs)})"
        if op.operands:
            text += f" : {', '.join(map(str, op.operand_types))}"
        if op.attributes:
            text += f" attributes {dictionary_text(op.attributes)}"
        lead = INDENT * printer.depth
        first = printer.region(condition, labelled=False)
        return f"{text}\n{lead} cond {first} do {printer.region(body, labelled=False)}"


def renamed(region: Region, names: list[str]) -> Region:
    """The region with renamed arguments. Raises NotPretty if a name is already used inside."""
    mapping = {old: new for (old, _), new in zip(region.arguments, names, strict=True)}

    def change(operations):
        changed = []
        for o in operations:
            if any(name in names for name, _ in o.results):
                raise NotPretty
            regions = []
            for r in o.regions:
                blocks = []
                for b in r.blocks:
                    if any(n in names or n in mapping for n, _ in b.arguments):
                        raise NotPretty
                    blocks.append(Block(b.label, b.arguments, change(b.operations)))
                regions.append(Region(blocks))
            changed.append(dataclasses.replace(o, operands=[mapping.get(v, v) for v in o.operands], regions=regions))
        return changed

    block = region.blocks[0]
    arguments = [(new, t) for new, (_, t) in zip(names, block.arguments, strict=True)]
    return Region([Block(block.label, arguments, change(block.operations))])


__all__ = ["parse_type_list"]
