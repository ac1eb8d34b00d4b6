"""The text of a library: its C source, and the header with its functions by name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hloom._version import __version__
from hloom.compiler.targets.cpu.cross import CrossMachine, symbol
from hloom.errors import ExportError
from hloom.export.functions import TracedFunction, Value
from hloom.export.names import OWN, c_comment, c_string, identifiers, parameters, words
from hloom.export.native_driver import driver_text
from hloom.export.nodes import CONSTANT, DIMENSION, Nodes, Row
from hloom.export.tables import Shared, Tables
from hloom.export.targets import Target, checked_features, processor_name
from hloom.ir.records import field, record
from hloom.ir.sizes.expressions import Comparison, Dim, SizeExpression, dims_of
from hloom.ir.types import HLO_NAME

__all__ = ["Body", "Library", "check_names", "header", "source", "stored_name"]

NATIVE = Path(__file__).with_name("native")
_TEXTS = ("hloom.h", "driver.c", "program.c", "safetensors.c", "threads.c", "words.c")
_CALL = "call_plain"  # of program.c
# By HLO name: the number in hloom.h and the type in C.
_DTYPES = {
    "pred": ("HLOOM_PRED", "uint8_t"), "s8": ("HLOOM_S8", "int8_t"), "s16": ("HLOOM_S16", "int16_t"),
    "s32": ("HLOOM_S32", "int32_t"), "s64": ("HLOOM_S64", "int64_t"), "u8": ("HLOOM_U8", "uint8_t"),
    "u16": ("HLOOM_U16", "uint16_t"), "u32": ("HLOOM_U32", "uint32_t"), "u64": ("HLOOM_U64", "uint64_t"),
    "f16": ("HLOOM_F16", "uint16_t"), "bf16": ("HLOOM_BF16", "uint16_t"), "f32": ("HLOOM_F32", "float"),
    "f64": ("HLOOM_F64", "double"), "c64": ("HLOOM_C64", "float"), "c128": ("HLOOM_C128", "double"),
}  # fmt: skip


@record
class Body:
    """A function with the tables of its plans. facts: requirements on sizes, with the user's text."""

    function: TracedFunction
    plans: list[Tables]
    facts: list[tuple[str, Comparison]] = field(default_factory=list)


@record
class Library:
    """The contents of the text. stored: indices of the constants that are in a file."""

    name: str
    target_name: str
    target: Target
    machine: CrossMachine
    bodies: list[Body]
    state: list[Value]
    shared: Shared
    dimensions: list[Dim]
    stored: list[int]
    weights: str | None


def stored_name(number: int) -> str:
    """The name of a constant in the file of constants."""
    return f"constant_{number}"


def _text(value: str | None) -> str:
    return "0" if value is None else c_string(value)


def _integer(value: int) -> str:
    if value == -(1 << 63):
        return "INT64_MIN"
    return str(value) if -(1 << 31) < value < 1 << 31 else f"INT64_C({value})"


def _array(kind: str, name: str, items: Sequence[str]) -> str:
    """A constant array; never empty, as C does not allow that."""
    lines, line = [], ""
    for item in items or ["0"]:
        if len(line) + len(item) > 110:
            lines.append(line)
            line = ""
        line += item + ", "
    return f"static const {kind} {name}[] = {{\n  " + "\n  ".join([*lines, line.rstrip(", ")]) + "};"


