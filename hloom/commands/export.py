"""Writes a library with a C header that computes a program without Python.

The program is HLO or StableHLO text, an ONNX model, a program of hl.sessions, or a function of a Python file,
`model.py:predict`, whose arguments are given by their dtypes and shapes. Of a program of hl.sessions each --fetch is a
function, and the variables are the library's state.

Examples:
    hloom export layer.hlo --folder build
    hloom export layer.hlo --target aarch64-linux --kind static
    hloom export model.py:predict f32[32,784] --weights file --folder build
    hloom export model.py:predict f32[batch:1:4096,784] --name model
    hloom export mlp.hloom x=f32[100,32] y=f32[100,8] --fetch train=train,cost --fetch predict=out

"""

from __future__ import annotations

import argparse
import inspect
import keyword
import re
import runpy
from pathlib import Path
from typing import Any

from hloom import onnx
from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.dispatch.from_text import from_hlo, from_stablehlo
from hloom.errors import ArgumentError, MissingFileError, file_error
from hloom.export.build import export
from hloom.export.names import identifier, identifiers
from hloom.export.targets import TARGETS
from hloom.export.toolchain import KINDS
from hloom.ir.sizes.expressions import Dim
from hloom.ir.types import DTYPES
from hloom.sessions.files import Saved, load
from hloom.sessions.text import MAGIC


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", help="a .hlo, .mlir, .onnx, .hloom or .txt file, or FILE.py:FUNCTION")
    parser.add_argument(
        "arguments", nargs="*", metavar="[NAME=]DTYPE[SIZES]",
        help="of a Python function: f32[batch:1:64,3]; of a program of hl.sessions the feeds: x=f32[100,32]",
    )  # fmt: skip
    parser.add_argument(
        "--fetch", action="append", default=[], metavar="FUNCTION=NAME,..",
        help="of a program of hl.sessions: a function, and what it fetches; one name alone is both",
    )  # fmt: skip
    parser.add_argument("--folder", default=".", help="where the files go")
    parser.add_argument("--name", help="of the library")
    parser.add_argument("--target", choices=sorted(TARGETS), help="another machine than this one")
    parser.add_argument("--features", help="of the processor: x86-64-v4, or LLVM's switches, +dotprod")
    parser.add_argument("--kind", choices=KINDS, default="shared", help="of the library")
    parser.add_argument(
        "--weights", choices=("embedded", "file"), default="embedded", help="where constants go: a safetensors file"
    )
    parser.add_argument("--compiler", help="the C compiler, in place of cc or zig")


def run(options: argparse.Namespace) -> int:
    function, examples, name = _program(options.program, options.arguments)
    named: dict[str, Any] = {}
    if isinstance(function, Saved):
        named, examples = {"fetches": _fetches(options.fetch), "feeds": _feeds(examples)}, []
    elif options.fetch:
        raise ArgumentError(f"export of {options.program}", "--fetch", "it is for programs of hl.sessions only")
    else:
        examples = [_shape(one) if isinstance(one, str) else one for one in examples]
    made = export(
        function,
        *examples,
        **named,
        folder=options.folder,
        name=options.name or name,
        target=options.target,
        features=options.features,
        kind=options.kind,
        weights=options.weights,
        compiler=options.compiler,
    )
    for file in (made.path, made.header, made.weights):
        if file is not None:
            print(f"{file}  {file.stat().st_size:,} bytes")
    return 0


def _fetches(texts: list[str]) -> dict[str, list[str]]:
    """What each function fetches."""
    parts = [text.partition("=") for text in texts]
    return {identifier(name): (found or name).split(",") for name, _, found in parts}


def _feeds(texts: list[str]) -> dict[str, ShapeDtypeStruct]:
    """The feeds by name. Raises ArgumentError for one without a name."""
    parts = [text.partition("=") for text in texts]
    if unnamed := next((name for name, equals, _ in parts if not equals), None):
        raise ArgumentError(f"the feed {unnamed!r}", "it has no name", f"write x={unnamed}")
    return {name: _shape(shape) for name, _, shape in parts}


def _program(text: str, shapes: list[str]) -> tuple[Any, list[Any], str]:
    """The function or the saved program, its arguments, and a name."""
    file, _, function = text.partition(".py:")
    if function:
        found = runpy.run_path(f"{file}.py", run_name="hloom_export") if Path(f"{file}.py").is_file() else None
        if found is None:
            raise MissingFileError(f"export of {text}", f"there is no file {file}.py", "check the path")
        if not callable(found.get(function)):
            names = [n for n, value in found.items() if callable(value) and not n.startswith("_")]
            raise ArgumentError(f"export of {text}", f"{file}.py has no function {function!r}", f"it has {names[:12]}")
        return found[function], shapes, identifier(function)
    path = Path(text)
    name = identifier(path.stem)
    if path.suffix == ".onnx":
        model = onnx.load(path)
        given: list[Any] = [*shapes] or [_of_port(port) for port in model.inputs]
        return _model_function(model, name), given, name
    if path.suffix == ".hloom":
        return load(path), shapes, name
    try:
        program = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise file_error(f"export of {text}", error) from None
    if program.startswith(MAGIC):
        return load(path), shapes, name
    made = from_stablehlo(program) if path.suffix == ".mlir" or "stablehlo." in program else from_hlo(program)
    given = [*shapes] or [ShapeDtypeStruct(p.shape.dims, p.shape.dtype) for p in made.module().entry.parameters]
    return made, given, name


def _model_function(model: Any, name: str) -> Any:
    """An ONNX model with its weights as a function of its inputs by their names."""

    def run(*inputs):
        result = model.function(model.params, inputs)
        return result.as_dict() if hasattr(result, "as_dict") else result

    names = identifiers([port.name for port in model.inputs], keyword.kwlist)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    run.__name__ = run.__qualname__ = name
    run.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in names])  # type: ignore[attr-defined]
    return run


def _of_port(port: Any) -> ShapeDtypeStruct:
    if port.shape is None or not all(isinstance(size, int) for size in port.shape):
        raise ArgumentError(
            f"export of a model with the input {port!r}",
            "its sizes are not all known",
            "give the inputs on the command line: f32[1,3,224,224], or f32[batch:1:64,3,224,224]",
        )
    return ShapeDtypeStruct(port.shape, port.dtype)


def _shape(text: str) -> ShapeDtypeStruct:
    match = re.fullmatch(r"(\w+)\[([\w:, ]*)\]", text)
    if match is None or match[1] not in DTYPES:
        raise ArgumentError(
            f"the argument {text!r}", "it is no dtype with sizes", "write f32[32,784] or f32[batch:1:64,784]"
        )
    sizes = [_size(part.strip()) for part in match[2].split(",") if part.strip()]
    return ShapeDtypeStruct(tuple(sizes), DTYPES[match[1]])


def _size(text: str) -> int | Dim:
    if text.isdigit():
        return int(text)
    name, *limits = text.split(":")
    if len(limits) not in (0, 2) or not all(limit.isdigit() for limit in limits):
        raise ArgumentError(f"the size {text!r}", "it is no number, and no NAME:LEAST:MOST", "write batch:1:64")
    return Dim(name, *map(int, limits))
