"""From a module of hloom's IR to the syntax tree of a StableHLO program.

Tuples are flattened: a function takes and returns their elements. Ops that StableHLO lacks become CHLO ops, or custom
calls with their name in HLO text. A scan becomes a loop.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from hloom.ir.errors import UnsupportedError
from hloom.ir.module import Computation, Instruction, Module
from hloom.ir.op_table import OPS
from hloom.ir.sizes.expressions import SizeExpression
from hloom.ir.sizes.terms import Terms
from hloom.ir.spmd.sharding import DeviceMesh
from hloom.ir.spmd.shardy import mesh_text, meshes_of, sharding_text, shardings_text
from hloom.ir.stablehlo.assembly.attributes import Array, Dense, Dialect, Number
from hloom.ir.stablehlo.syntax import Block, Operation, Program, Region
from hloom.ir.stablehlo.types import Function, Tensor, shape_type
from hloom.ir.stablehlo.writer.open_sizes import Sizes, in_open_form, is_open
from hloom.ir.text.attributes import text_of_attribute
from hloom.ir.types import COMPLEX, FLOATS, PRED, Shape, TupleShape

EMITTERS: dict[str, Callable] = {}
Names = str | list  # of an array, or of each element of a tuple


def emits(*opcodes: str):
    """Registers `function(body, instruction, names of the operands) -> names of the result` for opcodes."""

    def register(function):
        for opcode in opcodes:
            EMITTERS[opcode] = function
        return function

    return register


def to_program(module: Module) -> Program:
    """The syntax tree of a module: its entry is the public function @main, called computations are private functions.

    Ops that StableHLO lacks are first expanded by the passes `EXPORT["stablehlo"]` of `hloom.compiler.pipeline`.
    """
    return _Emitter(module).program()


def types_of(shape) -> tuple[Tensor, ...]:
    """The types of a value: one for an array, the elements' for a tuple."""
    if isinstance(shape, TupleShape):
        return tuple(t for element in shape.elements for t in types_of(element))
    return (shape_type(shape),)


def flat(names: Names) -> list[str]:
    return [names] if isinstance(names, str) else [n for element in names for n in flat(element)]


def nested(shape, names) -> Names:
    """The names, taken from an iterator, in the structure of a shape."""
    if isinstance(shape, TupleShape):
        return [nested(element, names) for element in shape.elements]
    return next(names)