class _Source:
    def __init__(self, library: Library):
        self.library = library
        self.lines: list[str] = []
        self.dimensions = {dim.name: k for k, dim in enumerate(library.dimensions)}

    def values(self, name: str, values: Sequence[Value]) -> str:
        """Defines an array of hloom_value; its name."""
        rows = []
        for k, value in enumerate(values):
            sizes = [-1 if isinstance(e, SizeExpression) else int(e) for e in value.extents]
            shape = extents = "0"
            if sizes:
                shape, extents = f"{name}_shape_{k}", f"{name}_extents_{k}"
                self.lines.append(_array("int64_t", shape, [_integer(size) for size in sizes]))
                texts = [_text(str(e)) for e in value.extents]
                self.lines.append(_array("char *const", extents, texts))
            count = int(np.prod(sizes, dtype=object)) * value.dtype.itemsize if -1 not in sizes else -1
            kind = _DTYPES[HLO_NAME[value.dtype]][0]
            rows.append(f"{{{_text(value.name)}, {kind}, {len(sizes)}, {shape}, {extents}, {_integer(count)}}}")
        self.lines.append(_array("hloom_value", name, rows or ["{0}"]))
        return name

    def body(self, number: int, body: Body) -> tuple[str, str, int]:
        """Defines a function; its entries in FUNCTIONS and BODIES, and how many nodes its shapes have."""
        function, prefix = body.function, f"f{number}"
        nodes = Nodes(self.dimensions)
        inputs, outputs = (
            [str(nodes.number(e)) for value in values for e in value.extents]
            for values in (function.inputs, function.outputs)
        )
        facts = [str(nodes.guard(fact)) for _, fact in body.facts]
        self.lines += [
            _array("node_type", f"{prefix}_shapes", [_row(row) for row in nodes.table] or ["{0}"]),
            _array("int32_t", f"{prefix}_input_nodes", inputs),
            _array("int32_t", f"{prefix}_output_nodes", outputs),
            _array("int32_t", f"{prefix}_facts", facts),
            _array("char *const", f"{prefix}_fact_texts", [_text(text) for text, _ in body.facts]),
        ]
        kinds = {"input": 0, "output": 1, "state": 2, "next": 3}
        kept = set(function.kept)
        slots = [f"{{{kinds[kind]}, {k}}}" for kind, k in function.parameter_slots]
        parameters = len(slots)
        # A part that is computed in place keeps its memory.
        slots += [f"{{{2 if kind == 'next' and k in kept else kinds[kind]}, {k}}}" for kind, k in function.result_slots]
        self.lines.append(_array("slot_type", f"{prefix}_slots", slots or ["{0}"]))
        plans = [self.plan(f"{prefix}_p{k}", tables) for k, tables in enumerate(body.plans)]
        self.lines.append(_array("plan_type", f"{prefix}_plans", plans))
        used = sum(1 << k for k in _dimensions_of(self.library, body))
        values = self.values(f"{prefix}_inputs", function.inputs), self.values(f"{prefix}_outputs", function.outputs)
        counts = f"{len(function.inputs)}, {len(function.outputs)}"
        flags = f"{int(function.reads_state)}, {int(function.request.updates)}"
        entry = f"{{{_text(function.request.name)}, {values[0]}, {values[1]}, {counts}, {flags}}}"
        numbers = f"{len(plans)}, {len(slots)}, {parameters}, {len(nodes.values)}, {len(facts)}, {used}"
        tables = ("plans", "slots", "shapes", "input_nodes", "output_nodes", "facts", "fact_texts")
        names = ", ".join(f"{prefix}_{n}" for n in tables)
        return entry, f"{{{names}, {numbers}}}", len(nodes.values)

    def plan(self, name: str, tables: Tables) -> str:
        nodes = tables.nodes
        uses = [f"{{{kind}, {index}, {node}}}" for kind, index, node in tables.uses]
        holds = [str(node) for node in tables.guards]
        rows = ["{" + ", ".join(map(_integer, row)) + "}" for row in tables.rows]
        self.lines += [
            _array("int64_t", f"{name}_words", [_integer(word) for word in tables.words]),
            _array(
                "fix_type", f"{name}_fixes", [f"{{{p}, {k}, {_integer(n)}}}" for p, k, n in tables.fixes] or ["{0}"]
            ),
            f"static const int64_t {name}_rows[][8] = {{\n  " + ",\n  ".join(rows or ["{0}"]) + "};",
            _array("node_type", f"{name}_nodes", [_row(row) for row in nodes.table] or ["{0}"]),
            _array("int32_t", f"{name}_guards", holds),
            _array("use_type", f"{name}_uses", uses or ["{0}"]),
        ]
        counts = [len(tables.words), len(tables.fixes), len(tables.rows), len(nodes.values)]
        more = tables.guard_nodes, len(holds), len(uses)
        return (
            f"{{{name}_words, {name}_fixes, {name}_rows, {_integer(tables.arena_bytes)}, {name}_nodes, {name}_guards, "
            f"{name}_uses, {', '.join(map(str, (*counts, *more)))}}}"
        )


