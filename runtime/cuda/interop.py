"""Arrays shared with other libraries, without a copy: DLPack both ways, and __cuda_array_interface__ version 3.

    export_dlpack(array, stream, ...) -> capsule     cuda_array_interface(array) -> dict
    import_array(device, other) -> DeviceArray       by DLPack where `other` has it, else by the interface

Order on the GPU: who hands an array out makes the taker's stream wait for it, who takes one tells its stream. When the
taker drops an array of ours, our stream waits for its stream before the memory is used again; where that stream is not
one of the two default streams it may be gone by then, and the whole GPU is waited for. Memory that we took is given
back only when our stream is done with it.
"""

from __future__ import annotations

import ctypes
from functools import cache
from math import prod
from sys import getrefcount

import ml_dtypes
import numpy as np

from hloom.ir.types import Shape
from hloom.runtime import native
from hloom.runtime.cuda.api import LEGACY_STREAM, PER_THREAD_STREAM
from hloom.runtime.cuda.errors import CudaInteropError
from hloom.runtime.cuda.memory import Buffer

CUDA, CUDA_HOST, CUDA_MANAGED = 2, 3, 13  # DLPack's kinds of devices
READ_ONLY = 1
_VERSION = (1, 0)

# DLPack's type codes.
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_BFLOAT = 4
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_DTYPES = {(code, dtype.itemsize * 8): dtype for dtype in map(np.dtype, (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "complex64", "complex128", "bool",
)) for code in (_CODES[dtype.kind],)} | {(_BFLOAT, 16): _BFLOAT16}  # fmt: skip
_NAMED = {dtype: key for key, dtype in _DTYPES.items()}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    """Before version 1.0: capsules named 'dltensor'."""

    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    """From version 1.0: capsules named 'dltensor_versioned'."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_python = ctypes.pythonapi
_new_capsule = _python.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_capsule_is = _python.PyCapsule_IsValid
_capsule_is.restype, _capsule_is.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
_capsule_get = _python.PyCapsule_GetPointer
_capsule_get.restype, _capsule_get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_capsule_rename = _python.PyCapsule_SetName
_capsule_rename.restype, _capsule_rename.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]

NAMES = ((b"dltensor_versioned", b"used_dltensor_versioned", _Versioned), (b"dltensor", b"used_dltensor", _Managed))

# --- giving ---


_outstanding: set[_Given] = set()  # the tensors stay where they are until their libraries are done, come what may


class _Given:
    """An array while another library has it, or may take it from the capsule.

    The library says that it is done by a call of `deleter`, from any thread, with or without Python's lock, and maybe
    while an exception is on its way, which Python code would lose. So that call runs no Python: it sets a flag behind
    the tensor (`_deleter`), which `collect` looks at. A capsule has no destructor for the same reason: it is kept here
    until it was taken, or until nobody else refers to it.
    """

    def __init__(self, managed, array, numbers, stream: int):
        self.managed, self.array, self.numbers, self.stream = managed, array, numbers, stream
        self.name = NAMES[0 if isinstance(managed, _Versioned) else 1][0]
        address = ctypes.addressof(managed)
        self.flag = ctypes.c_int64.from_address(address + _FLAG)
        self.capsule = _new_capsule(address, self.name, None)
        _outstanding.add(self)

    def is_done(self) -> bool:
        if self.flag.value:
            return True
        if self.capsule is not None:
            if not _capsule_is(self.capsule, self.name):
                self.capsule = None  # taken: renamed by whom it belongs to now
            else:
                return getrefcount(self.capsule) <= _ALONE
        return False


_FLAG = 128  # bytes from the start of a managed tensor to its flag; the larger of both has 80


class _Room(ctypes.Structure):
    """A managed tensor and its flag."""

    _fields_ = [("room", ctypes.c_uint64 * (_FLAG // 8 + 1))]


class _Holder:
    def __init__(self):
        self.capsule = object()

    def references(self) -> int:
        return getrefcount(self.capsule)


_ALONE = _Holder().references()  # what `getrefcount` says of an attribute that nothing else refers to


@cache
def _deleter() -> int:
    """Address of the C function that sets the flag. LLVM assembles it at the first use (some 10 ms); it is never freed,
    as other libraries may call it while Python shuts down."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    name = "hloom_cuda_shared_array_is_done"
    text = f"""
        define void @{name}(ptr %managed) {{
            %flag = getelementptr i64, ptr %managed, i64 {_FLAG // 8}
            store atomic i64 1, ptr %flag release, align 8
            ret void
        }}"""
    machine = llvm.Target.from_default_triple().create_target_machine()
    return native.load(machine.emit_object(llvm.parse_assembly(text)), [name])[name]


