"""Numba's front end: kernel sources, functions of the math library and native functions to LLVM IR.

    kernel_module(kernel, library) -> (text, libraries)     a kernel with its C entry, and what it is linked with
    library_function(name, library) -> LibraryFunction      a function of the math library
    function_module(function) -> str                        a native function of the driver

`library(name)` is the LLVM IR of a function that a source calls. A kernel that calls `exp_f32` sees a declaration; the
optimizer then links and inlines the body.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from types import FunctionType

import llvmlite.binding as llvm
import llvmlite.ir as ir
from numba.core import types
from numba.core.errors import NumbaError

from hloom.compiler.kernels import math as math_library
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.math.registry import COMPLEX, Function
from hloom.compiler.targets.cpu import backend
from hloom.compiler.targets.cpu.interface import (
    KernelCompileError,
    LibraryFunction,
    NativeFunction,
    kernel_key,
    library_symbol,
)
from hloom.compiler.targets.cpu.loop_hints import is_interleaved
from hloom.compiler.targets.cpu.microkernels.names import argument_count
from hloom.compiler.targets.cpu.numba_frontend import blocks, intrinsics
from hloom.compiler.targets.cpu.numba_frontend.frontend import (
    define,
    external,
    front_end,
    numba_type,
    with_kernel_builtins,
)

__all__ = ["function_module", "kernel_module", "library_function", "library_names"]

_I64 = ir.IntType(64)
_ERRORS = (NumbaError, NotImplementedError, SyntaxError, NameError, KeyError)
Library = Callable[[str], str]


@functools.cache
def _names() -> dict[str, object]:
    """Every name a kernel source may use, but for those of `blocks`, which are made on demand."""
    names: dict[str, object] = {"inf": math.inf, "nan": math.nan, **math_library.CASTS}
    for function in math_library.FUNCTIONS.values():
        if function.kind == "function":
            names[function.name] = external(library_symbol(function.name), function.result, function.parameters)
        else:
            names[function.name] = function.python
    return names


def kernel_module(kernel: KernelSource, library: Library) -> tuple[str, list[bytes | str]]:
    """LLVM IR of a kernel with its C entry, and what it is linked with. Raises KernelCompileError."""
    if kernel.params[-2:] != ("s64", "s64"):
        raise KernelCompileError(kernel.name, kernel.text, f"the last params must be lo and hi, not {kernel.params}")
    return _lowered(kernel, kernel.name, functools.partial(_kernel_entry, kernel.name), library, is_interleaved)


def _lowered(
    kernel: KernelSource, symbol: str, entry: Callable, library: Library, interleaves: Callable = lambda names: False
) -> tuple[str, list[bytes | str]]:
    """LLVM IR of a kernel, and what it is linked with. interleaves: whether a kernel of these names interleaves its
    loops."""
    called = {name: external(_part_symbol(part), "void", part.params) for name, part in kernel.parts}
    try:
        function = define(kernel.name, kernel.text, {**_names(), **called}, blocks.namespace)
        names = function.__code__.co_names
        arguments = [numba_type(param) for param in kernel.params]
        text = front_end().lower(function, symbol, arguments, types.none, entry, interleaves(names))
    except _ERRORS as error:
        raise KernelCompileError(kernel.name, kernel.text, _message(error)) from error
    linked = [library(name) for name in names if _is_function(name) or argument_count(name) is not None]
    return text, linked + [_part(part, library) for _, part in kernel.parts]


def _part_symbol(kernel: KernelSource) -> str:
    return f"part_{kernel_key(kernel)[-32:]}"


def _part(kernel: KernelSource, library: Library) -> bytes:
    """Bitcode of a kernel that another one calls: a function of its parameters, inlined there."""
    symbol = _part_symbol(kernel)
    arguments = tuple(numba_type(param) for param in kernel.params)
    text, libraries = _lowered(
        kernel, symbol, functools.partial(_function_entry, symbol, arguments, types.none), library
    )
    return backend.bitcode(text, libraries)


def _message(error: Exception) -> str:
    text = str(error) if not isinstance(error, KeyError) else f"unknown dtype or name {error}"
    return "\n".join(line for line in text.splitlines() if line.strip() and "source missing" not in line)


def _is_function(name: str) -> bool:
    return name in math_library.FUNCTIONS and math_library.FUNCTIONS[name].kind == "function"


def _kernel_entry(name: str, module: ir.Module, body: ir.Function, call) -> None:
    """`void NAME(int64_t *args, int64_t lo, int64_t hi)`: unpack the words and call the body.

    The body stays a function of its own: its pointers are `noalias` parameters, which is what lets the loop vectorizer
    do without run-time overlap checks. The call costs 1 ns.
    """
    body.attributes.add("noinline")
    entry = ir.Function(module, ir.FunctionType(ir.VoidType(), [_I64.as_pointer(), _I64, _I64]), name)
    entry.attributes.add("nounwind")
    builder = ir.IRBuilder(entry.append_basic_block())
    values = []
    for position, parameter in enumerate(body.args[2:-2]):
        word = builder.load(builder.gep(entry.args[0], [ir.Constant(_I64, position)], inbounds=True))
        values.append(_from_word(builder, word, parameter.type))
    call(builder, [*values, entry.args[1], entry.args[2]])
    builder.ret_void()


def _from_word(builder: ir.IRBuilder, word: ir.Value, kind: ir.Type) -> ir.Value:
    if isinstance(kind, ir.PointerType):
        return builder.inttoptr(word, kind)
    if isinstance(kind, ir.IntType):
        return word if kind.width == 64 else builder.trunc(word, kind)
    if isinstance(kind, ir.DoubleType):
        return builder.bitcast(word, kind)
    return builder.bitcast(builder.trunc(word, ir.IntType(32)), kind)


def _function_entry(symbol, arguments, result, module, body, call) -> None:
    """A function of the types that values have in registers, as `frontend.external` declares it."""
    context = front_end().subtarget
    body.attributes.add("alwaysinline")
    void = result is types.none
    kinds = [context.get_value_type(argument) for argument in arguments]
    returned = ir.VoidType() if void else context.get_value_type(result)
    entry = ir.Function(module, ir.FunctionType(returned, kinds), symbol)
    entry.attributes.add("nounwind")
    builder = ir.IRBuilder(entry.append_basic_block())
    answer = call(builder, list(entry.args))
    if void:
        builder.ret_void()
    else:
        builder.ret(context.get_returned_value(builder, result, answer))


def _lowered_function(function, symbol: str, params: tuple[str, ...], result: str) -> str:
    arguments = tuple(numba_type(param) for param in params)
    returned = types.none if result == "void" else numba_type(result)
    entry = functools.partial(_function_entry, symbol, arguments, returned)
    return front_end().lower(function, symbol, arguments, returned, entry)


def function_module(function: NativeFunction) -> str:
    """LLVM IR of a native function, for `backend.optimized_together`. Raises KernelCompileError."""
    names = {**intrinsics.namespace(), **function.constants}
    for called, (params, result) in function.calls.items():
        names[called] = external(called, result, params)
    try:
        defined = define(function.name, function.text, names)
        return _lowered_function(defined, function.name, function.params, function.result)
    except _ERRORS as error:
        raise KernelCompileError(function.name, function.text, _message(error)) from error


def library_function(name: str, library: Library) -> LibraryFunction:
    """A function of the math library, with everything it calls inlined."""
    entry = math_library.FUNCTIONS[name]
    used: list[str] = []
    if isinstance(entry.python, FunctionType):
        function = with_kernel_builtins(entry.python, _names())
        used = [called for called in entry.python.__code__.co_names if _is_function(called)]
    else:
        names = ", ".join(f"a{k}" for k in range(len(entry.parameters)))
        function = define("call", f"def call({names}):\n    return {name}({names})\n", _names())
    text = _lowered_function(function, library_symbol(name), entry.parameters, entry.result)
    compiled = backend.bitcode(text, [library(called) for called in used])
    module = llvm.parse_bitcode(compiled)
    size = sum(1 for function in module.functions for block in function.blocks for _ in block.instructions)
    return LibraryFunction(entry.parameters, entry.result, str(module), size)


def library_names(dtypes: set[str]) -> list[str]:
    """The functions of the math library that the LLVM emitter may call. dtypes: of parameters and results."""
    return [
        name
        for name, entry in math_library.FUNCTIONS.items()
        if entry.parameters and {*entry.parameters, entry.result} <= dtypes and not _is_internal(name, entry)
    ]


def _is_internal(name: str, entry: Function) -> bool:
    """Whether no kernel calls it by that name: two parts of a sum as one number, complex128's result rounded."""
    if entry.result in COMPLEX and not {*entry.parameters} & {*COMPLEX} and not name.startswith("convert_"):
        return True
    return entry.reference == "through complex128."
