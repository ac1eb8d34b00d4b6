"""Parses HLO text, as printed by hloom and XLA.

The parser checks that the text is well formed: names, shapes as written, attributes supported by the op, values of
their kinds. Consistency of shapes is left to the verifier (`hloom.ir.verify`), so that an invalid module can be read.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from hloom.ir.build import Builder
from hloom.ir.errors import HloomError, ParseError, UnsupportedError
from hloom.ir.library_calls import Call, expand, is_library_call, parse_options
from hloom.ir.module import AnyShape, Computation, Instruction, Module
from hloom.ir.op_table import OPS, Op
from hloom.ir.records import replace
from hloom.ir.sizes.expressions import Dim
from hloom.ir.source import Source, on_device
from hloom.ir.text.attributes import (
    BRANCHES,
    POSITIONAL,
    attribute_of_text,
    is_frontend,
    kind_of,
    read_computations,
    read_integers,
)
from hloom.ir.text.lexer import Cursor, is_name
from hloom.ir.text.literals import LiteralError, parse_literal
from hloom.ir.text.placement import Placement
from hloom.ir.text.provenance import DEVICE, Frames, parse_metadata
from hloom.ir.text.shapes import array_shape, parse_shape
from hloom.ir.text.sizes import read as read_attribute
from hloom.ir.text.special import SPECIAL, refused
from hloom.ir.types import Shape, TupleShape

# Attributes printed by XLA that do not affect an instruction's semantics here: hints for other compilers, placement for
# other runtimes, and orders that the order of the text preserves. All others are errors.
_HINTS = frozenset(
    """backend_config origin statistics parameter_replication control-predecessors
    operand_precision result_accuracy operand_layout_constraints api_version schedule execution_thread
    output_to_operand_aliasing called_computations""".split()
)
_ALGORITHMS = tuple(
    """any dot_any dot_unset dot_any_f8_any_f8_f32 dot_any_f8_any_f8_f32_fast_accum dot_any_f8_any_f8_any
    dot_any_f8_any_f8_any_fast_accum dot_f16_f16_f16 dot_f16_f16_f32 dot_bf16_bf16_bf16 dot_bf16_bf16_f32
    dot_bf16_bf16_f32_x3 dot_bf16_bf16_f32_x6 dot_bf16_bf16_f32_x9 dot_tf32_tf32_f32 dot_tf32_tf32_f32_x3
    dot_f32_f32_f32 dot_f64_f64_f64""".split()
)
_DEFAULTS = {
    ("compare", "type"): ("FLOAT", "SIGNED", "UNSIGNED"),  # TOTALORDER is kept
    # The minimum precision of a product: hloom's have that of their result's dtype.
    ("dot", "algorithm"): _ALGORITHMS,
    ("call", "is_composite"): ("true", "false"),
}
_MODULE_HINTS = frozenset(
    """is_scheduled allow_spmd_sharding_propagation_to_parameters allow_spmd_sharding_propagation_to_output
    frontend_attributes buffer_donor alias_passthrough_params spmd_parameters_shardings
    spmd_output_sharding""".split()
)
_DEEPEST_CALLS = 200  # maximum depth of calls, along which the interpreter and the passes recurse


def parse_module(text: str, file: str = "<text>", dims: Mapping[str, Dim] | None = None) -> Module:
    """The module that HLO text describes. `file` names the text in errors. dims: used in its sizes, by name.

    Raises ParseError, with line and column and the line with a caret. Does not verify.
    """
    return _Parser(text, file, dims).module()


def _nearest(name: str, known) -> str:
    close = difflib.get_close_matches(name, list(known)[-5000:], 1)
    return f"did you mean '{close[0]}'?" if close else ""


def _computations(entry: Op, called: tuple[Computation, ...]) -> dict:
    """The computations of a custom call as the attributes declared by the op, in order."""
    found: dict[str, object] = {}
    rest = list(called)
    for key, kind in entry.attributes.items():
        if kind == "computation" and rest:
            found[key] = rest.pop(0)
        elif kind.startswith("computations") and rest:
            found[key], rest = tuple(rest), []
    return found


class _Parser(Cursor):
    def __init__(self, text: str, file: str, dims: Mapping[str, Dim] | None = None):
        super().__init__(text, file, dims)
        self.frames = Frames()
        self.ops = {entry.text: entry for entry in OPS.values() if not entry.is_custom_call}
        # Ops without an HLO opcode are custom calls in the text.
        self.targets = {entry.text: name for name, entry in OPS.items() if entry.is_custom_call}
        self.computations: dict[str, Computation] = {}
        self.depths: dict[int, int] = {}  # by id: the maximum depth of calls below
        self.layouts: dict[str, tuple[int, ...]] = {}  # of the current computation, with their positions
        self.depth = 0  # of the current computation
        self.placement = Placement()
        self.shape: AnyShape | None = None  # of the current instruction, for its literal
        self.device = ""  # chosen by the user

    # --- the module -----------------------------------------------------------------------------------------------

    def module(self) -> Module:
        name, entry, layout, aliases = "module", None, None, []
        if self.accept("HloModule"):
            name = self.name("the name of the module")
            layout, aliases = self._module_attributes()
        self.frames.parse(self)
        last = None
        while self.peek():
            at = self.at
            marked = self.accept("ENTRY")
            last = self._computation()
            if marked and entry is not None:
                raise self.fail("there is a second ENTRY computation", f"the first is {entry.name}", at=at)
            entry = last if marked else entry
        if entry is None:
            if last is None:
                raise self.unexpected("a computation")
            if len(self.computations) > 1:
                names = ", ".join(list(self.computations)[:8])
                raise self.fail("no computation is marked ENTRY", names, "write ENTRY before the one to run")
            entry = last
        if layout is not None:
            self._check_layout(entry, *layout)
        module = Module(name, entry, self._checked_aliases(entry, aliases))
        return self.placement.applied(module, self)

    def _module_attributes(self):
        layout, aliases, seen = None, [], set()
        while self.accept(","):
            at = self.at
            key = self.name("an attribute of the module")
            if key in seen:
                raise self.fail(f"'{key}' is given twice", at=at)
            seen.add(key)
            self.expect("=")
            if key == "entry_computation_layout":
                self.expect("{")
                layout = at, self._shapes(), self._result()
                self.expect("}")
            elif key == "input_output_alias":
                aliases = self._aliases()
            elif key in ("replica_count", "num_partitions"):
                self.placement.counts[key] = self._count(key)
            elif key == "frontend_attributes":
                self.placement.read_mesh(self)
            elif key in _MODULE_HINTS:
                self.skip_value()
            else:
                raise self.fail(f"'{key}' is not an attribute of modules that hloom knows", at=at)
        return layout, aliases

    def _count(self, key: str) -> int:
        at = self.at
        count = self.integer("a number of devices")
        if not 0 < count < 1 << 20:
            raise self.fail(f"{key} is positive", f"{count}", "write the number of devices", at=at)
        return count

    def _shapes(self) -> list[AnyShape]:
        """Shapes in parentheses."""
        return self.bracketed("(", lambda: parse_shape(self), ")")

    def _result(self) -> AnyShape:
        self.expect("->")
        return parse_shape(self)

    def _check_layout(self, entry: Computation, at: int, parameters: list[AnyShape], result: AnyShape) -> None:
        found = [p.shape for p in entry.parameters]
        if found != parameters or entry.shape is not result:
            raise self.fail(
                "entry_computation_layout does not have the shapes of the entry computation",
                f"({', '.join(map(repr, found))}) -> {entry.shape!r}",
                "leave it out, or repeat the shapes of the parameters and the root",
                at=at,
            )

    def _aliases(self) -> list[tuple[int, tuple[int, ...], int]]:
        """`{ {0}: (1, {}, may-alias) }`: (position in the text, output index, parameter index)."""
        if self.accept("{}"):
            return []
        self.expect("{")
        found = []
        while True:
            at = self.at
            output = read_integers(self)
            self.expect(":")
            self.expect("(")
            parameter = self.integer("the index of a parameter")
            self.expect(",")
            inner = read_integers(self)
            if inner or len(output) > 1:
                raise self.fail(
                    "an alias of a nested tuple is not supported", f"{output}, {inner}", "flatten the tuple", at=at
                )
            if self.accept(",") and self.name("may-alias") not in ("may-alias", "must-alias"):
                self.at -= 1
                raise self.unexpected("may-alias or must-alias")
            self.expect(")")
            found.append((at, output, parameter))
            if not self.accept(","):
                self.expect("}")
                return found

    def _checked_aliases(self, entry: Computation, found) -> dict[int, int]:
        aliases: dict[int, int] = {}
        for at, output, parameter in found:
            if (not output) == isinstance(entry.shape, TupleShape):
                raise self.fail("the output of an alias is {k} for a tuple's element k and {} otherwise", at=at)
            index = output[0] if output else 0
            if index in aliases:
                raise self.fail(f"output {index} is aliased twice", at=at)
            aliases[index] = parameter
        return aliases

    # --- computations ---------------------------------------------------------------------------------------------

    def computation_reference(self) -> Computation:
        at = self.at
        name = self.name("the name of a computation")
        found = self.computations.get(name)
        if found is None:
            raise self.fail(
                f"there is no computation '{name}' above",
                repair=_nearest(name, self.computations) or "define computations before they are called",
                at=at,
            )
        self.depth = max(self.depth, self.depths[id(found)] + 1)
        if self.depth > _DEEPEST_CALLS:
            raise self.fail(f"calls are nested deeper than {_DEEPEST_CALLS}", at=at)
        return found

    def _computation(self) -> Computation:
        at = self.at
        name = self.name("a computation")
        if name in self.computations:
            raise self.fail(f"computation '{name}' is defined twice", repair="give it another name", at=at)
        signature = None
        if self.peek() == "(":
            signature = self._signature(), self._result()
        if self.peek() == "{}":
            raise self.fail("the computation has no instructions", repair="give it a ROOT instruction")
        self.expect("{")
        self.depth = 0
        self.layouts = {}
        values: dict[str, Instruction] = {}
        root = None
        while not self.accept("}"):
            root_at = self.at
            marked = self.accept("ROOT")
            instruction = self._instruction(values)
            if marked and root is not None:
                raise self.fail("there is a second ROOT instruction", f"the first is {root.hint}", at=root_at)
            root = instruction if marked else root
        if not values:
            raise self.fail("the computation has no instructions", repair="give it a ROOT instruction")
        while self.accept(","):
            key_at = self.at
            key = self.name("an attribute")
            self.expect("=")
            if key not in _HINTS and key != "sharding":
                raise self.fail(f"'{key}' is not an attribute of computations that hloom knows", at=key_at)
            self.skip_value()
        instructions = list(values.values())
        # Without ROOT the last instruction is the root, as in XLA.
        computation = Computation(name, self._parameters(instructions, at), instructions, root or instructions[-1])
        if signature is not None:
            self._check_signature(computation, *signature, at)
        self.computations[name] = computation
        self.depths[id(computation)] = self.depth
        return computation

    def _signature(self) -> list[AnyShape]:
        """Reads `(x: f32[2], y: f32[])`."""

        def parameter() -> AnyShape:
            self.name("the name of a parameter")
            self.expect(":")
            return parse_shape(self)

        return self.bracketed("(", parameter, ")")

    def _parameters(self, instructions: list[Instruction], at: int) -> list[Instruction]:
        parameters = sorted((i for i in instructions if i.opcode == "parameter"), key=lambda p: p["index"])
        for index, parameter in enumerate(parameters):
            if parameter["index"] != index:
                problem = f"parameter({index}) is missing" if parameter["index"] > index else "a parameter is twice"
                raise self.fail(
                    f"{problem}, or its index is wrong", f"%{parameter.hint} has {parameter['index']}", at=at
                )
        return parameters

    def _check_signature(self, computation: Computation, parameters, result, at: int) -> None:
        found = [p.shape for p in computation.parameters]
        if found != parameters or computation.shape is not result:
            raise self.fail(
                f"the signature of '{computation.name}' does not have the shapes of its parameters and root",
                f"({', '.join(map(repr, found))}) -> {computation.shape!r}",
                "correct the signature or leave it out",
                at=at,
            )

    # --- instructions ---------------------------------------------------------------------------------------------

    def _instruction(self, values: dict[str, Instruction]) -> Instruction:
        """`%name = shape opcode(operands), attributes`, added to `values`."""
        at = self.at
        name = self.name("an instruction")
        if name in values:
            raise self.fail(f"'{name}' is defined twice", repair="names are unique in a computation", at=at)
        self.expect("=")
        shape_token = self.tokens[self.at]
        shape = self.shape = parse_shape(self)
        token = self.tokens[self.at]
        if "{" in shape_token and shape_token[0] != "(":
            self.layouts[name] = array_shape(shape_token, self.dims)[1]
        if token in SPECIAL:
            return self._special(token, name, shape, values)
        if token[:9] == "constant(":
            opcode = "constant"
        else:
            opcode = token
            self.at += bool(token)
        entry = self.ops.get(opcode)
        if entry is None:
            if not is_name(opcode):
                self.at -= bool(token)
                raise self.unexpected("an opcode")
            if reason := refused(opcode):
                raise self._refused(opcode, *reason)
            raise self.fail(f"'{opcode}' is not an op of hloom", repair=_nearest(opcode, self.ops), at=self.at - 1)
        attributes: dict = {}
        operands: tuple[Instruction, ...] = ()
        inside = POSITIONAL.get(opcode)
        if opcode == "constant":
            attributes[inside] = self.literal()
        else:
            self.expect("(")
            if inside is not None:
                attributes[inside] = read_attribute(entry.attributes[inside], self)
                self.expect(")")
            elif not self.accept(")"):
                operands = self._operands(values)
        self.called: tuple[Computation, ...] = ()
        self.options: dict = {}
        instruction = values[name] = Instruction(entry.name, operands, shape, attributes, name)
        if self.tokens[self.at] == ",":
            self._attributes(entry, instruction)
        target = instruction.attributes.get("custom_call_target")
        if opcode == "custom-call" and is_library_call(target or ""):
            return self._library_call(instruction, values, at)
        if opcode == "custom-call" and target in self.targets:
            instruction.opcode = self.targets[target]
            declared = OPS[instruction.opcode].attributes
            instruction.attributes = {k: v for k, v in instruction.attributes.items() if k in declared}
        return instruction

    def _library_call(self, call: Instruction, values: dict[str, Instruction], at: int) -> Instruction:
        """A LAPACK or XLA custom call as ops, added to `values` under new names."""
        target, name = call.attributes["custom_call_target"], call.hint
        builder = Builder(name)
        builder.source, builder.made_by = call.source, call.made_by
        is_tuple = isinstance(call.shape, TupleShape)
        shapes = call.shape.elements if is_tuple else (call.shape,)
        called = self.called

        def computation(k: int) -> Computation:
            if k >= len(called):
                raise ValueError("it calls a computation")
            return called[k]

        try:
            results = expand(target, Call(builder, call.operands, self.options, shapes, computation))
        except (HloomError, ValueError, KeyError, IndexError) as error:
            problem = error.asked if isinstance(error, HloomError) else str(error)
            raise self.fail(f"{target}: {problem}", f"{call.shape!r}", at=at) from None
        last = builder.tuple(results) if is_tuple else results[0]
        if last.shape is not call.shape:
            raise self.fail(f"{target} gives {last.shape!r}", f"{call.shape!r}", at=at)
        del values[name]
        for k, step in enumerate(builder.instructions):
            step.hint = name if step is last else f"{name}.step{k}"
            while step is not last and step.hint in values:
                step.hint += "_"
            values[step.hint] = step
        values[name] = last
        return last

    def _refused(self, opcode: str, what: str, repair: str) -> UnsupportedError:
        line = self.text.count("\n", 0, self.offset(self.at - 1)) + 1
        return UnsupportedError(f"{opcode}: {what}", f"{self.file}, line {line}", repair, Source(self.file, line, ""))

    def _special(self, opcode: str, name: str, shape: AnyShape, values: dict[str, Instruction]) -> Instruction:
        """An XLA op that is expanded to others of the table; these are added to `values` under new names."""
        at = self.at
        self.at += 1
        self.expect("(")
        operand_at = self.at
        operands = () if self.accept(")") else self._operands(values)
        layouts = [self.layouts.get(o.hint) for o in operands]
        instruction = Instruction(opcode, operands, shape, {}, name)
        if self.tokens[self.at] == ",":
            attributes = {"dimensions": "ints"} if opcode == "get-dimension-size" else {}
            self._attributes(replace(OPS["copy"], name=opcode, attributes=attributes), instruction)
        if not operands or not all(isinstance(s, Shape) for s in (shape, operands[0].shape)):
            raise self.fail(f"{opcode} takes arrays and returns one", at=operand_at)
        try:
            made = SPECIAL[opcode](instruction, layouts[0], self.layouts.get(name))
        except ValueError as error:
            raise self.fail(f"{opcode}: {error}", f"{operands[0].shape!r} to {shape!r}", at=at) from None
        for k, step in enumerate(made[:-1]):
            step.hint = f"{name}.{opcode}{k}"
            while step.hint in values:
                step.hint += "_"
            step.source = instruction.source
            values[step.hint] = step
        last = made[-1]
        last.hint, last.source, last.made_by = name, instruction.source, instruction.made_by
        values[name] = last
        return last

    def _operands(self, values: dict[str, Instruction]) -> tuple[Instruction, ...]:
        operands = []
        tokens = self.tokens
        while True:
            token = tokens[self.at]
            found = values.get(token[1:] if token[:1] == "%" else token)
            if found is None:
                found = self._operand(values)
            else:
                self.at += 1
            operands.append(found)
            token = tokens[self.at]
            if token == ")":
                self.at += 1
                return tuple(operands)
            if token != ",":
                raise self.unexpected("',' or ')'")
            self.at += 1

    def _operand(self, values: dict[str, Instruction]) -> Instruction:
        """An operand with an optional shape, or a missing one."""
        shape, at = None, self.at
        if not is_name(self.peek()):
            shape = parse_shape(self)
        name_at = self.at
        name = self.name("an operand")
        found = values.get(name)
        if found is None:
            raise self.fail(
                f"'{name}' is not defined above in this computation", repair=_nearest(name, values), at=name_at
            )
        if shape is not None and found.shape is not shape:
            raise self.fail(f"'{name}' has another shape", f"{found.shape!r}", "leave the operand's shape out", at=at)
        return found

    def _attributes(self, entry: Op, instruction: Instruction) -> None:
        seen: set[str] = set()
        inside = POSITIONAL.get(entry.name)
        self.device = ""
        while self.accept(","):
            at = self.at
            key = self.name("an attribute")
            if key in seen or key == inside:
                raise self.fail(f"'{key}' is given twice", at=at)
            seen.add(key)
            self.expect("=")
            entry = self._attribute(entry, instruction, key, at)
        if self.device:
            instruction.source = on_device(instruction.source, self.device)
        attributes = instruction.attributes
        if any(key in attributes for key in BRANCHES):
            branches = [attributes.pop(key, None) for key in BRANCHES]
            if None in branches or "branch_computations" in attributes:
                raise self.fail("a conditional has true_computation and false_computation, or branch_computations")
            attributes["branch_computations"] = tuple(branches)

    def _attribute(self, entry: Op, instruction: Instruction, key: str, at: int) -> Op:
        """Parses the value of an attribute with its name at `at`. Returns the op whose attributes follow, which changes
        after the target of a custom call."""
        attributes, declared = instruction.attributes, entry.attributes.get(key)
        defaults = _DEFAULTS.get((entry.name, key), ())
        if key == "frontend_attributes":
            self.device = self._frontend_attributes(entry, attributes)
        elif self.peek() in defaults:
            self.skip_value()
        elif declared is not None and not is_frontend(declared) and not entry.is_custom_call:
            attributes[key] = read_attribute(declared, self)
            if key == "custom_call_target" and attributes[key] in self.targets:
                return OPS[self.targets[attributes[key]]]
        elif defaults:
            value_at = self.at
            if self.skip_value() not in defaults:
                raise self.fail(f"hloom's {entry.name} has {key} {', '.join(defaults)} only", at=value_at)
        else:
            self._attribute_of_all(entry, instruction, key, at)
        return entry

    def _attribute_of_all(self, entry: Op, instruction: Instruction, key: str, at: int) -> None:
        """Parses the value of an attribute that the op does not declare: common to all ops, or HLO-specific."""
        if key == "sharding":
            self.placement.note(self, instruction)
        elif key == "metadata":
            instruction.source, instruction.made_by = parse_metadata(self, self.frames)
        elif key in BRANCHES and entry.name == "conditional":
            instruction.attributes[key] = self.computation_reference()
        elif key == "called_computations" and (entry.name == "custom-call" or entry.is_custom_call):
            self.called = read_computations(self)
            instruction.attributes.update(_computations(entry, self.called))
        elif key in _HINTS:
            config = self.skip_value()
            if key == "backend_config" and entry.name == "custom-call":
                self.options = parse_options(config)
                self.placement.configs[instruction] = config
        else:
            has = ", ".join(entry.attributes) or "none"
            raise self.fail(f"{entry.name} has no attribute '{key}'", f"it has: {has}", at=at)

    def _frontend_attributes(self, entry: Op, attributes: dict) -> str:
        """`{key="value",key={...}}`; undeclared ones are ignored. Returns the device, or ''."""
        device = ""
        if self.accept("{}"):
            return device
        self.expect("{")
        while True:
            at = self.at
            key = self.name("a frontend attribute")
            self.expect("=")
            if key in attributes:
                raise self.fail(f"'{key}' is given twice", at=at)
            declared = entry.attributes.get(key)
            if declared is not None and is_frontend(declared):
                attributes[key] = read_attribute(declared, self)
            elif declared is not None and entry.is_custom_call:
                attributes[key] = self._attribute_in_string(declared)
            elif key == DEVICE and self.peek()[:1] == '"':
                device = self.string()
            else:
                self.skip_value()
            if not self.accept(","):
                self.expect("}")
                return device

    def _attribute_in_string(self, declared: str):
        at = self.at
        try:
            return attribute_of_text(declared, self.string())
        except ParseError:
            raise self.fail(f"expected {kind_of(declared).meaning} in a string", at=at) from None

    def literal(self):
        """The array of a whole `constant(...)` token, with the shape of the current instruction."""
        token = self.tokens[self.at]
        if token[:9] != "constant(" or len(token) < 10:
            raise self.unexpected("constant(...) with its value")
        if not isinstance(self.shape, Shape):
            raise self.fail("a constant is an array", f"{self.shape!r}", "make a tuple of constants")
        try:
            value = parse_literal(token[9:-1], self.shape)
        except LiteralError as error:
            problem, offset, found, repair = error.args
            raise self.fail(problem, found, repair, within=9 + offset) from None
        self.at += 1
        return value
