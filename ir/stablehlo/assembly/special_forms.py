"""Special pretty syntax: functions, calls, constants, slices, comparisons."""

from __future__ import annotations

from hloom.ir.stablehlo.assembly.attributes import (
    Array,
    Dense,
    Number,
    Symbol,
    attribute_text,
    dense_text,
    dictionary_text,
    symbol_text,
)
from hloom.ir.stablehlo.assembly.forms import (
    FORMS,
    NotPretty,
    enum,
    others,
    read_format,
    read_functional,
    read_rest,
    read_same,
    write_arrow,
    write_functional,
    write_same,
)
from hloom.ir.stablehlo.types import Function, Tuple, parse_results

INDENT = "  "


def form(*names):
    """Registers a class with `read(reader, op)` and `write(op, printer)` as the form of ops."""

    def register(cls):
        for name in names:
            FORMS[name] = cls()
        return cls

    return register


# --- functions and calls ------------------------------------------------------------------------------------------


@form("func.func")
class _Func:
    """Reads `public @main(%arg0: type {attributes}) -> (type {attributes}) attributes {...} { body }`."""

    def read(self, reader, op) -> None:
        if reader.peek() in ("public", "private", "nested"):
            op.attributes["sym_visibility"] = reader.take()
        op.attributes["sym_name"] = reader.symbol()
        arguments: list = []
        inputs: list = []
        argument_attributes: list = []
        named = True
        reader.expect("(")
        while not reader.accept(")"):
            if inputs:
                reader.expect(",")
            if reader.peek()[:1] == "%":
                at = reader.at
                name = reader.value()
                reader.expect(":")
                arguments.append((name, at))
            else:
                named = False
            inputs.append(reader.type())
            argument_attributes.append(reader.dictionary() if reader.peek() == "{" else {})
            reader.location()
        results: list = []
        result_attributes: list = []
        if reader.accept("->"):
            if reader.accept("("):
                while not reader.accept(")"):
                    if results:
                        reader.expect(",")
                    results.append(reader.type())
                    result_attributes.append(reader.dictionary() if reader.peek() == "{" else {})
            else:
                results.append(reader.type())
                result_attributes.append({})
        op.attributes["function_type"] = Function(tuple(inputs), tuple(results))
        if any(argument_attributes):
            op.attributes["arg_attrs"] = tuple(argument_attributes)
        if any(result_attributes):
            op.attributes["res_attrs"] = tuple(result_attributes)
        if reader.accept("attributes"):
            op.attributes.update(reader.dictionary())
        if reader.peek() == "{":
            if not named or len(arguments) != len(inputs):
                raise reader.fail("a function with a body has named arguments", repair="write %arg0: before each type")
            pairs = [(name, at, type_) for (name, at), type_ in zip(arguments, inputs, strict=True)]
            op.regions.append(reader.region(pairs, isolated=True))

    def write(self, op, printer) -> str:
        known = {"sym_visibility", "sym_name", "function_type", "arg_attrs", "res_attrs"}
        attributes, function = op.attributes, op.attributes["function_type"]
        text = " "
        if "sym_visibility" in attributes:
            text += attributes["sym_visibility"] + " "
        text += symbol_text(attributes["sym_name"])
        inputs = attributes.get("arg_attrs", ({},) * len(function.inputs))
        names = [name for name, _ in op.regions[0].arguments] if op.regions else []
        parts = []
        for k, (type_, extra) in enumerate(zip(function.inputs, inputs, strict=True)):
            lead = f"{names[k]}: " if names else ""
            parts.append(f"{lead}{type_}{' ' + dictionary_text(extra) if extra else ''}")
        text += f"({', '.join(parts)})"
        if function.results:
            extras = attributes.get("res_attrs", ({},) * len(function.results))
            parts = [
                f"{t}{' ' + dictionary_text(e) if e else ''}" for t, e in zip(function.results, extras, strict=True)
            ]
            bare = len(parts) == 1 and not extras[0] and not isinstance(function.results[0], Function)
            text += f" -> {parts[0]}" if bare else f" -> ({', '.join(parts)})"
        rest = {k: v for k, v in attributes.items() if k not in known}
        if rest:
            text += f" attributes {dictionary_text(rest)}"
        if op.regions:
            text += f" {printer.region(op.regions[0], labelled=False)}"
        return text


