"""The table of C functions that jax loads, and those of its functions that Python answers."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Mapping

import jaxlib
import numpy as np
from jax._src import xla_bridge
from jaxlib.mlir.dialects import stablehlo

from hloom.backends.cpu.driver import load_functions
from hloom.bridges.pjrt import callbacks, exchange, ffi, platform, profiles
from hloom.bridges.pjrt.client import Client
from hloom.bridges.pjrt.memory import (
    Arguments,
    Text,
    address_of,
    array_of,
    bytes_at,
    error_block,
    malloc_bytes,
    words_at,
)
from hloom.bridges.pjrt.programs import Source, serialized
from hloom.errors import UnsupportedError
from hloom.ir.process.floats import default_floats
from hloom.ir.source import current_source, warn_while_compiling
from hloom.runtime.driver import keep_for_good
from hloom.runtime.pjrt import table
from hloom.runtime.pjrt.functions import symbol
from hloom.runtime.pjrt.interface import (
    FUNCTIONS,
    INT64_LIST,
    MAJOR,
    MINOR,
    NAMED_VALUE_WORDS,
    PROGRAM_CODE,
    PROGRAM_CODE_SIZE,
    PROGRAM_FORMAT,
    PROGRAM_FORMAT_SIZE,
    TABLE_HEADER_WORDS,
    TESTED_JAXLIB,
)

__all__ = ["IN_PYTHON", "capsule", "check_version", "register"]

_MLIR, _HLO = Text("mlir"), Text("hlo_with_config")
_C_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


def check_version(version: str) -> None:
    """Warns of a jaxlib that the tests do not run with."""
    found = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if found != TESTED_JAXLIB:
        tested = ".".join(map(str, TESTED_JAXLIB))
        warn_while_compiling(
            f"hloom's plugin (PJRT {MAJOR}.{MINOR}) is tested with jaxlib {tested}, this is {version}: it may lack "
            "functions that this version calls",
            RuntimeWarning,
            current_source(),
        )


@functools.cache
def _addresses() -> dict[str, int]:
    return load_functions(table.FUNCTIONS)


@functools.cache
def _client() -> Client:
    made = Client(_addresses())
    keep_for_good(made)
    return made


@functools.cache
def _attributes() -> tuple[list[Text], np.ndarray, np.ndarray]:
    """The attributes of the plugin, as PJRT_NamedValues, and the objects that they refer to. Without the version of
    StableHLO jax writes programs in that of twelve weeks ago, which lacks newer operations; the version read here is
    jaxlib's own."""
    version = array_of([int(part) for part in stablehlo.get_current_version().split(".")])
    name = Text("stablehlo_current_version")
    size = 8 * NAMED_VALUE_WORDS
    rows = array_of([size, 0, name.address, name.size, INT64_LIST, address_of(version), version.size])
    return [name], version, rows


def _plugin_attributes(arguments: Arguments) -> None:
    arguments["attributes"], arguments["num_attributes"] = address_of(_attributes()[2]), 1


def _client_create(arguments: Arguments) -> None:
    arguments["client"] = _client().block.address


def _client_compile(arguments: Arguments) -> None:
    program = words_at(arguments["program"], PROGRAM_CODE_SIZE + 1)
    code = bytes_at(program[PROGRAM_CODE], program[PROGRAM_CODE_SIZE])
    made = _client().compile(Source(code, arguments.text("compile_options")))
    arguments["executable"] = made.block.address


def _deserialize(arguments: Arguments) -> None:
    data, options = bytes_at(arguments["serialized"], arguments["size"]), b""
    if arguments["compile_options"]:
        options = arguments.text("compile_options")
    arguments["executable"] = _client().load(data, options).block.address


def _hand_over(arguments: Arguments, data: bytes) -> None:
    """Answers with bytes that the caller frees."""
    where = malloc_bytes(data)
    arguments["serialized_bytes"] = arguments["serialized"] = where
    arguments["serialized_bytes_size"] = len(data)
    arguments["deleter"] = _addresses()["pjrt_free"]