def collect(device) -> None:
    """Takes back what other libraries are done with."""
    for given in [given for given in device.given if given.is_done()]:
        stream, shared = given.stream, given.array
        if stream in (LEGACY_STREAM, PER_THREAD_STREAM):
            shared.buffer.readers.append(device.record(device.api.stream_of(stream)))
        elif stream != -1 and stream != int(device.main) and given.flag.value:
            device.api.synchronize_context("work of another library with a shared array was waited for")
        device.given.remove(given)
        _outstanding.discard(given)


def _order(array, stream: int | None) -> int:
    """Makes the taker's stream wait for the array. Returns that stream, -1 for none."""
    device = array.device
    if stream == -1:
        return -1
    if stream == 0:
        raise CudaInteropError(
            f"{array} was handed to another library on stream 0",
            "0 may mean either default stream",
            "pass 1 (legacy default stream), 2 (per-thread default stream) or a stream's handle",
        )
    number = LEGACY_STREAM if stream is None else int(stream)
    with device.guard() as api:
        device.use(array.buffer)
        if number != int(device.main):
            api.wait_event(api.stream_of(number), device.record(device.main).handle)
    return number


def export_dlpack(array, stream=None, max_version=None, dl_device=None, copy=None):
    """A capsule over the memory of a DeviceArray, which stays alive until the taker drops it.

    stream: the taker's, as an integer: None or 1 the legacy default stream, 2 the per-thread one, -1 no ordering.
    Raises CudaInteropError for other devices, copies, and dtypes that DLPack cannot say.
    """
    if dl_device is not None and tuple(dl_device) != array.__dlpack_device__():
        raise CudaInteropError(
            f"{array} was asked for on DLPack device {tuple(dl_device)}",
            f"it is on {array.__dlpack_device__()}",
            "copy it there first",
        )
    if copy:
        raise CudaInteropError(f"a copy of {array} was asked for", "DLPack shares it", "copy what you receive")
    dtype = array.dtype
    if dtype not in _NAMED:
        raise CudaInteropError(f"{array} was handed to another library", f"DLPack has no {dtype}", "convert it first")
    code, bits = _NAMED[dtype]
    rank = len(array.shape)
    numbers = (ctypes.c_int64 * max(2 * rank, 1))(*array.shape, *_strides(array.shape))
    room = _Room()
    kind = _Versioned if max_version is not None and max_version[0] >= 1 else _Managed
    managed = kind.from_buffer(room)
    tensor = managed.tensor
    tensor.data, tensor.device_type, tensor.device_id = array.buffer.address, CUDA, array.device.facts.index
    tensor.ndim, tensor.code, tensor.bits, tensor.lanes = rank, code, bits, 1
    first = ctypes.addressof(numbers)
    tensor.shape = ctypes.cast(first, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(first + 8 * rank, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = _deleter()
    if isinstance(managed, _Versioned):
        managed.major, managed.minor = _VERSION
    given = _Given(managed, array, numbers, _order(array, stream))
    array.device.given.append(given)
    return given.capsule


def _strides(dims) -> list[int]:
    """In elements, of contiguous memory."""
    return [prod(dims[k + 1 :]) for k in range(len(dims))]


def cuda_array_interface(array) -> dict:
    """Version 3. `stream` is ours: who takes the array waits for it. Raises CudaError, AttributeError for a dtype that
    NumPy has no type string for."""
    if array.dtype not in _NAMED or array.dtype == _BFLOAT16:
        # AttributeError: libraries ask by hasattr, and then try DLPack.
        raise AttributeError(f"__cuda_array_interface__ has no name for {array.dtype}; use DLPack")
    with array.device.guard():
        array.device.use(array.buffer)
    return {
        "shape": array.shape,
        "typestr": array.dtype.str,
        "data": (array.buffer.address if array.nbytes else 0, False),
        "strides": None,
        "version": 3,
        "stream": int(array.device.main),
    }


# --- taking ---


def import_array(device, other):
    """A DeviceArray over the memory of another library's array on the same device, without a copy.

    other: has __dlpack__ or __cuda_array_interface__. Raises CudaInteropError for other devices, memory that is not
    contiguous and dtypes that hloom has not.
    """
    if hasattr(other, "__dlpack__"):
        return _from_dlpack(device, other)
    if hasattr(other, "__cuda_array_interface__"):
        return _from_interface(device, other)
    raise CudaInteropError(
        f"an array on {device} was made of {type(other).__name__}",
        "it has neither __dlpack__ nor __cuda_array_interface__",
        "pass an array of CuPy, torch, Numba or JAX that is on the GPU",
    )


def _from_dlpack(device, other):
    what = f"a {type(other).__name__} was taken on {device}"
    kind, index = (int(value) for value in other.__dlpack_device__())
    if kind not in (CUDA, CUDA_MANAGED) or index != device.facts.index:
        raise CudaInteropError(
            what, f"it is on DLPack device ({kind}, {index})", f"move it to GPU {device.facts.index} first"
        )
    device.open()
    try:
        capsule = other.__dlpack__(stream=int(device.main), max_version=_VERSION)
    except TypeError:  # a library older than max_version
        capsule = other.__dlpack__(stream=int(device.main))
    name, used, kind_of = next((n for n in NAMES if _capsule_is(capsule, n[0])), (None, None, None))
    if name is None:
        raise CudaInteropError(what, "what it hands out is not a DLPack capsule", "update that library")
    address = _capsule_get(capsule, name)
    managed = kind_of.from_address(address)
    if kind_of is _Versioned and managed.major != _VERSION[0]:
        found = f"its DLPack is of version {managed.major}"
        raise CudaInteropError(what, found, "update hloom")  # the capsule, not renamed, gives the tensor back
    tensor = managed.tensor
    dims = tuple(tensor.shape[k] for k in range(tensor.ndim))
    strides = tuple(tensor.strides[k] for k in range(tensor.ndim)) if tensor.strides else None
    dtype = _DTYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if dtype is None:
        found = f"its elements are of DLPack type {tensor.code} of {tensor.bits} bits"
        raise CudaInteropError(what, found, "convert it first")
    _check_contiguous(what, dims, strides)
    _capsule_rename(capsule, used)

    def give_back():
        if managed.deleter:
            _Deleter(managed.deleter)(address)

    return _borrowed(device, (tensor.data or 0) + tensor.byte_offset, Shape(dtype, dims), give_back, other)


def _from_interface(device, other):
    what = f"a {type(other).__name__} was taken on {device}"
    facts = other.__cuda_array_interface__
    dtype, dims = np.dtype(facts["typestr"]), tuple(facts["shape"])
    if dtype not in _DTYPES.values():
        raise CudaInteropError(what, f"its elements are {facts['typestr']}", "convert it first")
    strides = facts.get("strides")
    _check_contiguous(what, dims, strides and tuple(s // dtype.itemsize for s in strides))
    stream = facts.get("stream")
    with device.guard() as api:
        if stream is not None:
            api.wait_event(device.main, device.record(api.stream_of(int(stream))).handle)

    def give_back(kept=other):  # holding it is all there is to do
        del kept

    return _borrowed(device, facts["data"][0], Shape(dtype, dims), give_back, other)


def _check_contiguous(what: str, dims, strides) -> None:
    if strides is None or 0 in dims:
        return
    if any(n > 1 and s != want for n, s, want in zip(dims, strides, _strides(dims), strict=True)):
        raise CudaInteropError(
            what, f"its memory is not contiguous (extents {dims}, strides {strides})", "make it contiguous first"
        )


def _borrowed(device, address: int, shape: Shape, give_back, other):
    from hloom.runtime.cuda.array import DeviceArray

    def release(address, capacity, stream, pending, readers, shelved):
        device.later(give_back, readers)

    buffer = Buffer(address, shape.bytes, shape.bytes, f"memory of a {type(other).__name__}", release)
    buffer.owned = False
    return DeviceArray(device, buffer, shape)
