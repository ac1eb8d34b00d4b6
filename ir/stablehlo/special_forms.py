"""Pretty spellings of their own: functions, calls, constants, slices, comparisons, convolutions, reduce, while."""

from __future__ import annotations

import re

from hloom.ir.stablehlo.attributes import (
    Array,
    Dense,
    Dialect,
    Number,
    Symbol,
    attribute_text,
    dense_text,
    dictionary_text,
    symbol_text,
)
from hloom.ir.stablehlo.forms import (
    FORMS,
    INTS,
    PRECISION,
    NotPretty,
    enum,
    others,
    read_format,
    read_functional,
    read_ints,
    read_same,
    write_arrow,
    write_functional,
    write_ints,
    write_same,
)
from hloom.ir.stablehlo.syntax import Block, Operation, Region
from hloom.ir.stablehlo.types import Function, Tensor, Tuple, parse_results, parse_type_list

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
    """`public @main(%arg0: type {attributes}) -> (type {attributes}) attributes {...} { body }`"""

    def read(self, reader, op) -> None:
        if reader.peek() in ("public", "private", "nested"):
            op.attributes["sym_visibility"] = reader.take()
        op.attributes["sym_name"] = reader.symbol()
        arguments, inputs, argument_attributes = [], [], []
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
        results, result_attributes = [], []
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
    """`%a, %b : type, type`"""

    def read(self, reader, op) -> None:
        if reader.peek()[:1] == "%":
            op.operands = reader.operand_list()
        reader.attribute_dictionary(op)
        if op.operands:
            reader.expect(":")
            types = [reader.type()]
            while reader.accept(","):
                types.append(reader.type())
            op.operand_types = tuple(types)

    def write(self, op, printer) -> str:
        if not op.operands:
            return others(op, ())
        return f" {', '.join(op.operands)}{others(op, ())} : {', '.join(map(str, op.operand_types))}"


@form("func.call")
class _Call:
    """`@name(%a) : (type) -> type`"""

    def read(self, reader, op) -> None:
        op.attributes["callee"] = Symbol(reader.symbol())
        op.operands = reader.operands_in_parentheses()
        reader.attribute_dictionary(op)
        reader.expect(":")
        read_functional(reader, op)

    def write(self, op, printer) -> str:
        if not isinstance(op.attributes.get("callee"), Symbol):
            raise NotPretty
        callee = attribute_text(op.attributes["callee"])
        return f" {callee}({', '.join(op.operands)}){others(op, ('callee',))} : {write_functional(op)}"


@form("stablehlo.custom_call")
class _CustomCall:
    """`@target(%a) {attributes} : (type) -> type`"""

    def read(self, reader, op) -> None:
        op.attributes["call_target_name"] = reader.symbol()
        op.operands = reader.operands_in_parentheses()
        reader.attribute_dictionary(op)
        reader.expect(":")
        read_functional(reader, op)

    def write(self, op, printer) -> str:
        target = op.attributes.get("call_target_name")
        if not isinstance(target, str):
            raise NotPretty
        rest = others(op, ("call_target_name",))
        return f" {symbol_text(target)}({', '.join(op.operands)}){rest} : {write_functional(op)}"


@form("stablehlo.composite")
class _Composite:
    """`"name" %a, %b {attributes} : (type) -> type`"""

    def read(self, reader, op) -> None:
        op.attributes["name"] = reader.string()
        if reader.peek()[:1] == "%":
            op.operands = reader.operand_list()
        reader.attribute_dictionary(op)
        reader.expect(":")
        read_functional(reader, op)

    def write(self, op, printer) -> str:
        if not isinstance(op.attributes.get("name"), str):
            raise NotPretty
        operands = f" {', '.join(op.operands)}" if op.operands else ""
        name = attribute_text(op.attributes["name"])
        return f" {name}{operands}{others(op, ('name',))} : {write_functional(op)}"


# --- constants, elements of tuples, slices, comparisons -----------------------------------------------------------