def _serialize(arguments: Arguments) -> None:
    found = _client().executable(arguments["executable"])
    if found.callbacks:
        raise UnsupportedError(
            f"the serialized program '{found.name}'", "it calls Python functions, which are of this process",
            "serialize a function without callbacks", "",
        )  # fmt: skip
    _hand_over(arguments, serialized(found.source))


def _compile_options(arguments: Arguments) -> None:
    _hand_over(arguments, _client().executable(arguments["executable"]).source.options)


def _device_assignment(arguments: Arguments) -> None:
    _hand_over(arguments, _client().executable(arguments["executable"]).assignment)


def _default_assignment(arguments: Arguments) -> None:
    # Two 4-byte fields share one word.
    replicas, partitions = arguments.halves(1)
    count = len(_client().devices)
    if replicas * partitions > count:
        raise UnsupportedError(
            f"{replicas} replicas of {partitions} partitions", f"{count} devices of hloom",
            "set HLOOM_NUM_CPU_DEVICES", "",
        )  # fmt: skip
    target = (ctypes.c_int32 * (replicas * partitions)).from_address(arguments["assignment"])
    target[:] = list(range(replicas * partitions))


def _cost_analysis(arguments: Arguments) -> None:
    values = _client().executable(arguments["executable"]).cost_block()
    arguments["num_properties"], arguments["properties"] = values


def _optimized_program(arguments: Arguments) -> None:
    """The program as passed by jax, with the shapes, layouts and shardings that jax requests. jax first requests its
    size, then its bytes. For a program for several devices, the program of each device."""
    found = _client().executable(arguments["executable"])
    code, kind = (found.partitioned(), _HLO) if found.layouts else (found.source.code, _MLIR)
    program = words_at(arguments["program"], PROGRAM_FORMAT_SIZE + 1)
    program[PROGRAM_FORMAT], program[PROGRAM_FORMAT_SIZE] = kind.address, kind.size
    program[PROGRAM_CODE_SIZE] = len(code)
    if program[PROGRAM_CODE]:
        ctypes.memmove(program[PROGRAM_CODE], code, len(code))


IN_PYTHON: dict[str, Callable[[Arguments], None]] = {
    "Client_Create": _client_create,
    "Client_Compile": _client_compile,
    "Client_DefaultDeviceAssignment": _default_assignment,
    "Executable_DeserializeAndLoad": _deserialize,
    "Executable_GetCompileOptions": _compile_options,
    "Executable_GetCostAnalysis": _cost_analysis,
    "Executable_OptimizedProgram": _optimized_program,
    "Executable_Serialize": _serialize,
    "LoadedExecutable_GetDeviceAssignment": _device_assignment,
    "Plugin_Attributes": _plugin_attributes,
}


def _c_function(name: str, function: Callable[[Arguments], None]):
    def call(where: int) -> int:
        try:
            with default_floats():
                function(Arguments(name, where))
        except BaseException as error:
            return error_block(error)
        return 0

    return _C_FUNCTION(call)


def _table(addresses: Mapping[str, int]) -> np.ndarray:
    words = np.zeros(TABLE_HEADER_WORDS + len(FUNCTIONS), np.int64)
    words[0], words[2], words[4] = words.nbytes, 24, MINOR << 32 | MAJOR
    for position, name in enumerate(FUNCTIONS, TABLE_HEADER_WORDS):
        if name in IN_PYTHON:
            made = _c_function(name, IN_PYTHON[name])
            keep_for_good(made)
            words[position] = ctypes.cast(made, ctypes.c_void_p).value or 0
        else:
            words[position] = addresses[symbol(name)]
    return words


@functools.cache
def capsule() -> object:
    """The table as jax takes it: a capsule of the name `pjrt_c_api`."""
    words, name = _table(_addresses()), Text("pjrt_c_api")
    for kept in (words, name):
        keep_for_good(kept)
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    return make(address_of(words), name.address, None)


def register() -> None:
    """Enters the plugin in jax's table of platforms."""
    check_version(jaxlib.__version__)
    xla_bridge._nonexperimental_plugins.add("hloom")
    xla_bridge.register_plugin("hloom", c_api=capsule())
    platform.register()
    callbacks.install()
    exchange.install()
    ffi.install()
    profiles.install(_client)
