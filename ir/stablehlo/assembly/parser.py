"""Parses StableHLO programs (MLIR text), in pretty and generic syntax, to a syntax tree.

The parser checks that the text is well formed and that values are defined before their uses with matching types.
Semantics are left to the converter.
"""

from __future__ import annotations

import difflib
import re

from hloom.ir.stablehlo.assembly import product_forms, region_forms, special_forms  # noqa: F401 (each registers forms)
from hloom.ir.stablehlo.assembly.attributes import AttributeReader, Dense, Dialect, Symbol
from hloom.ir.stablehlo.assembly.forms import FORMS, read_functional
from hloom.ir.stablehlo.lexer import is_identifier
from hloom.ir.stablehlo.syntax import Block, Operation, Program, Region
from hloom.ir.stablehlo.types import Function

_SHORT = {"call": "func.call", "return": "func.return", "constant": "func.constant"}
_MOST_NESTED = 60  # maximum nesting of regions, so that no text exhausts the stack
_MOST_RESULTS = 100_000


def parse_program(text: str, file: str = "<text>") -> Program:
    """The syntax tree of a StableHLO module. `file` names the text in errors.

    Raises ParseError, with line and column and the line with a caret.
    """
    return Parser(text, file).program()


class Parser(AttributeReader):
    """The recursive-descent parser of StableHLO text."""

    def __init__(self, text: str, file: str):
        super().__init__(text, file)
        self.values: dict[str, object] = {}  # defined values, with their types
        self.defined: list[str] = []  # their names in order of definition, for undoing
        self.depth = 0

    # --- the module -----------------------------------------------------------------------------------------------

    def program(self) -> Program:
        self._aliases()
        program = None
        at = self.at
        if self.peek() == "module" or self.peek() == '"builtin.module"':
            program = self._module()
        else:
            program = Program()
            while self.peek() and self.peek() != "{-#":
                program.operations.append(self.operation())
                self._aliases()
        self._aliases()
        if self.peek() == "{-#":
            program.resources = self._resources()
        if self.peek():
            raise self.fail(
                "there is more text after the module", f"'{self.peek()[:40]}'", "split the file at '// -----'"
            )
        if not program.operations and at == self.at:
            raise self.unexpected("a module")
        program.text, program.file = self.text, self.file
        return program

    def _aliases(self) -> None:
        """`!name = type`, `#name = attribute`, before and after the module."""
        while self.tokens[self.at + 1 : self.at + 2] == ["="] and self.peek()[:1] in ("!", "#"):
            at = self.at
            name = self.take()
            self.expect("=")
            if name[0] == "!":
                self.type_aliases[name] = self.type()
            elif self.peek() == "loc":
                self.take()
                self.attribute_aliases[name] = Dialect("", None, "loc" + self.raw())
            else:
                self.attribute_aliases[name] = self.attribute()
            if self.at == at:
                raise self.unexpected("an alias")

    def _module(self) -> Program:
        program = Program()
        if self.peek()[:1] == '"':
            op = self.operation()
            program.name = op.attributes.pop("sym_name", "")
            if not isinstance(program.name, str):
                raise self.fail("the name of a module is text", repair='write sym_name = "name"', at=op.place)
            program.attributes = op.attributes
            program.operations = op.regions[0].operations if op.regions else []
            return program
        self.expect("module")
        if self.peek()[:1] == "@":
            program.name = self.symbol()
        if self.accept("attributes"):
            program.attributes = self.dictionary()
        self.expect("{")
        names: dict[str, int] = {}
        while not self.accept("}"):
            at = self.at
            operation = self.operation()
            name = operation.attributes.get("sym_name")
            if isinstance(name, str):
                if name in names:
                    raise self.fail(f"'@{name}' is defined twice", repair="give it another name", at=at)
                names[name] = at
            program.operations.append(operation)
        self.location()
        return program

    def _resources(self) -> dict[str, str]:
        """Reads `{-# dialect_resources: { builtin: { name: "0x..." } } #-}`."""
        found = dict(re.findall(r'([\w.\-]+)\s*:\s*"(0x[0-9A-Fa-f]*)"', self.text[self.offset() :]))
        self.raw()
        return found

    # --- operations -----------------------------------------------------------------------------------------------

    def operation(self) -> Operation:
        place = self.at
        results = self._result_names() if self.tokens[place][:1] == "%" else []
        token = self.tokens[self.at]
        op = Operation("", results, place=place)
        if token[:1] == '"':
            op.name = self.string()
            self._generic(op)
        else:
            name_at = self.at
            name = self.identifier("an operation")
            op.name = _SHORT.get(name, name)
            form = FORMS.get(op.name)
            if form is None:
                raise self._unknown(op.name, name_at)
            form.read(self, op)
        op.location = self.location()
        self._check(op)
        return op

    def _unknown(self, name: str, at: int):
        close = difflib.get_close_matches(name, FORMS, 1)
        repair = f"did you mean '{close[0]}'?" if close else f'spell it generically: "{name}"(...)'
        return self.fail(f"'{name}' has no pretty syntax that hloom supports", repair=repair, at=at)

    def _result_names(self) -> list[tuple[str, int]]:
        """Reads `%0 =`, `%0:2 =`, `%a, %b =`."""
        found: list = []
        while True:
            at = self.at
            name = self.value()
            if "#" in name:
                raise self.fail(f"'{name}' is not a valid result name", repair="write %name or %name:2", at=at)
            count = 1
            if self.accept(":"):
                count_at = self.at
                count = self.integer("how many results there are")
                if not 0 < count <= _MOST_RESULTS:
                    raise self.fail("a name represents at least one result", f"{count}", at=count_at)
            found.append((name, count))
            if not self.accept(","):
                self.expect("=")
                return found

    def _check(self, op: Operation) -> None:
        """Checks types of operands and the number of results; defines the results."""
        if len(op.operands) != len(op.operand_types):
            raise self.fail(
                f"{op.name} has {len(op.operands)} operands", f"{len(op.operand_types)} types of operands",
                "write a type for each operand", at=op.place,
            )  # fmt: skip
        values = self.values
        for operand, type_ in zip(op.operands, op.operand_types, strict=True):
            found = values.get(operand)
            if found is not None and found != type_:
                raise self.fail(
                    f"{op.name} uses {operand} as {type_}", f"it is defined as {found}", "use the type it has",
                    at=op.place,
                )  # fmt: skip
        if not op.results:
            return
        count = sum(n for _, n in op.results)
        if count != len(op.result_types):
            raise self.fail(
                f"{op.name} has {len(op.result_types)} results", f"{count} are named",
                f"write %name{f':{len(op.result_types)}' if len(op.result_types) != 1 else ''}", at=op.place,
            )  # fmt: skip
        k = 0
        for name, n in op.results:
            self.define(name, op.result_types[k], op.place)
            if n > 1:
                for j in range(n):
                    self.define(f"{name}#{j}", op.result_types[k + j], op.place)
            else:
                self.define(f"{name}#0", op.result_types[k], op.place)
            k += n

    def define(self, name: str, type_, at: int) -> None:
        if name in self.values:
            raise self.fail(f"'{name}' is defined twice", repair="give the second another name", at=at)
        self.values[name] = type_
        self.defined.append(name)

    def result_count(self, op: Operation, default: int) -> int:
        return sum(n for _, n in op.results) or default

    def _generic(self, op: Operation) -> None:
        """Reads `(%a, %b) [^bb1] <{properties}> ({regions}) {attributes} : (types) -> types`."""
        op.operands = self.operands_in_parentheses()
        if self.peek() == "[":
            self._successors(op)
        if self.peek() == "<":
            self.at += 1
            op.attributes.update(self.dictionary())
            self.expect(">")
        if self.peek() == "(" and self.tokens[self.at + 1] in ("{", "^"):
            self.at += 1
            isolated = op.name in ("func.func", "builtin.module")
            op.regions.append(self.region([], isolated))
            while self.accept(","):
                op.regions.append(self.region([], isolated))
            self.expect(")")
        self.attribute_dictionary(op)
        self.expect(":")
        read_functional(self, op)
        if op.name == "func.func" and not (
            isinstance(op.attributes.get("sym_name"), str) and isinstance(op.attributes.get("function_type"), Function)
        ):
            raise self.fail("a function has sym_name and function_type", at=op.place)
        if op.name == "func.func":
            self._check_function(op)
        if op.name == "func.func" and op.regions:
            inputs = op.attributes["function_type"].inputs
            arguments = tuple(type_ for _, type_ in op.regions[0].arguments)
            if arguments != inputs:
                raise self.fail(
                    "the first block of a function has arguments of the function's types",
                    f"({', '.join(map(str, arguments))}), function_type {op.attributes['function_type']}",
                    "write an argument for each input", at=op.place,
                )  # fmt: skip

    def _check_function(self, op: Operation) -> None:
        """The attributes of a function that its pretty syntax supports."""
        type_ = op.attributes["function_type"]
        for name, count in (("arg_attrs", len(type_.inputs)), ("res_attrs", len(type_.results))):
            value = op.attributes.get(name)
            if value is None:
                continue
            if not isinstance(value, (tuple, list)) or len(value) != count or any(type(v) is not dict for v in value):
                raise self.fail(
                    f"{name} of a function are dictionaries, one for each type", f"{value!r:.60}",
                    f"write {count} of them", at=op.place,
                )  # fmt: skip
        if op.attributes.get("sym_visibility", "private") not in ("public", "private", "nested"):
            raise self.fail(
                "a function is public, private or nested", f"{op.attributes['sym_visibility']!r:.60}",
                "write one of them", at=op.place,
            )  # fmt: skip

    def _successors(self, op: Operation) -> None:
        self.expect("[")
        while not self.accept("]"):
            if op.successors:
                self.expect(",")
            label = self.take()
            if label[:1] != "^":
                self.at -= bool(label)
                raise self.unexpected("the label of a block")
            arguments = []
            if self.accept("("):
                arguments = self.operand_list()
                self.expect(":")
                self.type()
                while self.accept(","):
                    self.type()
                self.expect(")")
            op.successors.append((label, arguments))

    # --- parts of operations, called by the forms -----------------------------------------------------------------

    def keyword(self, word: str) -> None:
        if self.tokens[self.at] != word:
            raise self.unexpected(f"'{word}'")
        self.at += 1

    def operand(self) -> str:
        """A use of a value that is defined above."""
        at = self.at
        name = self.value()
        if name not in self.values:
            close = difflib.get_close_matches(name, self.defined[-2000:], 1)
            raise self.fail(
                f"'{name}' is not defined above", repair=f"did you mean '{close[0]}'?" if close else "define it first",
                at=at,
            )  # fmt: skip
        return name

    def operand_list(self) -> list[str]:
        """`%a, %b`: a list of values."""
        found = [self.operand()]
        while self.tokens[self.at] == "," and self.tokens[self.at + 1][:1] == "%":
            self.at += 1
            found.append(self.operand())
        return found

    def operands_in_parentheses(self) -> list[str]:
        self.expect("(")
        if self.accept(")"):
            return []
        found = self.operand_list()
        self.expect(")")
        return found

    def attribute_dictionary(self, op: Operation) -> None:
        """An optional `{name = value}`."""
        if self.tokens[self.at] == "{":
            at = self.at
            for key, value in self.dictionary().items():
                if key in op.attributes:
                    raise self.fail(f"'{key}' is given twice", at=at)
                op.attributes[key] = value

    def fields_in_angles(self) -> dict:
        self.expect("<")
        return {} if self.accept(">") else self._fields(0)

    def typed_arguments(self) -> list[tuple[str, int, object]]:
        """`(%a: type, %b: type)`, with the positions of the names."""
        self.expect("(")
        found: list = []
        while not self.accept(")"):
            if found:
                self.expect(",")
            at = self.at
            name = self.value()
            self.expect(":")
            found.append((name, at, self.type()))
            self.location()
        return found

    def region(self, arguments=(), isolated: bool = False) -> Region:
        """`{ operations }` with blocks. `arguments`: (name, position, type) of the first block if its form specifies
        them.

        isolated: values from outside are not visible inside.
        """
        if self.depth >= _MOST_NESTED:
            raise self.fail(f"regions are nested deeper than {_MOST_NESTED}")
        outside = self.values, self.defined
        if isolated:
            self.values, self.defined = {}, []
        mark = len(self.defined)
        self.depth += 1
        self.expect("{")
        block = Block("", [(name, type_) for name, _, type_ in arguments])
        for name, at, type_ in arguments:
            self.define(name, type_, at)
            self.define(f"{name}#0", type_, at)
        region = Region([block])
        while not self.accept("}"):
            if self.peek()[:1] == "^":
                self._label(region)
                continue
            region.blocks[-1].operations.append(self.operation())
        self.depth -= 1
        if isolated:
            self.values, self.defined = outside
        else:
            for name in self.defined[mark:]:
                del self.values[name]
            del self.defined[mark:]
        return region

    def _label(self, region: Region) -> None:
        """Reads `^bb0(%a: type):`."""
        label = self.take()
        arguments = self.typed_arguments() if self.peek() == "(" else []
        self.expect(":")
        block = region.blocks[-1]
        if len(region.blocks) > 1 or block.operations or block.arguments:
            block = Block()
            region.blocks.append(block)
        block.label = label
        for name, at, type_ in arguments:
            self.define(name, type_, at)
            self.define(f"{name}#0", type_, at)
            block.arguments.append((name, type_))

    def location(self):
        """An optional `loc(...)`: its text, or None."""
        if self.tokens[self.at] != "loc" or self.tokens[self.at + 1] != "(":
            return None
        self.at += 1
        return self.raw()


__all__ = ["Dense", "Parser", "Symbol", "is_identifier", "parse_program"]
