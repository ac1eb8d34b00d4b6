"""Kernels, vector math and native functions to LLVM modules: which names mean what, and the C entry points.

Vector math (`kernels.vmath`) is compiled once for each function, to bitcode that the cache keeps. A kernel that calls
`exp_f32` sees a declaration; the optimizer then links and inlines the body, and no kernel pays Numba for it again.
"""

from __future__ import annotations

import functools
import hashlib
import math
import re
import threading

import llvmlite.binding as llvm
import llvmlite.ir as ir
from numba.core import types
from numba.core.errors import NumbaError

from hloom.compiler.kernels import math as math_library
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.math.registry import COMPLEX, Function
from hloom.compiler.targets.cpu import backend
from hloom.compiler.targets.cpu.fft import butterflies
from hloom.compiler.targets.cpu.fft import names as fft_names
from hloom.compiler.targets.cpu.interface import KernelCompileError, NativeFunction, Store, fingerprint, kernel_key
from hloom.compiler.targets.cpu.llvm_emitter.calls import CALLS
from hloom.compiler.targets.cpu.llvm_emitter.loop_hints import interleaved, is_interleaved
from hloom.compiler.targets.cpu.microkernels import fma
from hloom.compiler.targets.cpu.numba_frontend import intrinsics, prebuilt_library
from hloom.compiler.targets.cpu.numba_frontend.frontend import (
    define,
    external,
    front_end,
    numba_type,
    with_kernel_builtins,
)

_I64 = ir.IntType(64)
_ERRORS = (NumbaError, NotImplementedError, SyntaxError, NameError, KeyError)
_library_lock = threading.RLock()
_bitcode: dict[str, bytes] = {}


@functools.cache
def _dialect() -> dict[str, object]:
    """Every name a kernel text may use, but for tile names (they are made on demand)."""
    names: dict[str, object] = {"inf": math.inf, "nan": math.nan, **math_library.CASTS}
    for function in math_library.FUNCTIONS.values():
        if function.kind == "function":
            names[function.name] = external(_symbol(function.name), function.result, function.parameters)
        else:
            names[function.name] = function.python
    return names


def _symbol(name: str) -> str:
    return f"hloom_{name}"


def kernel_module(kernel: KernelSource, cache: Store | None) -> tuple[str, list[bytes]]:
    """LLVM IR (text) of a kernel with its C entry, and the bitcode of the vector math it calls."""
    if kernel.params[-2:] != ("s64", "s64"):
        raise KernelCompileError(kernel.name, kernel.text, f"the last params must be lo and hi, not {kernel.params}")
    called = {name: external(_part_symbol(part), "void", part.params) for name, part in kernel.parts}
    called |= _passes(kernel.text)
    try:
        function = define(kernel.name, kernel.text, {**_dialect(), **fma.namespace(kernel.text), **called})
        arguments = [numba_type(param) for param in kernel.params]
        module = front_end().lower(
            function, kernel.name, arguments, types.none, functools.partial(_kernel_entry, kernel.name)
        )
    except _ERRORS as error:
        raise KernelCompileError(kernel.name, kernel.text, _message(error)) from error
    names = function.__code__.co_names
    libraries = [library(name, cache) for name in names if _is_function(name)]
    if is_interleaved(names):
        module = interleaved(module)
    libraries += [butterflies.module_text(name) for name in butterflies.names_in(kernel.text)]
    return module, libraries + [_part(part, cache) for _, part in kernel.parts]


def _passes(text: str) -> dict[str, object]:
    """The functions of `tiles_fft` that a text calls, which it is linked with."""
    names = butterflies.names_in(text)
    return {name: external(f"hloom_{name}", "void", ["s64"] * len(fft_names.parameters(name))) for name in names}


def _part_symbol(kernel: KernelSource) -> str:
    return f"part_{kernel_key(kernel)[-32:]}"


def _part(kernel: KernelSource, cache: Store | None) -> bytes:
    """Bitcode of a kernel that another one calls: a function of its parameters, inlined there."""
    symbol = _part_symbol(kernel)
    data = cache.get(symbol) if cache is not None else None
    if data is None:
        try:
            scope = {**_dialect(), **fma.namespace(kernel.text), **_passes(kernel.text)}
            function = define(kernel.name, kernel.text, scope)
            arguments = [numba_type(param) for param in kernel.params]
            entry = functools.partial(_plain_entry, symbol, tuple(arguments), types.none)
            module = front_end().lower(function, symbol, arguments, types.none, entry)
        except _ERRORS as error:
            raise KernelCompileError(kernel.name, kernel.text, _message(error)) from error
        names = function.__code__.co_names
        libraries = [library(name, cache) for name in names if _is_function(name)]
        libraries += [butterflies.module_text(name) for name in butterflies.names_in(kernel.text)]
        data = backend.bitcode(module, libraries)
        if cache is not None:
            cache.put(symbol, data)
    return data


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


def library(name: str, cache: Store | None) -> bytes:
    """Bitcode of the vector math function `name`, with everything it calls inlined."""
    with _library_lock:
        if name not in _bitcode:
            key = "vmath-" + hashlib.sha256(f"{fingerprint()} {name}".encode()).hexdigest()
            data = cache.get(key) if cache is not None else None
            if data is None:
                data = _compile_library(name, cache)
                if cache is not None:
                    cache.put(key, data)
            _bitcode[name] = data
        return _bitcode[name]