def _row(row: Row) -> str:
    return f"{{{row[0]}, {_integer(row[1])}, {_integer(row[2])}}}"


def source(library: Library) -> str:
    """The C source of a library, which needs hloom.h and the objects of its kernels and constants."""
    name, shared = library.name, library.shared
    made = _Source(library)
    head = [
        f"/* {name}: exported by hloom {__version__} for {c_comment(library.target_name)}. */",
        "#define _GNU_SOURCE\n#define _FILE_OFFSET_BITS 64",
        "#include <errno.h>\n#include <stdarg.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>",
        "#include <string.h>",
        f'#include "{name}.h"',
        (NATIVE / "words.c").read_text(),
        driver_text(),
        (NATIVE / "threads.c").read_text(),
    ]
    kernels = [symbol(kernel, library.machine) for kernel in shared.kernels]
    head += [f"extern void {kernel}(void *words, int64_t low, int64_t high);" for kernel in kernels]
    head.append(_array("kernel_type", "KERNELS", kernels))
    embedded = [k not in library.stored for k in range(len(shared.constants))]
    head += [f"extern const unsigned char {name}_constant_{k}[];" for k, here in enumerate(embedded) if here]
    constants = [f"{name}_constant_{k}" if here else "0" for k, here in enumerate(embedded)]
    functions, bodies, most_shapes = [], [], 1
    for k, body in enumerate(library.bodies):
        entry, code, shapes = made.body(k, body)
        functions.append(entry)
        bodies.append(code)
        most_shapes = max(most_shapes, shapes)
    state = made.values("STATE", library.state)
    stored = [
        Value(stored_name(k), shared.constants[k].dtype, shared.constants[k].shape) for k in library.stored
    ]  # fmt: skip
    made.values("STORED", stored)
    counts = {
        "FUNCTION_COUNT": len(library.bodies), "CONSTANT_COUNT": len(shared.constants),
        "STATE_COUNT": len(library.state), "STORED_COUNT": len(library.stored),
        "DIMENSION_COUNT": len(library.dimensions),
        "MOST_SHAPES": most_shapes,
        "MOST_VALUES": max([1, *(max(len(b.function.inputs), len(b.function.outputs)) for b in library.bodies)]),
    }  # fmt: skip
    defines = [f"enum {{ {', '.join(f'{key} = {value}' for key, value in counts.items())} }};"]
    defines.append(f"#define LIBRARY_NAME {_text(name)}")
    defines.append(f"enum {{ NODE_CONSTANT = {CONSTANT}, NODE_DIMENSION = {DIMENSION} }};")
    features = [
        f"{{{_text(feature)}, {', '.join(map(str, where + (0,) * (5 - len(where))))}}}"
        if len(where) == 5
        else f"{{{_text(feature)}, {where[0]}, 0, 0, {where[1]}, 0}}"
        for feature, where in checked_features(library.target, library.machine)
    ]
    dimensions = [f"{{{_text(d.name)}, {_integer(d.min)}, {_integer(d.most)}}}" for d in library.dimensions]
    driver = (NATIVE / "driver.c").read_text()
    types, code = driver.split("typedef struct frame {", 1)
    tables = [
        "typedef struct { const char *name; unsigned leaf, subleaf, reg, bit, saved; } feature_type;",
        _array("feature_type", "FEATURES", [*features, "{0}"]),
        _array("hloom_dimension", "DIMENSIONS", dimensions or ["{0}"]),
        _array("int64_t", "MULTIPLES", [str(d.multiple_of) for d in library.dimensions]),
        *made.lines,
        _array("hloom_function", "FUNCTIONS", functions),
        _array("body_type", "BODIES", bodies),
        _array("unsigned char *const", "CONSTANTS", constants),
        _array("int32_t", "STORED_NUMBERS", [str(k) for k in library.stored]),
        "static const hloom_library LIBRARY;",
    ]
    parts = [*head, *defines, types, *tables, "typedef struct frame {" + code]
    parts += [(NATIVE / file).read_text() for file in ("safetensors.c", "program.c")]
    parts += [_entries(library, state), *[_plain(library, k, body) for k, body in enumerate(library.bodies)]]
    return "\n".join(parts) + "\n"