@form("stablehlo.constant", "chlo.constant")
class _Constant:
    """`dense<...> : type`"""

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
    """`%t[0] : (tuple<...>) -> type`"""

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
    """`%x [0:4, 1:9:2] : (type) -> type`"""

    def read(self, reader, op) -> None:
        op.operands = [reader.operand()]
        starts, limits, strides = [], [], []
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
        reader.attribute_dictionary(op)
        reader.expect(":")
        read_functional(reader, op)

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
    """`LT, %a, %b, FLOAT : (type, type) -> type`"""

    def read(self, reader, op) -> None:
        op.attributes["comparison_direction"] = _DIRECTION[0](reader)
        reader.expect(",")
        op.operands = reader.operand_list()
        if reader.accept(","):
            op.attributes["compare_type"] = _COMPARISON[0](reader)
        reader.attribute_dictionary(op)
        reader.expect(":")
        read_functional(reader, op)

    def write(self, op, printer) -> str:
        names = ("comparison_direction", "compare_type")
        text = f" {_DIRECTION[1](op.attributes.get(names[0]))}, {', '.join(op.operands)}"
        if names[1] in op.attributes:
            text += f", {_COMPARISON[1](op.attributes[names[1]])}"
        return f"{text}{others(op, names)} : {write_functional(op)}"


@form("stablehlo.reduce_precision")
class _ReducePrecision:
    """`%x, format = e5m10 : type`"""

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
    """`(%x, k = 8) : type -> (type, type)`"""

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


# --- products -----------------------------------------------------------------------------------------------------


_DOT_FIELDS = (
    "lhs_batching_dimensions",
    "rhs_batching_dimensions",
    "lhs_contracting_dimensions",
    "rhs_contracting_dimensions",
)


@form("stablehlo.dot_general")
class _DotGeneral:
    """`%a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [..], algorithm = <...>`"""

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
        reader.attribute_dictionary(op)
        reader.expect(":")
        read_functional(reader, op)

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
    """`(%a, %b) dim_numbers = [..]x[..]->[..], window = {stride = [..], pad = [[..]], ...} {attributes} : ...`"""

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
                raise reader.fail(f"'{key}' is no field of a window, or is there twice", ", ".join(names), at=at)
            reader.expect("=")
            if key == "pad":
                op.attributes[names[key]] = self._padding(reader)
            elif key == "reverse":
                values = [v if isinstance(v, bool) else bool(v.value) for v in reader.array()]
                op.attributes[names[key]] = Array("i1", tuple(values))
            else:
                op.attributes[names[key]] = read_ints(reader)
        reader.attribute_dictionary(op)
        reader.expect(":")
        read_functional(reader, op)

    @staticmethod
    def _padding(reader) -> Dense:
        at = reader.at
        rows = []
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


# --- reduce and while ---------------------------------------------------------------------------------------------


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
        """The body (a, b) -> applied(a, b) that the short spelling stands for."""
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
    """`(%a = %x, ...) : types attributes {...} cond { ... } do { ... }`"""

    def read(self, reader, op) -> None:
        names = []
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
            types.append(reader.type())
            while reader.accept(","):
                types.append(reader.type())
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
        condition, body = op.regions if len(op.regions) == 2 else (None, None)
        if condition is None or len(condition.blocks) != 1 or len(body.blocks) != 1:
            raise NotPretty
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
    """The region with other names for its arguments. Raises NotPretty where a name is taken inside."""
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
            changed.append(
                Operation(
                    o.name,
                    o.results,
                    [mapping.get(v, v) for v in o.operands],
                    o.attributes,
                    regions,
                    o.operand_types,
                    o.result_types,
                    o.successors,
                    o.location,
                    o.place,
                )  # fmt: skip
            )
        return changed

    block = region.blocks[0]
    arguments = [(new, t) for new, (_, t) in zip(names, block.arguments, strict=True)]
    return Region([Block(block.label, arguments, change(block.operations))])


__all__ = ["parse_type_list"]
