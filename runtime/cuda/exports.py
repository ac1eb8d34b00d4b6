"""Arrays lent to other libraries, without a copy: DLPack, and __cuda_array_interface__ version 3.

    export_dlpack(array, stream, ...) -> capsule     cuda_array_interface(array) -> dict

The borrower's stream waits for the array. When the borrower drops it, our stream waits for that stream before the
memory is used again; where that stream is not one of the two default streams it may be gone by then, and the whole GPU
is waited for.
"""

from __future__ import annotations

import ctypes
from functools import cache
from sys import getrefcount

from hloom.runtime import native
from hloom.runtime.cuda.api import LEGACY_STREAM, PER_THREAD_STREAM
from hloom.runtime.cuda.dlpack import (
    BFLOAT16,
    CODES_OF,
    CUDA,
    NAMES,
    VERSION,
    Managed,
    Versioned,
    capsule_is,
    new_capsule,
    strides_of,
)
from hloom.runtime.cuda.errors import CudaInteropError

_outstanding: set[_Given] = set()  # keeps tensors alive until their consumers release them


class _Given:
    """An array while another library has it, or may take it from the capsule.

    The library releases it by calling `deleter`, from any thread, with or without the GIL, and possibly while an
    exception propagates, which Python code would lose. So that call runs no Python: it sets a flag after the tensor
    (`_deleter`), which `collect` reads. A capsule has no destructor for the same reason: it is kept here until it is
    consumed, or until it has no other references.
    """

    def __init__(self, managed, array, numbers, stream: int):
        self.managed, self.array, self.numbers, self.stream = managed, array, numbers, stream
        self.name = NAMES[0 if isinstance(managed, Versioned) else 1][0]
        address = ctypes.addressof(managed)
        self.flag = ctypes.c_int64.from_address(address + _FLAG)
        self.capsule = new_capsule(address, self.name, None)
        _outstanding.add(self)

    def is_done(self) -> bool:
        if self.flag.value:
            return True
        if self.capsule is not None:
            if not capsule_is(self.capsule, self.name):
                self.capsule = None  # consumed: renamed by its new owner
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


_ALONE = _Holder().references()  # the reference count of an attribute without other references


@cache
def _deleter() -> int:
    """Address of the C function that sets the flag. LLVM assembles it at the first use (some 10 ms); it is never freed,
    as other libraries may call it while Python shuts down."""
    import llvmlite.binding as llvm  # saves start-up time: LLVM

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
    """Reclaims tensors that other libraries have released."""
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
    """A capsule over the memory of a DeviceArray, which stays alive until the consumer drops it.

    stream: the consumer's, as an integer: None or 1 the legacy default stream, 2 the per-thread one, -1 no ordering.
    Raises CudaInteropError for other devices, copies, and dtypes that DLPack cannot represent.
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
    if dtype not in CODES_OF:
        raise CudaInteropError(f"{array} was handed to another library", f"DLPack has no {dtype}", "convert it first")
    code, bits = CODES_OF[dtype]
    rank = len(array.shape)
    numbers = (ctypes.c_int64 * max(2 * rank, 1))(*array.shape, *strides_of(array.shape))
    room = _Room()
    kind = Versioned if max_version is not None and max_version[0] >= 1 else Managed
    managed = kind.from_buffer(room)
    tensor = managed.tensor
    tensor.data, tensor.device_type, tensor.device_id = array.buffer.address, CUDA, array.device.facts.index
    tensor.ndim, tensor.code, tensor.bits, tensor.lanes = rank, code, bits, 1
    first = ctypes.addressof(numbers)
    tensor.shape = ctypes.cast(first, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(first + 8 * rank, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = _deleter()
    if isinstance(managed, Versioned):
        managed.major, managed.minor = VERSION
    given = _Given(managed, array, numbers, _order(array, stream))
    array.device.given.append(given)
    return given.capsule


def cuda_array_interface(array) -> dict:
    """Version 3. `stream` is ours: the consumer waits for it. Raises CudaError, AttributeError for a dtype that
    NumPy has no type string for."""
    if array.dtype not in CODES_OF or array.dtype == BFLOAT16:
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