class _Emitter:
    def __init__(self, module: Module):
        self.module = module
        self.functions: dict[int, str] = {}
        self.names: set[str] = {"main"}
        self.operations: list[Operation] = []
        self.meshes: dict[DeviceMesh, str] = {}
        self.sizes: Sizes | None = None  # if some are dynamic
        for mesh in meshes_of(module):
            self.meshes[mesh] = f"mesh_{len(self.meshes)}" if self.meshes else "mesh"

    def program(self) -> Program:
        called: list[Operation] = []
        is_closed = not is_open(self.module.entry)
        for computation in self.module.computations() if is_closed else ():
            if id(computation) in self._called() and computation is not self.module.entry:
                called.append(self.function(computation, self.name(computation), "private"))
        entry = self.function(self.module.entry, "main", "public")
        name = re.sub(r"[^A-Za-z0-9_$.]", "_", self.module.name)
        counts = {"mhlo.num_partitions": self.module.partitions, "mhlo.num_replicas": self.module.replicas}
        several = self.module.partitions * self.module.replicas > 1
        attributes = {key: Number(str(count), "i32") for key, count in counts.items()} if several else {}
        meshes = [
            Operation("sdy.mesh", attributes={"sym_name": n, "mesh": Dialect("sdy.mesh", None, mesh_text(m))})
            for m, n in self.meshes.items()
        ]
        name = name if name[:1].isalpha() or name[:1] == "_" else f"_{name}"
        return Program(name, attributes, [*meshes, entry, *called])

    def _called(self) -> set[int]:
        found = set()
        for instruction in self.module.instructions():
            if instruction.opcode in ("call", "fusion"):
                found.add(id(instruction.attributes.get("to_apply") or instruction["calls"]))
        return found

    def name(self, computation: Computation) -> str:
        """The function's name, unique in the module."""
        known = self.functions.get(id(computation))
        if known is None:
            base = re.sub(r"[^A-Za-z0-9_$.]", "_", computation.name) or "function"
            known, number = base, 0
            while known in self.names:
                number += 1
                known = f"{base}_{number}"
            self.names.add(known)
            self.functions[id(computation)] = known
        return known

    def function(self, computation: Computation, name: str, visibility: str) -> Operation:
        body = Body(self)
        arguments: list[tuple[str, object]] = []
        for parameter in computation.parameters:
            names = []
            for type_ in types_of(parameter.shape):
                names.append(f"%arg{len(arguments)}")
                arguments.append((names[-1], type_))
            body.values[parameter] = nested(parameter.shape, iter(names))
        if is_open(computation):
            self.sizes = Sizes(body, computation, body.values.__getitem__)
        results = body.run(computation)
        types = types_of(computation.shape)
        body.operations.append(Operation("func.return", [], flat(results), operand_types=types))
        attributes = {
            "sym_visibility": visibility,
            "sym_name": name,
            "function_type": Function(tuple(t for _, t in arguments), types),
        }
        for key, given in (("arg_attrs", [(p.shape, p.sharding) for p in computation.parameters]),
                           ("res_attrs", [(computation.shape, computation.root.sharding)])):  # fmt: skip
            stated = tuple(self.stated(s) for shape, sharding in given for s in leaf_shardings(shape, sharding))
            if any(stated) and (key == "arg_attrs" or name == "main"):
                attributes[key] = stated
        return Operation("func.func", [], [], attributes, [Region([Block("", arguments, body.operations)])])

    def stated(self, sharding) -> dict:
        """The attributes of an argument or result."""
        if sharding is None:
            return {}
        return {"sdy.sharding": Dialect("sdy.sharding", None, sharding_text(sharding, self.meshes)[1:-1])}


def leaf_shardings(shape, sharding) -> list:
    """For each array of a shape its sharding, or None."""
    if isinstance(shape, TupleShape):
        given = sharding if isinstance(sharding, tuple) else (None,) * len(shape.elements)
        return [s for element, own in zip(shape.elements, given, strict=True) for s in leaf_shardings(element, own)]
    return [sharding]