@form("func.return", "stablehlo.return")
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


@form("func.call")
class _Call:
    """Reads `@name(%a) : (type) -> type`."""

    def read(self, reader, op) -> None:
        op.attributes["callee"] = Symbol(reader.symbol())
        op.operands = reader.operands_in_parentheses()
        read_rest(reader, op)

    def write(self, op, printer) -> str:
        if not isinstance(op.attributes.get("callee"), Symbol):
            raise NotPretty
        callee = attribute_text(op.attributes["callee"])
        return f" {callee}({', '.join(op.operands)}){others(op, ('callee',))} : {write_functional(op)}"


@form("stablehlo.custom_call")
class _CustomCall:
    """Reads `@target(%a) {attributes} : (type) -> type`."""

    def read(self, reader, op) -> None:
        op.attributes["call_target_name"] = reader.symbol()
        op.operands = reader.operands_in_parentheses()
        read_rest(reader, op)

    def write(self, op, printer) -> str:
        target = op.attributes.get("call_target_name")
        if not isinstance(target, str):
            raise NotPretty
        rest = others(op, ("call_target_name",))
        return f" {symbol_text(target)}({', '.join(op.operands)}){rest} : {write_functional(op)}"


@form("stablehlo.composite")
class _Composite:
    """Reads `"name" %a, %b {attributes} : (type) -> type`."""

    def read(self, reader, op) -> None:
        op.attributes["name"] = reader.string()
        if reader.peek()[:1] == "%":
            op.operands = reader.operand_list()
        read_rest(reader, op)

    def write(self, op, printer) -> str:
        if not isinstance(op.attributes.get("name"), str):
            raise NotPretty
        operands = f" {', '.join(op.operands)}" if op.operands else ""
        name = attribute_text(op.attributes["name"])
        return f" {name}{operands}{others(op, ('name',))} : {write_functional(op)}"


# --- constants, elements of tuples, slices, comparisons -----------------------------------------------------------


@form("stablehlo.constant", "chlo.constant")
class _Constant:
    """Reads `dense<...> : type`."""

    def read(self, reader, op) -> None:
        reader.attribute_dictionary(op)
        at = reader.at
        value = reader.attribute()
        if not isinstance(value, Dense):
            raise reader.fail("a constant has a value dense<...>", attribute_text(value)[:60], at=at)
        op.attributes["value"] = value
        op.result_types = (value.type,)
        if reader.accept("->") or (reader.peek() == ":" and reader.accept(":")):
            op.result_types = (reader.type(),)

    def write(self, op, printer) -> str:
        value = op.attributes.get("value")
        if not isinstance(value, Dense):
            raise NotPretty
        rest = others(op, ("value",))
        type_ = f" : {value.type}"
        if op.result_types != (value.type,):
            type_ += f" -> {op.result_types[0]}"
        return f"{rest} {dense_text(value.body)}{type_}"


@form("stablehlo.get_tuple_element")
class _Element:
    """Reads `%t[0] : (tuple<...>) -> type`."""

    def read(self, reader, op) -> None:
        op.operands = [reader.operand()]
        reader.expect("[")
        op.attributes["index"] = Number(str(reader.integer()), "i32")
        reader.expect("]")
        reader.attribute_dictionary(op)
        reader.expect(":")
        at = reader.at
        read_functional(reader, op)
        if len(op.operand_types) != 1 or not isinstance(op.operand_types[0], Tuple):
            raise reader.fail("get_tuple_element takes a tuple", at=at)

    def write(self, op, printer) -> str:
        index = op.attributes.get("index")
        if not isinstance(index, Number):
            raise NotPretty
        return f" {op.operands[0]}[{index.text}]{others(op, ('index',))} : {write_functional(op)}"