def _trees(library: Library) -> str:
    functions = {
        body.function.request.name: {
            "arguments": dict(zip(body.function.argument_names, body.function.argument_tree, strict=True)),
            "result": body.function.result_tree,
        }
        for body in library.bodies
    }
    return json.dumps(functions, separators=(",", ":"))


def _entries(library: Library, state: str) -> str:
    name = library.name
    fields = [
        "HLOOM_ABI", _text(name), _text(__version__), _text(library.target_name),
        _text(processor_name(library.machine)),
        "FUNCTIONS", "FUNCTION_COUNT", state, "STATE_COUNT", "DIMENSIONS", "DIMENSION_COUNT", _text(library.weights),
        _text(_trees(library)), "create", "destroy", "run", "output_shape", "read_state", "write_state", "save_state",
        "load_state", "last_error",
    ]  # fmt: skip
    return "\n".join(
        [
            f"static const hloom_library LIBRARY = {{{', '.join(fields)}}};",
            f"HLOOM_EXPORT const hloom_library *{name}_library(void) {{ return &LIBRARY; }}",
            "#ifdef HLOOM_SHARED",
            "HLOOM_EXPORT const hloom_library *hloom_get_library(void) { return &LIBRARY; }",
            "#endif",
            f"HLOOM_EXPORT hloom_status {name}_create(const hloom_options *options, hloom_program **program) {{",
            "  return create(options, program);\n}",
            f"HLOOM_EXPORT void {name}_destroy(hloom_program *program) {{ destroy(program); }}",
            f"HLOOM_EXPORT const char *{name}_error(void) {{ return message; }}",
            f"HLOOM_EXPORT hloom_status {name}_save_state(hloom_program *program, const char *path) {{",
            "  return save_state(program, path);\n}",
            f"HLOOM_EXPORT hloom_status {name}_load_state(hloom_program *program, const char *path) {{",
            "  return load_state(program, path);\n}",
        ]
    )


def _dimensions_of(library: Library, body: Body) -> list[int]:
    extents = [e for v in (*body.function.inputs, *body.function.outputs) for e in v.extents]
    used = {name for e in extents for name in dims_of(e)}
    return [k for k, dim in enumerate(library.dimensions) if dim.name in used]


def _parameters(library: Library, body: Body) -> tuple[list[str], list[str], list[str]]:
    """The C names of sizes, inputs and outputs of a function, each once."""
    function, sizes = body.function, [library.dimensions[k].name for k in _dimensions_of(library, body)]
    names = parameters([*sizes, *(v.name for v in (*function.inputs, *function.outputs))], [_CALL])
    first, second = len(sizes), len(sizes) + len(function.inputs)
    return names[:first], names[first:second], names[second:]


def _signature(library: Library, body: Body) -> str:
    function, (sizes, inputs, outputs) = body.function, _parameters(library, body)
    texts = ["hloom_program *program", *(f"int64_t {name}" for name in sizes)]
    pairs = zip(inputs, function.inputs, strict=True)
    texts += [f"const {_DTYPES[HLO_NAME[v.dtype]][1]} *{name}" for name, v in pairs]
    texts += [f"{_DTYPES[HLO_NAME[v.dtype]][1]} *{n}" for n, v in zip(outputs, function.outputs, strict=True)]
    return f"hloom_status {library.name}_{function.request.name}({', '.join(texts)})"


def _plain(library: Library, number: int, body: Body) -> str:
    names, inputs, outputs = _parameters(library, body)
    sizes = ["0"] * 8
    for k, name in zip(_dimensions_of(library, body), names, strict=True):
        sizes[k] = name
    return (
        f"HLOOM_EXPORT {_signature(library, body)} {{\n"
        f"  const int64_t sizes_[] = {{{', '.join(sizes)}}};\n"
        f"  const void *inputs_[] = {{{', '.join(inputs) or '0'}}};\n"
        f"  void *outputs_[] = {{{', '.join(outputs) or '0'}}};\n"
        f"  return {_CALL}(program, {number}, sizes_, inputs_, outputs_);\n}}"
    )