class Body:
    """The operations of a function or of a region."""

    def __init__(self, emitter: _Emitter, outer: Body | None = None):
        self.emitter = emitter
        self.operations: list[Operation] = []
        self.values: dict[Instruction, Names] = {}
        self.counters: dict[str, int] = outer.counters if outer else {"": 0}
        self.size_names: dict[Terms, str] = dict(outer.size_names) if outer else {}  # names of sizes

    def run(self, computation: Computation) -> Names:
        """Emits a computation's instructions, given names of its parameters; returns the names of its root's value."""
        for instruction in computation.instructions:
            if instruction not in self.values:
                operands = [self.values[o] for o in instruction.operands]
                names = self.values[instruction] = self.instruction(instruction, operands)
                if instruction.sharding is not None:
                    self._annotate(instruction, flat(names))
        return self.values[computation.root]

    def _annotate(self, instruction: Instruction, names: list[str]) -> None:
        """Adds the sharding of an instruction to its operation."""
        last = self.operations[-1] if self.operations else None
        given = leaf_shardings(instruction.shape, instruction.sharding)
        if last is not None and last.result_names() == names and None not in given:
            text = shardings_text(given, self.emitter.meshes)
            last.attributes["sdy.sharding"] = Dialect("sdy.sharding_per_value", None, text)

    def instruction(self, instruction: Instruction, operands: list[Names]) -> Names:
        if self.emitter.sizes is not None:
            try:
                found = in_open_form(self, instruction, operands)
                if found is not None:
                    return found
                return EMITTERS.get(instruction.opcode, _by_table)(self, instruction, operands)
            except UnsupportedError as error:
                error.source = instruction.source or error.source
                raise
        return EMITTERS.get(instruction.opcode, _by_table)(self, instruction, operands)

    def inlined(self, computation: Computation, operands: list[Names]) -> Names:
        """Inlines a computation's instructions for operands."""
        inner = Body(self.emitter, self)
        inner.operations, inner.size_names = self.operations, self.size_names
        inner.values = dict(zip(computation.parameters, operands, strict=True))
        return inner.run(computation)

    def gather_numbers(self, instruction: Instruction) -> Dialect:
        return place_numbers("stablehlo.gather", instruction.attributes, GATHERED)

    def type_of(self, shape: Shape) -> Tensor:
        return shape_type(shape)

    def fresh(self, lead: str = "") -> str:
        """An unused name: %0, %1, ... or %cst, %cst_0, ..."""
        number = self.counters.get(lead, -1 if lead else 0)
        self.counters[lead] = number + 1
        if not lead:
            return f"%{number}"
        return f"%{lead}" if number < 0 else f"%{lead}_{number}"

    def add(
        self, name: str, operands: list[str], types, results, attributes=None, regions=(), lead: str = ""
    ) -> list[str]:
        """Appends an operation; the names of its results."""
        results = tuple(results)
        names = []
        pairs = []
        if len(results) == 1:
            names.append(self.fresh(lead))
            pairs = [(names[0], 1)]
        elif results:
            base = self.fresh(lead)
            names = [f"{base}#{k}" for k in range(len(results))]
            pairs = [(base, len(results))]
        self.operations.append(Operation(name, pairs, operands, attributes or {}, list(regions), tuple(types), results))
        return names

    def simple(self, name: str, instruction: Instruction, operands: list[Names], regions=(), **attributes) -> Names:
        """An operation with the instruction's operands and results."""
        types = [t for o in instruction.operands for t in types_of(o.shape)]
        names = [n for o in operands for n in flat(o)]
        found = self.add(name, names, types, types_of(instruction.shape), attributes, regions)
        return nested(instruction.shape, iter(found))

    def region(self, computation: Computation, arguments: list[Names] | None = None) -> Region:
        """A region with the computation's body. arguments: names from outside for its parameters; by default they are
        arguments of the region."""
        inner = Body(self.emitter, self)
        own: list[tuple[str, object]] = []
        for k, parameter in enumerate(computation.parameters):
            if arguments is not None:
                inner.values[parameter] = arguments[k]
                continue
            names = []
            for type_ in types_of(parameter.shape):
                names.append(inner.fresh("arg_"))
                own.append((names[-1], type_))
            inner.values[parameter] = nested(parameter.shape, iter(names))
        results = inner.run(computation)
        inner.operations.append(
            Operation("stablehlo.return", [], flat(results), operand_types=types_of(computation.shape))
        )
        return Region([Block("", own, inner.operations)])


def _by_table(body, instruction, operands):
    """An op without a specific emitter: in StableHLO's or CHLO's syntax, otherwise as the custom call of HLO text.

    The attributes of a custom call are in the dictionary `hloom.attributes`.
    """
    opcode, entry = instruction.opcode, OPS[instruction.opcode]
    known = entry.dialects.split()
    for dialect in ("stablehlo", "chlo"):
        if dialect in known:
            return body.simple(f"{dialect}.{opcode.replace('-', '_')}", instruction, operands)
    if not entry.is_custom_call or instruction.called():
        raise UnsupportedError(
            f"{opcode} cannot be written as StableHLO", f"{instruction!r}", "print it as HLO text", instruction.source
        )
    config: dict[str, object] = {}
    for key, value in instruction.attributes.items():
        kind = entry.attributes[key].removesuffix("?")
        if isinstance(value, (bool, str)):
            config[key] = value
        elif isinstance(value, (int, np.integer)):
            config[key] = integer(value)
        elif kind == "ints":
            config[key] = integers(value)
        elif kind != "hidden":
            config[key] = text_of_attribute(kind, value)
    attributes = {"hloom.attributes": config} if config else {}
    return body.simple("stablehlo.custom_call", instruction, operands, call_target_name=entry.text, **attributes)