def _compile_library(name: str, cache: Store | None) -> bytes:
    entry = math_library.FUNCTIONS[name]
    plain = entry.python
    scope = {**plain.__globals__, **_dialect()}
    function = with_kernel_builtins(type(plain)(plain.__code__, scope, plain.__name__, plain.__defaults__))
    arguments = [numba_type(parameter) for parameter in entry.parameters]
    module = front_end().lower(
        function, _symbol(name), arguments, numba_type(entry.result),
        functools.partial(_plain_entry, _symbol(name), tuple(arguments), numba_type(entry.result)),
    )  # fmt: skip
    return backend.bitcode(module, [library(used, cache) for used in plain.__code__.co_names if _is_function(used)])


def _plain_entry(symbol, arguments, result, module, body, call) -> None:
    """A function with ordinary C parameters and result, in the form in which Numba declares an external function."""
    context = front_end().subtarget
    body.attributes.add("alwaysinline")
    # Complex numbers are structs, which Numba's convention for arguments would take apart.
    struct = [isinstance(argument, types.Complex) for argument in arguments]
    kinds = [
        context.get_value_type(argument) if whole else context.get_argument_type(argument)
        for argument, whole in zip(arguments, struct, strict=True)
    ]
    returned = ir.VoidType() if result in (types.none, types.void) else context.get_return_type(result)
    entry = ir.Function(module, ir.FunctionType(returned, kinds), symbol)
    entry.attributes.add("nounwind")
    builder = ir.IRBuilder(entry.append_basic_block())
    values = [
        value if whole else context.get_argument_value(builder, kind, value)
        for kind, value, whole in zip(arguments, entry.args, struct, strict=True)
    ]
    answer = call(builder, values)
    if answer is None:
        builder.ret_void()
    else:
        builder.ret(answer)


def function_module(function: NativeFunction) -> str:
    """LLVM IR (text) of a native function, for `backend.optimized_together`."""
    _dialect()  # Numba has to know its intrinsics before the front end is made
    names = {**intrinsics.namespace(), **function.constants}
    for called, (params, result) in function.calls.items():
        names[called] = external(called, result, params)
    arguments = [numba_type(param) for param in function.params]
    result = types.none if function.result == "void" else numba_type(function.result)
    try:
        return front_end().lower(
            define(function.name, function.text, names), function.name, arguments, result,
            functools.partial(_plain_entry, function.name, tuple(arguments), result),
        )  # fmt: skip
    except _ERRORS as error:
        raise KernelCompileError(function.name, function.text, _message(error)) from error


def library_functions(dtypes: set[str]):
    """(name, module that it stands in, params, result, LLVM IR) of every function and tile that `direct` may call.

    dtypes: those that may be among params and result. Truth values are i1 here, unlike in Numba's own calls.
    """
    for name, entry in math_library.FUNCTIONS.items():
        if name in CALLS or not entry.parameters or not {*entry.parameters, entry.result} <= dtypes:
            continue
        if _is_left_out(name, entry):
            continue
        names = ", ".join(f"a{k}" for k in range(len(entry.parameters)))
        function = define("call", f"def call({names}):\n    return {name}({names})\n", _dialect())
        arguments = [numba_type(parameter) for parameter in entry.parameters]
        result = numba_type(entry.result)
        wrap = functools.partial(_register_entry, prebuilt_library.symbol(name), tuple(arguments), result)
        module = front_end().lower(function, f"call_{name}", arguments, result, wrap)
        made = backend.bitcode(module, [library(name, None)] if _is_function(name) else [])
        origin = (
            entry.python.__module__.removeprefix(f"{math_library.__name__}.") if _is_function(name) else "instructions"
        )
        yield name, origin, entry.parameters, entry.result, str(llvm.parse_bitcode(made))
    for name in fma._usual():
        if match := re.fullmatch(r"(tile|transpose)_([a-z]+\d+)_(\d+)x(\d+)", name):
            module = ir.Module(name)
            module.triple = llvm.get_process_triple()
            if match[1] == "tile":
                function = fma.build_tile(module, match[2], int(match[3]), int(match[4]))
            else:
                function = fma.build_transpose(module, match[2], int(match[3]))
            function.linkage = "linkonce_odr"
            yield name, "tiles", ["s64"] * len(function.args), "", str(llvm.parse_assembly(str(module)))


def _is_left_out(name: str, entry: Function) -> bool:
    """Whether no kernel calls it by that name: two parts of a sum as one number, complex128's result rounded."""
    if entry.result in COMPLEX and not {*entry.parameters} & {*COMPLEX} and not name.startswith("convert_"):
        return True
    return entry.reference == "through complex128."


def _register_entry(symbol, arguments, result, module, body, call) -> None:
    """A function of the types that values have in registers."""
    context = front_end().subtarget
    body.attributes.add("alwaysinline")
    kinds = [context.get_value_type(argument) for argument in arguments]
    entry = ir.Function(module, ir.FunctionType(context.get_value_type(result), kinds), symbol)
    entry.attributes.add("nounwind")
    builder = ir.IRBuilder(entry.append_basic_block())
    answer = call(builder, list(entry.args))
    builder.ret(context.get_returned_value(builder, result, answer))
