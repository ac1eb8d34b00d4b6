"""From the syntax tree of a StableHLO program to a module of hloom's IR.

Conversion propagates actual shapes, not those written in the text: given shapes of the arguments, open sizes (`?`)
become known, as do the values of shape operands computed from them, which determine the results of `dynamic_*` ops. A
given shape may have dynamic sizes (`hloom.ir.sizes`), in which case the module serves all of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hloom.ir.build import Builder, Value
from hloom.ir.errors import HloomError, ParseError, ShapeError, UnsupportedError
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.op_table import OPS
from hloom.ir.sizes.expressions import Size, SizeExpression
from hloom.ir.source import Source
from hloom.ir.stablehlo.assembly.attributes import Dense, Symbol
from hloom.ir.stablehlo.assembly.literals import LiteralProblem, dense_value
from hloom.ir.stablehlo.reader.placement import Placement
from hloom.ir.stablehlo.reader.places import Places
from hloom.ir.stablehlo.reader.quantized import convert_quantized, is_quantized
from hloom.ir.stablehlo.reader.registry import CONVERTERS, Item
from hloom.ir.stablehlo.reader.size_values import Given, Values
from hloom.ir.stablehlo.syntax import Operation, Program, Region
from hloom.ir.stablehlo.types import Quantized, Tensor, Tuple, element_dtype
from hloom.ir.types import Shape, TupleShape
from hloom.ir.verify import VerifyError

_DEEPEST = 100  # maximum depth of calls


class Check(NamedTuple):
    """A check op of a test program: its name, the computed and the expected value."""

    name: str
    actual: Item
    expected: Item
    attributes: dict


def to_module(
    program: Program,
    function: str | None = None,
    input_shapes: Sequence[Shape | tuple | None] | None = None,
    known: Sequence[np.ndarray | Size | None] = (),
    shardings: bool = True,
) -> Module:
    """The module of a program; its entry is the given function, or `main`, or the only one.

    input_shapes: shapes of the arguments, if the program has open sizes; sizes in them may be expressions. known: the
    values of arguments that determine sizes (None for the others): arrays become constants; a size determines shapes,
    while computations with the argument's value are preserved. shardings: preserve shardings; otherwise the program is
    for one device. Raises ParseError, UnsupportedError (an op or type that hloom does not have), ShapeError, ...
    """
    return convert_program(program, function, input_shapes, known, checks=False, shardings=shardings)[0]


def convert_program(program, function=None, input_shapes=None, known=(), checks: bool = True, shardings: bool = True):
    """(module, checks, inputs) of a test program, whose constants are its inputs and expected results.

    checks: the collected check ops; after the function's own results the module returns the computed and the expected
    value of each check. Array constants of the program become parameters of the module, to prevent constant folding;
    `inputs` are their values.
    """
    converter = Converter(program, checks, shardings)
    module, found = converter.module(function, input_shapes, known)
    return module, found, converter.lifted


class Converter(Places):
    """Converts one program."""

    def __init__(self, program: Program, checks: bool, shardings: bool = True):
        super().__init__(program)
        self.functions = program.functions()
        self.computations: dict[tuple, Computation] = {}
        self.collects = checks
        self.has_quantized = "!quant." in program.text
        self.checks: list[Check] = []
        self.lifted: list[np.ndarray] = []
        self.calls: list[str] = []
        self._static: dict[str, bool] = {}
        self.given = Given()
        self.placement = Placement(self, program, shardings)

    # --- the module -----------------------------------------------------------------------------------------------

    def module(self, name, input_shapes, known) -> tuple[Module, list[Check]]:
        function = self._entry(name)
        inputs = function.attributes["function_type"].inputs
        if input_shapes is not None and len(input_shapes) != len(inputs):
            raise ShapeError(
                f"@{function.attributes['sym_name']} takes {len(inputs)} arguments", f"{len(input_shapes)} shapes",
                "give a shape for each argument",
            )  # fmt: skip
        builder = Builder(function.attributes["sym_name"])
        scope = Scope(self, builder, function.attributes["sym_name"])
        scope.is_entry = True
        items = []
        for k, type_ in enumerate(inputs):
            given = input_shapes[k] if input_shapes is not None else None
            items.append(self._parameter(scope, function, k, type_, given, known[k] if k < len(known) else None))
        results = scope.function_body(function, function, items)
        outputs = [i.instruction for i in results if i.instruction is not None]
        for check in self.checks:
            outputs += [check.actual.instruction, check.expected.instruction]
        outputs, laid_out = self.placement.module(scope, function, outputs)
        root = outputs[0] if len(outputs) == 1 and not self.checks else builder.tuple(outputs)
        if len(outputs) > 1 and any(laid_out):
            root.sharding = tuple(laid_out)
        legal = re.sub(r"[^A-Za-z0-9_.\-]", "_", self.program.name) or "module"
        return self.placement.finished(legal, builder.finish(root)), self.checks

    def _entry(self, name: str | None) -> Operation:
        if name is not None and name not in self.functions:
            raise ParseError(
                f"there is no function @{name}", f"the module has {', '.join(self.functions) or 'none'}",
                "name one of these", Source(self.program.file, 1, ""),
            )  # fmt: skip
        if name is None:
            public = [n for n, f in self.functions.items() if f.attributes.get("sym_visibility") != "private"]
            name = "main" if "main" in self.functions else public[0] if len(public) == 1 else None
        if name is None:
            raise ParseError(
                "the function to run is not clear", f"the module has {', '.join(self.functions) or 'none'}",
                "name one @main, or pass function=", Source(self.program.file, 1, ""),
            )  # fmt: skip
        if not self.functions[name].regions:
            raise self.fail(self.functions[name], f"@{name} has no body")
        return self.functions[name]

    def _parameter(self, scope, function, k, type_, given, value) -> Item:
        shape, quantized = self.argument_shape(function, k, type_, given)
        hint = function.regions[0].arguments[k][0].lstrip("%")
        instruction = scope.builder.parameter(shape, hint, scope.builder.source)
        stated = function.attributes.get("arg_attrs", ())
        instruction.sharding = self.placement.stated(function, stated[k], shape) if k < len(stated) else None
        if isinstance(value, (int, SizeExpression)):
            self.given.sizes[instruction] = value
        elif value is not None:
            instruction = scope.builder.constant(np.asarray(value, shape.dtype).reshape(shape.dims), shape.dtype)
        return Item(instruction, quantized)

    def argument_shape(self, function, k, type_, given):
        """(shape, quantized type) of the function's argument k, with the given sizes."""
        name = function.attributes["sym_name"]
        if isinstance(type_, Tuple):
            return TupleShape([self.argument_shape(function, k, t, None)[0] for t in type_.elements]), None
        if not isinstance(type_, Tensor):
            raise UnsupportedError(
                f"argument {k} of @{name} is of type {type_}", "hloom takes tensors and tuples of them",
                "write the program for tensors",
                self.source(function, name),
            )  # fmt: skip
        if given is None:
            dims = type_.dims
        else:
            dims = tuple(given.dims if isinstance(given, Shape) else given)
            fits = len(dims) == len(type_.dims) and all(b in (None, a) for a, b in zip(dims, type_.dims, strict=True))
            if not fits or (isinstance(given, Shape) and given.dtype != self.dtype(function, type_)):
                raise ShapeError(
                    f"argument {k} of @{name} is {type_}", f"{given!r} given", "pass an array of this type",
                )  # fmt: skip
        if None in dims:
            raise ShapeError(
                f"argument {k} of @{name} has sizes that are not known: {type_}", "no shape was given for it",
                "pass input_shapes=, or call the function with arrays", self.source(function, name),
            )  # fmt: skip
        element = type_.element
        return Shape(self.dtype(function, type_), dims), element if isinstance(element, Quantized) else None

    def dtype(self, op: Operation, type_) -> np.dtype:
        """The storage dtype of a tensor type's elements."""
        element = type_.element
        found = element_dtype(element.storage if isinstance(element, Quantized) else element)
        if found is None:
            raise UnsupportedError(
                f"{op.name} has elements of type {element}", "hloom has no such element type",
                "convert to a type that it has", self.source(op, ""),
            )  # fmt: skip
        return found

    def callee(self, op: Operation, name: str) -> Operation:
        """The function that an operation calls, which must have a body and not be under conversion."""
        function = self.functions.get(name)
        if function is None or not function.regions:
            raise self.fail(op, f"there is no function @{name} with a body", ", ".join(self.functions))
        if name in self.calls or len(self.calls) > _DEEPEST:
            raise self.fail(op, f"@{name} calls itself, or calls are nested too deep", " -> ".join(self.calls))
        return function

    def is_static(self, name: str) -> bool:
        """Whether all types in a function, and in those that it calls, are plain tensors of static sizes."""
        known = self._static.get(name)
        if known is None:
            self._static[name] = True  # for recursive functions, which are reported elsewhere
            function = self.functions.get(name)
            known = function is None or (
                all(map(_is_plain, function.attributes["function_type"].inputs))
                and all(map(_is_plain, function.attributes["function_type"].results))
                and all(self._static_region(r) for r in function.regions)
            )
            self._static[name] = known
        return known

    def _static_region(self, region: Region) -> bool:
        for block in region.blocks:
            for op in block.operations:
                if not all(map(_is_plain, op.result_types)) or op.name.startswith("check."):
                    return False
                callee = op.attributes.get("callee")
                if isinstance(callee, Symbol) and not self.is_static(callee.name):
                    return False
                if op.name == "stablehlo.custom_call" and str(op.attributes.get("call_target_name")).startswith(
                    "check."
                ):
                    return False
                if not all(self._static_region(r) for r in op.regions):
                    return False
        return True