# --- attributes ---------------------------------------------------------------------------------------------------


def integers(values) -> Array:
    return Array("i64", tuple(fixed(v) for v in values))


def fixed(value) -> int:
    """A numeric attribute. Raises UnsupportedError for a dynamic size."""
    if isinstance(value, SizeExpression):
        raise UnsupportedError(
            f"the size {value} in StableHLO text", "it occurs in an attribute, which can only contain numbers",
            "print it as HLO text, or for arrays of given sizes",
        )  # fmt: skip
    return int(value)


def integer(value) -> Number:
    return Number(str(fixed(value)), "i64")


def numbers(values) -> tuple[Number, ...]:
    return tuple(Number(str(fixed(v))) for v in values)


GATHERED = "offset_dims collapsed_slice_dims operand_batching_dims start_indices_batching_dims start_index_map"


def place_numbers(kind: str, attributes, names: str) -> Dialect:
    """The non-empty dimension numbers of a gather or scatter, and the index vector dimension."""
    fields = {name: numbers(attributes[name]) for name in names.split() if attributes.get(name)}
    return Dialect(kind, {**fields, "index_vector_dim": Number(str(attributes["index_vector_dim"]))})


def enumeration(name: str, value: str) -> Dialect:
    return Dialect("stablehlo", None, f"{name} {value}")


def dense(value: np.ndarray) -> Dense:
    """The constant of an array: a splat if all elements have the same bits, lists for small, bytes for large arrays."""
    shape = Shape(value.dtype, value.shape)
    type_ = shape_type(shape)
    plain = np.ascontiguousarray(value).reshape(-1)
    if plain.size == 0:
        return Dense("", type_)
    raw = plain.view(np.uint8).reshape(plain.size, -1)
    if plain.size > 1 and (raw == raw[0]).all():
        return Dense(_texts(plain[:1])[0], type_)
    if plain.size > 64:
        return Dense(f'"0x{plain.tobytes().hex().upper()}"', type_)
    texts = _texts(plain)
    if value.ndim == 0:
        return Dense(texts[0], type_)
    for size in reversed(value.shape):
        texts = [f"[{', '.join(texts[k : k + size])}]" for k in range(0, len(texts), size)]
    return Dense(texts[0], type_)


def _texts(flat_array: np.ndarray) -> list[str]:
    dtype = flat_array.dtype
    if dtype == PRED:
        return ["true" if v else "false" for v in flat_array.tolist()]
    if dtype in COMPLEX:
        parts = _texts(flat_array.view(flat_array.real.dtype))
        return [f"({re_}, {im})" for re_, im in zip(parts[::2], parts[1::2], strict=True)]
    if dtype in FLOATS:
        return [_float_text(v) for v in flat_array]
    return [str(int(v)) for v in flat_array]


def _float_text(value) -> str:
    """Six decimals if sufficient, as in MLIR, otherwise more; bits for non-finite values."""
    wide = float(value)
    if not np.isfinite(wide):
        size = value.dtype.itemsize
        return f"0x{int(value.view(f'u{size}')):0{2 * size}X}"
    text = f"{wide:.6e}"
    if float(np.asarray(float(text)).astype(value.dtype)) == wide:
        return text
    if value.dtype.itemsize == 4:
        text = np.format_float_scientific(np.float32(value), unique=True, trim="0", exp_digits=2)
    else:
        text = np.format_float_scientific(wide, unique=True, trim="0", exp_digits=2)
    return text


__all__ = [
    "GATHERED", "Body", "dense", "emits", "enumeration", "fixed", "flat", "integer", "integers",
    "nested", "place_numbers", "to_program",
]  # fmt: skip