def _macros(library: Library) -> list[str]:
    """The macros of a header with the indices of the parts of the state, and of the functions."""
    name = library.name.upper()
    state = [f"{name}_STATE_{part.name.upper()}" for part in library.state]
    return identifiers([*state, *(f"{name}_{body.function.request.name.upper()}" for body in library.bodies)])


def check_names(library: Library) -> None:
    """Raises ExportError if a name that the library defines is one that its driver uses."""
    own = [f"{library.name}_{name}" for name in (*OWN, *(body.function.request.name for body in library.bodies))]
    used = words(driver_text() + "".join((NATIVE / file).read_text() for file in _TEXTS))
    if found := [name for name in (*own, *_macros(library)) if name in used]:
        raise ExportError(
            f"export: the library {library.name!r} defines {found[0]!r}",
            "the code that runs exported programs has a function or macro of this name",
            "pass another name for the library: hl.export(f, ..., name='model')",
        )


def _shown(value: Value) -> str:
    return c_comment(f"{HLO_NAME[value.dtype]}[{', '.join(str(e) for e in value.extents)}]")


def header(library: Library) -> str:
    """The header of a library: its functions with typed arguments."""
    name = library.name
    guard = f"{name.upper()}_H"
    lines = [
        f"/* {name}: exported by hloom {__version__} for {c_comment(library.target_name)}, "
        f"{c_comment(library.machine.cpu)}.",
        "   Arrays are contiguous and row-major; functions answer HLOOM_OK or an error, see hloom.h. */",
        f"#ifndef {guard}\n#define {guard}\n",
        '#include "hloom.h"\n',
        '#ifdef __cplusplus\nextern "C" {\n#endif\n',
        "#ifndef HLOOM_EXPORT\n#if defined(_WIN32) && defined(HLOOM_SHARED)",
        "#define HLOOM_EXPORT __declspec(dllexport)",
        '#else\n#define HLOOM_EXPORT __attribute__((visibility("default")))\n#endif\n#endif\n',
    ]
    for dim in library.dimensions:
        multiple = f", a multiple of {dim.multiple_of}" * (dim.multiple_of > 1)
        lines.append(f"/* {dim.name}: {dim.min} to {dim.most}{multiple} */")
    macros = _macros(library)
    for position, part in enumerate(library.state):
        lines.append(f"#define {macros[position]} {position} /* {part.name}: {_shown(part)} */")
    lines += [
        "",
        "/* A program of this library; options may be null. */",
        f"HLOOM_EXPORT hloom_status {name}_create(const hloom_options *options, hloom_program **program);",
        f"HLOOM_EXPORT void {name}_destroy(hloom_program *program);",
        "/* What the last error of this thread was. */",
        f"HLOOM_EXPORT const char *{name}_error(void);",
        "/* Everything else: what the library contains, calls with arrays of any function. */",
        f"HLOOM_EXPORT const hloom_library *{name}_library(void);",
    ]
    if library.state:
        lines += [
            "/* The state as a safetensors file. */",
            f"HLOOM_EXPORT hloom_status {name}_save_state(hloom_program *program, const char *path);",
            f"HLOOM_EXPORT hloom_status {name}_load_state(hloom_program *program, const char *path);",
        ]
    for number, (body, macro) in enumerate(zip(library.bodies, macros[len(library.state) :], strict=True)):
        function = body.function
        lines.append("")
        lines.append(f"#define {macro} {number}")
        what = ["reads the state"] * function.reads_state + ["updates the state"] * function.request.updates
        lines.append(f"/* {function.request.name}{': ' + ', '.join(what) if what else ''}")
        lines += [f"   {v.name}: {_shown(v)}" for v in function.inputs]
        lines += [f"   -> {v.name}: {_shown(v)}" for v in function.outputs]
        lines[-1] += " */"
        lines.append(f"HLOOM_EXPORT {_signature(library, body)};")
    lines += ["", "#ifdef __cplusplus\n}\n#endif\n#endif\n"]
    return "\n".join(lines)
