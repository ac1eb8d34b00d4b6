"""Handlers of XLA's FFI (`jax.ffi.register_ffi_target`, `jax.ffi.ffi_call`) in programs on hloom.

A handler is a C function of one call frame, in the interface of `xla/ffi/api/c_api.h`; it works on host memory, so that
handlers registered for CPUs also work on hloom. The structs and constants here are that file's (OpenXLA, Apache 2.0),
version 0.3.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jax._src.lib import lapack, xla_client

from hloom.bridges.pjrt.ffi_structs import (
    API_FUNCTIONS,
    DATA_TYPES,
    EXECUTE,
    INSTANTIATE,
    Api,
    Array,
    Attributes,
    Buffer,
    ByteSpan,
    CallFrame,
    Scalar,
    Values,
)
from hloom.bridges.pjrt.memory import words_at
from hloom.config import config
from hloom.errors import UnsupportedError
from hloom.ir.library_calls import is_library_call
from hloom.ir.ops.programs.structure import CUSTOM_CALLS, HostFunction
from hloom.ir.spmd.factors import leading
from hloom.ir.stablehlo.assembly.attributes import Array as MlirArray
from hloom.ir.stablehlo.assembly.attributes import Dense, Number
from hloom.ir.stablehlo.assembly.literals import dense_value
from hloom.ir.stablehlo.reader.registry import CONVERTERS, converts
from hloom.ir.stablehlo.values import fields, flag, number
from hloom.ir.types import DTYPES, HLO_NAME, Shape, TupleShape

__all__ = ["install"]

_TYPED = 4  # the version of custom calls that name handlers
_ALIGNED = 64  # bytes, as XLA aligns buffers
_BATCH = "num_batch_dims"  # by which jax passes the number of leading batch dimensions of all arrays
_CODES = {
    1: "CANCELLED", 2: "UNKNOWN", 3: "INVALID_ARGUMENT", 4: "DEADLINE_EXCEEDED", 5: "NOT_FOUND", 6: "ALREADY_EXISTS",
    7: "PERMISSION_DENIED", 8: "RESOURCE_EXHAUSTED", 9: "FAILED_PRECONDITION", 10: "ABORTED", 11: "OUT_OF_RANGE",
    12: "UNIMPLEMENTED", 13: "INTERNAL", 14: "UNAVAILABLE", 15: "DATA_LOSS", 16: "UNAUTHENTICATED",
}  # fmt: skip
_handlers: dict[str, Mapping[str, Any]] = {}  # registered for hloom: capsules by stage
_process = ctypes.CDLL(None)
_process.aligned_alloc.restype = ctypes.c_void_p
_process.aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
_process.free.argtypes = [ctypes.c_void_p]


class HandlerError(Exception):
    """The result of a handler."""


# --- functions called by handlers ------------------------------------------------------------------------------------


class _Tables:
    """Objects made by handlers, by their handles."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)
        self.errors: dict[int, tuple[int, str]] = {}
        self.types: dict[bytes, int] = {}
        self.states: dict[tuple[int, int], int] = {}  # by context and stage
        self.futures: dict[int, tuple[threading.Event, list[int]]] = {}

    def error(self, code: int, text: str) -> int:
        found = next(self.numbers)
        self.errors[found] = code, text
        return found

    def take(self, error: int) -> HandlerError:
        code, text = self.errors.pop(error)
        return HandlerError(f"{_CODES.get(code, code)}: {text}")


_tables = _Tables()


def _error_create(where: int) -> int:
    words = words_at(where, 4)
    return _tables.error(words[3] & 0xFFFFFFFF, ctypes.string_at(words[2]).decode("utf-8", "replace"))


def _error_message(where: int) -> int:
    words = words_at(where, 4)
    text = ctypes.create_string_buffer(_tables.errors[words[2]][1].encode())
    _kept.append(text)
    words[3] = ctypes.addressof(text)
    return 0


def _error_destroy(where: int) -> int:
    _tables.errors.pop(words_at(where, 3)[2], None)
    return 0


def _type_register(where: int) -> int:
    words = words_at(where, 5)
    name = ctypes.string_at(words[2], words[3])
    words_at(words[4], 1)[0] = _tables.types.setdefault(name, len(_tables.types) + 1)
    return 0


def _state_set(where: int) -> int:
    words = words_at(where, 6)
    _tables.states[words[2], words[3] & 0xFFFFFFFF] = words[5]
    return 0


def _state_get(where: int) -> int:
    words = words_at(where, 6)
    found = _tables.states.get((words[2], words[3] & 0xFFFFFFFF))
    if found is None:
        return _tables.error(5, "the handler has set no state")
    words[5] = found
    return 0