@form("stablehlo.slice")
class _Slice:
    """Reads `%x [0:4, 1:9:2] : (type) -> type`."""

    def read(self, reader, op) -> None:
        op.operands = [reader.operand()]
        starts: list[int] = []
        limits: list[int] = []
        strides: list[int] = []
        reader.expect("[")
        while not reader.accept("]"):
            if starts:
                reader.expect(",")
            starts.append(reader.integer("where the slice begins"))
            reader.expect(":")
            limits.append(reader.integer("where the slice ends"))
            strides.append(reader.integer("the stride") if reader.accept(":") else 1)
        for name, values in (("start_indices", starts), ("limit_indices", limits), ("strides", strides)):
            op.attributes[name] = Array("i64", tuple(values))
        read_rest(reader, op)

    def write(self, op, printer) -> str:
        names = ("start_indices", "limit_indices", "strides")
        values = [op.attributes.get(name) for name in names]
        if not all(isinstance(v, Array) for v in values) or len({len(v.values) for v in values}) != 1:
            raise NotPretty
        parts = [f"{a}:{b}" + (f":{s}" if s != 1 else "") for a, b, s in zip(*(v.values for v in values), strict=True)]
        return f" {op.operands[0]} [{', '.join(parts)}]{others(op, names)} : {write_functional(op)}"


# MLIR writes two spaces before these words.
_DIRECTION = enum("stablehlo", "comparison_direction")
_COMPARISON = enum("stablehlo", "comparison_type")


@form("stablehlo.compare")
class _Compare:
    """Reads `LT, %a, %b, FLOAT : (type, type) -> type`."""

    def read(self, reader, op) -> None:
        op.attributes["comparison_direction"] = _DIRECTION[0](reader)
        reader.expect(",")
        op.operands = reader.operand_list()
        if reader.accept(","):
            op.attributes["compare_type"] = _COMPARISON[0](reader)
        read_rest(reader, op)

    def write(self, op, printer) -> str:
        names = ("comparison_direction", "compare_type")
        text = f" {_DIRECTION[1](op.attributes.get(names[0]))}, {', '.join(op.operands)}"
        if names[1] in op.attributes:
            text += f", {_COMPARISON[1](op.attributes[names[1]])}"
        return f"{text}{others(op, names)} : {write_functional(op)}"


@form("stablehlo.reduce_precision")
class _ReducePrecision:
    """Reads `%x, format = e5m10 : type`."""

    def read(self, reader, op) -> None:
        op.operands = [reader.operand()]
        reader.expect(",")
        reader.keyword("format")
        reader.expect("=")
        exponent, mantissa = read_format(reader)
        op.attributes["exponent_bits"] = Number(exponent, "i32")
        op.attributes["mantissa_bits"] = Number(mantissa, "i32")
        reader.attribute_dictionary(op)
        reader.expect(":")
        read_same(reader, op)

    def write(self, op, printer) -> str:
        names = ("exponent_bits", "mantissa_bits")
        values = [op.attributes.get(n) for n in names]
        if not all(isinstance(v, Number) for v in values):
            raise NotPretty
        return f" {op.operands[0]}, format = e{values[0].text}m{values[1].text}{others(op, names)} : {write_same(op)}"


@form("chlo.top_k")
class _TopK:
    """Reads `(%x, k = 8) : type -> (type, type)`."""

    def read(self, reader, op) -> None:
        reader.expect("(")
        op.operands = [reader.operand()]
        reader.expect(",")
        reader.keyword("k")
        reader.expect("=")
        op.attributes["k"] = Number(str(reader.integer()), "i64")
        reader.expect(")")
        reader.attribute_dictionary(op)
        reader.expect(":")
        op.operand_types = (reader.type(),)
        reader.expect("->")
        op.result_types = parse_results(reader, reader.type_aliases)

    def write(self, op, printer) -> str:
        k = op.attributes.get("k")
        if not isinstance(k, Number):
            raise NotPretty
        return f"({op.operands[0]}, k = {k.text}){others(op, ('k',))} : {write_arrow(op)}"