def _is_plain(type_) -> bool:
    return isinstance(type_, Tensor) and type_.static and not isinstance(type_.element, Quantized)


def _quantized_element(type_) -> Quantized | None:
    return type_.element if isinstance(type_, Tensor) and isinstance(type_.element, Quantized) else None


class Scope:
    """A computation under construction: its builder, and the values of names."""

    def __init__(self, converter: Converter, builder: Builder, function: str, outer: Scope | None = None):
        self.converter = converter
        self.builder = builder
        self.function = function
        self.outer = outer
        self.values: dict[str, Item] = {}
        self.op = Operation("func.func")  # the operation being converted
        self.is_entry = False  # the computation is the module's own
        self.caller: Source | None = outer.caller if outer else None  # the call site of the enclosing function
        self.numbers = Values(converter.given)

    # --- bodies ---------------------------------------------------------------------------------------------------

    def body(self, region: Region, arguments: Sequence[Item]) -> list[Item]:
        """Converts a region's operations; returns the operands of its terminator."""
        if len(region.blocks) != 1:
            last = region.blocks[0].operations[-1] if region.blocks[0].operations else None
            raise UnsupportedError(
                f"a region with {len(region.blocks)} blocks in @{self.function}", "jumps between blocks",
                "use stablehlo.if, case and while", self.converter.source(last, self.function) if last else None,
            )  # fmt: skip
        for (name, _), item in zip(region.arguments, arguments, strict=True):
            self.set(name, item)
        for op in region.operations:
            if op.name in ("func.return", "stablehlo.return", "sdy.return"):
                return [self.get(op, name) for name in op.operands]
            self.convert(op)
        last = region.operations[-1] if region.operations else None
        if last is None:
            raise ParseError("a region returns values", "it is empty", "end it with a return", Source(
                self.converter.program.file, 0, self.function))  # fmt: skip
        raise self.converter.fail(last, "a region ends with a return", f"{last.name} is the last", "add a return")

    def function_body(self, op: Operation, function: Operation, arguments: Sequence[Item]) -> list[Item]:
        """Inlines a function's body for the operation that calls it; returns its results.

        Raises VerifyError if arguments or results do not have the declared types."""
        stated = function.attributes["function_type"]
        self._require_types(op, function, "argument", arguments, stated.inputs)
        results = self.body(function.regions[0], arguments)
        self._require_types(function, function, "result", results, stated.results)
        return results

    def _require_types(self, op: Operation, function: Operation, what: str, items: Sequence[Item], types) -> None:
        self._require_count(op, function, what, len(items), types)
        name, source = function.attributes["sym_name"], self.converter.source(op, self.function)
        for k, (item, type_) in enumerate(zip(items, types, strict=True)):
            shape = None if item.instruction is None else item.shape
            if isinstance(type_, Tensor) and isinstance(shape, Shape) and not self._fits(op, shape, type_):
                raise VerifyError(
                    f"{what} {k} of @{name} is stated as {type_}", f"{shape!r}",
                    f"correct the type of the {what}, or pass what the function states", source,
                )  # fmt: skip

    def _require_count(self, op: Operation, function: Operation, what: str, count: int, types) -> None:
        if count != len(types):
            raise VerifyError(
                f"@{function.attributes['sym_name']} states {len(types)} {what}s", f"{count}",
                f"give as many {what}s as it states", self.converter.source(op, self.function),
            )  # fmt: skip

    def _fits(self, op: Operation, shape: Shape, type_: Tensor) -> bool:
        """Whether an array of this shape matches the type, whose open sizes match any size."""
        dims = type_.dims
        same = len(dims) == shape.rank and all(d is None or d == e for d, e in zip(dims, shape.dims, strict=True))
        return same and shape.dtype == self.converter.dtype(op, type_)

    def set(self, name: str, item: Item) -> None:
        self.values[name] = item
        if "#" not in name:
            self.values[f"{name}#0"] = item

    def get(self, op: Operation, name: str) -> Item:
        item = self.values.get(name)
        if item is None and self.outer is not None:
            item = self._captured(self.outer, op, name)
        if item is None:
            raise self.converter.fail(op, f"'{name}' is not defined above")
        return item

    def _captured(self, outer: Scope, op: Operation, name: str) -> Item:
        """A value from outside of a region. HLO's computations cannot capture values, so only constants are
        possible."""
        outside = outer.get(op, name)
        value = None if outside.instruction is None else outer.known(outside.instruction)
        sizes = None if outside.instruction is None or value is not None else outer.numbers.sizes(outside.instruction)
        if sizes is not None:
            item = self.constant_of_sizes(sizes, outside.shape)
            self.values[name] = item
            return item
        if value is None:
            raise UnsupportedError(
                f"{op.name} in the body of another op uses {name}, which is computed outside of it",
                "HLO's computations see only their arguments and constants",
                "compute it inside, or pass it as an operand", self.converter.source(op, self.function),
            )  # fmt: skip
        item = Item(self.builder.constant(value), outside.quantized)
        self.values[name] = item
        return item

    def convert(self, op: Operation) -> None:
        """Converts one operation; its results get their names."""
        builder, converter = self.builder, self.converter
        builder.source = converter.source(op, self.function, self.caller)
        converted = CONVERTERS.get(op.name)
        before, self.op = self.op, op
        try:
            if converted is None:
                raise UnsupportedError(
                    f"{op.name} is not an op that hloom has",
                    "ops of the dialects stablehlo, chlo, check and func are known",
                    "write it in terms of these",
                    builder.source,
                )
            items = [self.get(op, name) for name in op.operands]
            if self.converter.has_quantized and is_quantized(op, items):
                results = convert_quantized(self, op, items)
            else:
                results = converted(self, op, items)
        except ParseError:
            raise
        except LiteralProblem as error:
            raise converter.fail(op, *error.args) from None
        except HloomError as error:
            source = error.source
            if not isinstance(source, Source) or source.file != converter.program.file or not source.line:
                error.source = builder.source
            raise
        except (AttributeError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            raise converter.fail(op, f"{op.name} cannot take these operands and attributes", f"{error}") from error
        finally:
            self.op = before
        results = [results] if isinstance(results, Item) else list(results)
        results = converter.placement.annotate(self, op, items, results)
        if converter.has_quantized:
            pairs = zip(results, op.result_types, strict=False)
            results = [Item(i.instruction, i.quantized or _quantized_element(t)) for i, t in pairs]
        self._check(op, results)
        for name, item in zip(op.result_names(), results, strict=False):
            if item.instruction is not None and not item.instruction.hint and re.fullmatch(r"%[A-Za-z_]\w*", name):
                item.instruction.hint = name[1:]
            self.set(name, item)
            if name.endswith("#0"):
                self.values[name[:-2]] = item

    def _check(self, op: Operation, results: list[Item]) -> None:
        """Checks that the results match the types in the text."""
        if len(results) != len(op.result_types):
            raise self.converter.fail(op, f"{op.name} has {len(results)} results", f"{len(op.result_types)} types")
        for item, type_ in zip(results, op.result_types, strict=True):
            if not isinstance(type_, Tensor) or item.instruction is None:
                continue
            shape = item.shape
            if not isinstance(shape, Shape):
                raise self.converter.fail(op, f"{op.name} returns a tuple", f"the text says {type_}")
            if not self._fits(op, shape, type_):
                raise self.converter.fail(
                    op, f"{op.name} gives {shape!r}", f"the text says {type_}", "correct the type of the result"
                )

    # --- computations -------------------------------------------------------------------------------------------------

    def region(self, region: Region, arguments: Sequence[Shape]) -> Computation:
        """The computation of a region, with one parameter for each argument. Constants from outside are visible."""
        name = f"{self.op.name.split('.')[-1]}_region"
        builder = Builder(name)
        inner = Scope(self.converter, builder, self.function, self)
        items = []
        for k, shape in enumerate(arguments):
            hint, type_ = region.arguments[k] if k < len(region.arguments) else ("", None)
            items.append(Item(builder.parameter(shape, hint.lstrip("%")), _quantized_element(type_)))
        if len(items) != len(region.arguments):
            raise self.converter.fail(
                self.op, f"the body of {self.op.name} takes {len(items)} arguments", f"{len(region.arguments)}"
            )
        results = [i.instruction for i in inner.body(region, items)]
        return builder.finish(results[0] if len(results) == 1 else builder.tuple(results))

    def free(self, regions: Sequence[Region]) -> list[str]:
        """The names that regions capture, in order of first use."""
        found: dict[str, None] = {}

        def walk(region: Region, defined: set[str]) -> None:
            for block in region.blocks:
                inner = defined | {name for name, _ in block.arguments}
                for op in block.operations:
                    for name in op.operands:
                        if name.partition("#")[0] not in inner:
                            found[name] = None
                    for nested in op.regions:
                        walk(nested, inner)
                    inner |= {name for name, _ in op.results}

        for region in regions:
            walk(region, set())
        return list(found)

    def computation_of(self, op: Operation, name: str, shapes: tuple[Shape, ...]) -> tuple[Computation, int]:
        """The computation of a function, created once, and its number of results."""
        converter = self.converter
        function = converter.callee(op, name)
        found = converter.computations.get((name, shapes))
        stated = function.attributes["function_type"]
        self._require_count(op, function, "argument", len(shapes), stated.inputs)
        count = len(stated.results)
        if found is None:
            converter.calls.append(name)
            builder = Builder(re.sub(r"[^A-Za-z0-9_.\-]", "_", name))
            scope = Scope(converter, builder, name)
            scope.caller = converter.place(op, self.function) or self.caller  # the first of several results
            arguments = [
                Item(builder.parameter(shape, region_name.lstrip("%")))
                for shape, (region_name, _) in zip(shapes, function.regions[0].arguments, strict=True)
            ]
            results = [i.instruction for i in scope.function_body(op, function, arguments)]
            found = builder.finish(results[0] if count == 1 else builder.tuple(results))
            converter.computations[name, shapes] = found
            converter.calls.pop()
        return found, count

    def inline(self, op: Operation, name: str, items: Sequence[Item]) -> list[Item]:
        """Inlines a function's body with these arguments."""
        converter = self.converter
        function = converter.callee(op, name)
        converter.calls.append(name)
        inner = Scope(converter, self.builder, name, self.outer)
        inner.numbers, inner.is_entry = self.numbers, self.is_entry
        inner.caller = converter.place(op, self.function) or self.caller
        results = inner.function_body(op, function, items)
        converter.calls.pop()
        return results

    # --- helpers of converters ------------------------------------------------------------------------------------

    def emit(self, opcode: str, *items: Item, shape=None, **attributes) -> Item:
        if opcode not in OPS:
            raise UnsupportedError(
                f"{self.op.name} is not an op that hloom has",
                f"no '{opcode}' in the table",
                "write it in terms of other ops",
                self.builder.source,
            )
        return Item(self.builder.emit(opcode, *(i.instruction for i in items), shape=shape, **attributes))

    def value(self, item: Item) -> Value:
        return Value(self.builder, item.instruction)

    def constant(self, value, dtype=None) -> Item:
        return Item(self.builder.constant(value, dtype))

    def constant_of_sizes(self, sizes: np.ndarray, shape: Shape) -> Item:
        """A value whose elements are sizes, in an integer or boolean dtype."""
        flat = sizes.reshape(-1).tolist()
        if not any(isinstance(one, SizeExpression) for one in flat):
            return self.constant(sizes.astype(shape.dtype), shape.dtype)
        scalar = Shape(shape.dtype)
        parts = [self.emit("size", shape=scalar, value=one) for one in flat]
        if shape.rank:
            parts = [self.emit("reshape", part, shape=scalar.with_dims((1,))) for part in parts]
            joined = parts[0] if len(parts) == 1 else self.emit("concatenate", *parts, dimensions=(0,))
            return joined if shape.rank == 1 else self.emit("reshape", joined, shape=shape)
        return parts[0]

    def elements(self, item: Item) -> list[Item]:
        """The elements of a value of a tuple shape."""
        return [
            Item(self.builder.emit("get-tuple-element", item.instruction, index=k))
            for k in range(len(item.shape.elements))
        ]

    def result(self, op: Operation, k: int = 0) -> Tensor:
        type_ = op.result_types[k]
        if not isinstance(type_, Tensor):
            raise UnsupportedError(
                f"{op.name} has a tensor as its result", f"{type_}", "leave the op out", self.builder.source
            )
        return type_

    def result_dtype(self, op: Operation, k: int = 0) -> np.dtype:
        return self.converter.dtype(op, self.result(op, k))

    def result_shape(self, op: Operation, k: int = 0) -> Shape:
        """The shape of a result in the text, which must have static sizes."""
        type_ = self.result(op, k)
        if not type_.static:
            raise UnsupportedError(
                f"{op.name} has a result of unknown sizes: {type_}", "nothing decides them",
                "pass input_shapes=, or give the sizes as constants", self.builder.source,
            )  # fmt: skip
        return Shape(self.result_dtype(op, k), type_.sizes)

    def quantized(self, op: Operation, k: int = 0) -> Quantized | None:
        return _quantized_element(op.result_types[k])

    def known(self, instruction: Instruction) -> np.ndarray | None:
        """The value of an instruction that depends on no parameter, evaluated by the references; otherwise None."""
        return self.numbers.constant(instruction)

    def sizes(self, item: Item) -> tuple[Size, ...] | None:
        """The sizes in an operand; None if they depend on the values of arguments."""
        value = self.known(item.instruction)
        if value is not None:
            return tuple(int(v) for v in np.asarray(value).reshape(-1))
        found = self.numbers.sizes(item.instruction)
        return None if found is None else tuple(found.reshape(-1).tolist())

    def integers(self, item: Item, what: str) -> tuple[Size, ...]:
        """The numbers in an operand that must be known, for dynamic ops."""
        found = self.sizes(item)
        if found is None:
            raise UnsupportedError(
                f"{self.op.name} with {what} that depends on the values of arguments",
                "hloom's shapes are known when it compiles, or sizes of its arguments",
                f"make {what} a constant, or a function of the arguments' sizes", self.builder.source,
            )  # fmt: skip
        return found

    def dense(self, dense: Dense, type_: Tensor | None = None) -> np.ndarray:
        type_ = type_ or dense.type
        shape = Shape(self.converter.dtype(self.op, type_), type_.sizes)
        return dense_value(dense, shape, self.converter.program.resources)


__all__ = ["Check", "Converter", "Scope", "convert_program", "to_module"]