def _allocate(where: int) -> int:
    words = words_at(where, 6)
    align = max(words[4], _ALIGNED)
    words[5] = _process.aligned_alloc(align, -(-words[3] // align) * align) or 0
    return 0 if words[5] else _tables.error(8, f"{words[3]} bytes")


def _free(where: int) -> int:
    _process.free(words_at(where, 5)[4])
    return 0


def _schedule(where: int) -> int:
    """Runs a task of a handler inline: tasks have no thread pool."""
    words = words_at(where, 5)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(words[3])(words[4])
    return 0


def _thread_count(where: int) -> int:
    words_at(words_at(where, 4)[3], 1)[0] = config.num_threads or 1
    return 0


def _future_create(where: int) -> int:
    made = next(_tables.numbers)
    _tables.futures[made] = threading.Event(), []
    words_at(where, 3)[2] = made
    return 0


def _future_available(where: int) -> int:
    _tables.futures[words_at(where, 3)[2]][0].set()
    return 0


def _future_error(where: int) -> int:
    words = words_at(where, 4)
    event, errors = _tables.futures[words[2]]
    errors.append(words[3])
    event.set()
    return 0


def _answer_zero(where: int) -> int:
    """The number of the run, and of the device."""
    words_at(where, 4)[3] = 0
    return 0


def _refuse(where: int) -> int:
    return _tables.error(12, "a function that hloom does not offer to handlers")


_ANSWERS = {
    "Error_Create": _error_create, "Error_GetMessage": _error_message, "Error_Destroy": _error_destroy,
    "Stream_Get": _answer_zero, "Type_Register": _type_register, "State_Set": _state_set, "State_Get": _state_get,
    "DeviceMemory_Allocate": _allocate, "DeviceMemory_Free": _free, "ThreadPool_Schedule": _schedule,
    "ThreadPool_NumThreads": _thread_count, "Future_Create": _future_create,
    "Future_SetAvailable": _future_available, "Future_SetError": _future_error, "RunId_Get": _answer_zero,
}  # fmt: skip
_kept: list[object] = []
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


def _device_ordinal(where: int) -> int:
    ctypes.c_int32.from_address(where + 24).value = 0
    return 0


@functools.cache
def _api() -> Api:
    made = Api()
    made.size, made.version_size, made.major, made.minor = ctypes.sizeof(Api), 24, 0, 3
    for position, name in enumerate(API_FUNCTIONS):
        answer = _device_ordinal if name == "DeviceOrdinal_Get" else _ANSWERS.get(name, _refuse)
        function = _FUNCTION(answer)
        _kept.append(function)
        made.functions[position] = ctypes.cast(function, ctypes.c_void_p).value or 0
    return made


# --- attributes -----------------------------------------------------------------------------------------------------


def _attribute(value: Any, kept: list[object]) -> tuple[int, ctypes.Structure]:
    """(its type, the struct) of an attribute; `kept` keeps alive the objects that the struct refers to."""
    if isinstance(value, Mapping):
        return 2, _attributes(value, kept)
    if isinstance(value, str):
        return 4, _span(value, kept)
    if isinstance(value, bool):
        return 3, _scalar(np.array(value), kept)
    if isinstance(value, Number):
        return 3, _scalar(np.array(_parsed(value.text, value.type)), kept)
    if isinstance(value, Dense):
        values = _dense(value)
    elif isinstance(value, MlirArray):
        values = np.array([_parsed(str(v), value.element) for v in value.values], _dtype(value.element))
    else:
        raise UnsupportedError(
            f"an attribute {value!r} of an FFI call", "hloom passes numbers, arrays, strings and dictionaries",
            "pass it as one of these", "",
        )  # fmt: skip
    made = Array(DATA_TYPES[HLO_NAME[values.dtype]], values.size, values.ctypes.data)
    kept += [values, made]
    return 1, made


_ELEMENTS = {"i1": "pred", **{f"{a}i{n}": f"{b}{n}" for n in (8, 16, 32, 64) for a, b in (("", "s"), ("u", "u"))}}


def _dtype(element: str) -> np.dtype:
    return DTYPES[_ELEMENTS.get(element, element)]


def _parsed(text: str, element: str) -> np.generic:
    dtype = _dtype(element)
    if text.startswith("0x") and dtype.kind not in "iu":
        return np.frombuffer(int(text, 16).to_bytes(dtype.itemsize, "little"), dtype)[0]
    if dtype.kind == "b":
        return np.bool_(text in ("true", "1"))
    return dtype.type(int(text) if dtype.kind in "iu" else float(text))


def _dense(value: Dense) -> np.ndarray:
    shape = Shape(_dtype(str(value.type.element)), tuple(size or 0 for size in value.type.dims))
    return np.ascontiguousarray(dense_value(value, shape))


def _scalar(value: np.ndarray, kept: list[object]) -> Scalar:
    made = Scalar(DATA_TYPES[HLO_NAME[value.dtype]], value.ctypes.data)
    kept += [value, made]
    return made


def _span(text: str, kept: list[object]) -> ByteSpan:
    data = ctypes.create_string_buffer(text.encode())
    made = ByteSpan(ctypes.addressof(data), len(text.encode()))
    kept += [data, made]
    return made


def _attributes(values: Mapping[str, Any], kept: list[object]) -> Attributes:
    names = sorted(values)
    found = [_attribute(values[name], kept) for name in names]
    count = len(names)
    types = (ctypes.c_int32 * max(count, 1))(*(kind for kind, _ in found))
    spans = (ctypes.c_int64 * max(count, 1))(*(ctypes.addressof(_span(name, kept)) for name in names))
    places = (ctypes.c_int64 * max(count, 1))(*(ctypes.addressof(made) for _, made in found))
    made = Attributes(
        ctypes.sizeof(Attributes), 0, count, ctypes.addressof(types), ctypes.addressof(spans), ctypes.addressof(places)
    )
    kept += [types, spans, places, made]
    return made


# --- calls ----------------------------------------------------------------------------------------------------------


class _Call:
    """One custom call of a program: a function of NumPy arrays.

    orders: for each operand and result its dimensions in memory order, major to minor. aliases: for results the operand
    whose memory they reuse. batch: how many leading dimensions of all arrays are batch dimensions, of which a device
    may have a part.
    """

    def __init__(self, name: str, stages: Mapping[str, Any], attributes: Mapping[str, Any], results: Sequence[Any]):
        self.name, self._results = name, results
        self._stages = {stage: _address(capsule) for stage, capsule in stages.items() if capsule is not None}
        self._kept: list[object] = []
        self._attributes = _attributes(attributes, self._kept)
        self.orders: tuple[list[tuple[int, ...]], list[tuple[int, ...]]] = ([], [])
        self.aliases: dict[int, int] = {}
        self.batch = 0
        self.context = next(_tables.numbers)
        self._lock = threading.Lock()
        self._begun = False

    def __call__(self, *arrays: np.ndarray) -> Any:
        with self._lock:
            if not self._begun:
                for stage, number in (("instantiate", INSTANTIATE), ("prepare", 1), ("initialize", 2)):
                    if stage in self._stages:
                        self._run(self._stages[stage], number, [], [])
                self._begun = True
        given = [np.ascontiguousarray(a.transpose(o)) for a, o in zip(arrays, self.orders[0], strict=True)]
        sizes = [(*arrays[0].shape[: self.batch], *s.dims[self.batch :]) if arrays else s.dims for s in self._results]
        results = [s.with_dims(d) for s, d in zip(self._results, sizes, strict=True)]
        made = [_aligned(s, o) for s, o in zip(results, self.orders[1], strict=True)]
        for k, j in self.aliases.items():
            made[k][...] = given[j]
            given[j] = made[k]
        dims = [a.shape for a in arrays], [s.dims for s in results]
        self._run(self._stages["execute"], EXECUTE, list(zip(given, dims[0], strict=True)),
                  list(zip(made, dims[1], strict=True)))  # fmt: skip
        found = [m.transpose(np.argsort(o)) if o else m for m, o in zip(made, self.orders[1], strict=True)]
        return tuple(found) if len(found) != 1 else found[0]

    def _run(self, address: int, stage: int, given: list, made: list) -> None:
        kept: list[object] = []
        frame = CallFrame(
            size=CallFrame.future.offset, api=ctypes.addressof(_api()), context=self.context, stage=stage,
            arguments=_values(given, kept), results=_values(made, kept), attributes=self._attributes,
        )  # fmt: skip
        error = _FUNCTION(address)(ctypes.addressof(frame))
        if not error and frame.future:
            event, errors = _tables.futures[frame.future]
            event.wait()
            del _tables.futures[frame.future]
            error = errors[0] if errors else 0
        if error:
            raise _tables.take(error)


def _address(capsule: Any) -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    return get(capsule, name(capsule))


def _aligned(shape: Any, order: Sequence[int]) -> np.ndarray:
    dims = tuple(shape.dims[d] for d in order)
    count = int(np.prod(dims, dtype=np.int64)) * shape.dtype.itemsize
    raw = np.empty(count + _ALIGNED, np.uint8)
    start = -raw.ctypes.data % _ALIGNED
    return raw[start : start + count].view(shape.dtype).reshape(dims)


def _values(arrays: list[tuple[np.ndarray, tuple[int, ...]]], kept: list[object]) -> Values:
    places = []
    for array, dims in arrays:
        words = (ctypes.c_int64 * max(len(dims), 1))(*dims)
        buffer = Buffer(
            ctypes.sizeof(Buffer), 0, DATA_TYPES[HLO_NAME[array.dtype]], array.ctypes.data, len(dims),
            ctypes.addressof(words),
        )  # fmt: skip
        kept += [words, buffer]
        places.append(ctypes.addressof(buffer))
    types = (ctypes.c_int32 * max(len(places), 1))(*[1] * len(places))
    addresses = (ctypes.c_int64 * max(len(places), 1))(*places)
    kept += [types, addresses]
    return Values(ctypes.sizeof(Values), 0, len(places), ctypes.addressof(types), ctypes.addressof(addresses))


# --- in programs ----------------------------------------------------------------------------------------------------


def _stages(name: str) -> Mapping[str, Any] | None:
    found = _handlers.get(name)
    if found is None and is_library_call(name):
        lapack.prepare_lapack_call("", np.dtype(np.float32))  # jaxlib's handlers call SciPy's functions, looked up here
    return found if found is not None else xla_client.custom_call_targets("cpu").get(name)


def _orders(layouts: Any, ranks: Sequence[int]) -> list[tuple[int, ...]]:
    if layouts is None:
        return [tuple(range(rank)) for rank in ranks]
    rows = [[int(text) for text in re.findall(r"\d{1,9}", row.body)] for row in layouts]  # tensors of `index`
    return [tuple(reversed(row[:rank])) for row, rank in zip(rows, ranks, strict=True)]


def _converter(others: Callable) -> Callable:
    def convert(scope: Any, op: Any, items: Sequence[Any]) -> Any:
        attributes, name = op.attributes, op.attributes["call_target_name"]
        version = attributes.get("api_version")
        typed = "mhlo.backend_config" in attributes or (version is not None and number(version) == _TYPED)
        effect = flag(attributes.get("has_side_effect", False))  # without, it may be removed or repeated
        ours = name in CUSTOM_CALLS or (is_library_call(name) and name not in _handlers and not effect)
        stages = _stages(name) if typed and not ours else None
        return others(scope, op, items) if stages is None else _typed(scope, op, items, stages)

    return convert


def _typed(scope: Any, op: Any, items: Sequence[Any], stages: Any) -> Any:
    attributes, name = op.attributes, op.attributes["call_target_name"]
    given = attributes.get("mhlo.backend_config", attributes.get("backend_config", {}))
    shapes = [scope.result_shape(op, k) for k in range(len(op.result_types))]
    call = _Call(name, stages, given if isinstance(given, Mapping) else {}, shapes)
    call.orders = (
        _orders(attributes.get("operand_layouts"), [len(i.dims) for i in items]),
        _orders(attributes.get("result_layouts"), [len(s.dims) for s in shapes]),
    )
    for row in attributes.get("output_operand_aliases", ()):
        alias = fields(row)
        outputs = alias["output_tuple_indices"]
        call.aliases[number(outputs[0]) if outputs else 0] = number(alias["operand_index"])
    target = HostFunction(f"{name}.{call.context}")  # calls of one handler may differ in their attributes
    target.function, target.method = call, "sequential"
    stated = attributes.get("mhlo.frontend_attributes", {}).get(_BATCH)
    if stated is not None:
        call.batch = int(stated)
        target.factors = functools.partial(leading, count=call.batch)
    shape = shapes[0] if len(shapes) == 1 else TupleShape(shapes)
    effect: dict = {"custom_call_has_side_effect": True} if flag(attributes.get("has_side_effect", False)) else {}
    effect |= scope.converter.placement.caller(op)
    result = scope.emit("custom-call", *items, shape=shape, custom_call_target=target, **effect)
    return result if len(shapes) == 1 else scope.elements(result)


def _register(name: str, function: Any, platform: str, version: int, traits: Any) -> None:
    del platform, version, traits
    _handlers[name] = function if isinstance(function, Mapping) else {"execute": function}


def install() -> None:
    """Makes jax register handlers of platform hloom here, and the reader of programs find handlers."""
    register: Any = _register  # its protocol names the parameters otherwise
    xla_client.register_custom_call_handler("hloom", register)
    converts("stablehlo.custom_call")(_converter(CONVERTERS["stablehlo.custom_call"]))
