"""Arrays shared with other libraries: what the capsules hold, who waits for whom, and when memory goes back."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref

import cuda_cases as cases
import ml_dtypes
import numpy as np
import pytest
from cuda_cases import VECTOR, N, device, fetch, finish, vectors
from fake_cuda import LEGACY, PER_THREAD
from fake_cuda_model import reads, writes

from hloom.ir.types import Shape
from hloom.runtime.cuda.array import DeviceArray
from hloom.runtime.cuda.errors import CudaInteropError
from hloom.runtime.cuda.interop import import_array
from hloom.runtime.cuda.programs.executable import Executable

TENSOR = {"dltensor": 0, "dltensor_versioned": 32}  # where the tensor begins, by the standard
DELETER = {"dltensor": 56, "dltensor_versioned": 16}


def pointer_of(capsule) -> tuple[str, int]:
    """(name, address) of a capsule."""
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name = name_of(capsule)
    return name.decode(), get(capsule, name)


class Taken:
    """What another library makes of a capsule: read by the offsets of the standard, not by our declarations."""

    def __init__(self, capsule):
        name, self.address = pointer_of(capsule)
        at = self.address + TENSOR[name]
        word = lambda kind, offset: kind.from_address(at + offset).value  # noqa: E731
        self.data, self.device = word(ctypes.c_uint64, 0), (word(ctypes.c_int32, 8), word(ctypes.c_int32, 12))
        rank = word(ctypes.c_int32, 16)
        self.type = word(ctypes.c_uint8, 20), word(ctypes.c_uint8, 21), word(ctypes.c_uint16, 22)
        self.shape, self.strides = (
            tuple((ctypes.c_int64 * rank).from_address(word(ctypes.c_uint64, offset))) if rank else ()
            for offset in (24, 32)
        )
        self.offset = word(ctypes.c_uint64, 40)
        self.version = (ctypes.c_uint32 * 2).from_address(self.address)[:] if "versioned" in name else None
        self._deleter = ctypes.c_void_p.from_address(self.address + DELETER[name]).value
        rename = ctypes.pythonapi.PyCapsule_SetName
        rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
        self._name = b"used_" + name.encode()
        rename(capsule, self._name)

    def drop(self):
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._deleter)(self.address)


def put(dev, array) -> DeviceArray:
    return DeviceArray.put(dev, np.asarray(array), "shared")


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (1, 1)])
@pytest.mark.parametrize(
    "dtype, code",
    [
        ("float32", 2),
        ("int8", 0),
        ("uint64", 1),
        ("complex64", 5),
        ("bool", 6),
        (ml_dtypes.bfloat16, 4),
        ("float16", 2),
    ],
)
def test_what_a_capsule_says(version, dtype, code):
    dev = device()
    array = put(dev, np.zeros((2, 3, 4), dtype))
    taken = Taken(array.__dlpack__(max_version=version))
    assert taken.data == array.buffer.address and taken.offset == 0
    assert taken.device == array.__dlpack_device__() == (2, 0)
    assert taken.type == (code, np.dtype(dtype).itemsize * 8, 1)
    assert taken.shape == (2, 3, 4) and taken.strides == (12, 4, 1)
    assert taken.version == ([1, 0] if version and version[0] else None)
    taken.drop()
    del array
    dev.memory()
    finish(dev)


def test_a_library_may_be_done_after_the_device_is_closed():
    dev = device()
    array = put(dev, vectors(1)[0])
    taken = Taken(array.__dlpack__())
    finish(dev)
    del array, dev
    gc.collect()
    assert taken.shape == (N,)
    taken.drop()  # writes into memory that is still there


def test_an_exception_on_its_way_is_not_lost():
    """Another library lets go of the array while its stack unwinds."""
    dev = device()
    array = put(dev, vectors(1)[0])

    class Tensor:
        def __init__(self):
            self.taken = Taken(array.__dlpack__())

        def __del__(self):
            self.taken.drop()

    def work():
        tensor = Tensor()
        raise KeyError(tensor.taken.shape)

    with pytest.raises(KeyError, match="1000"):
        work()
    gc.collect()
    array = None
    assert dev.memory().bytes_in_use == 0
    finish(dev)


def test_numpy_can_read_the_capsule_and_says_that_it_is_of_a_gpu():
    dev = device()
    with pytest.raises((BufferError, RuntimeError), match="(?i)device"):
        np.from_dlpack(put(dev, np.zeros(3)))
    gc.collect()
    finish(dev)


def test_memory_lives_as_long_as_the_other_library_has_it():
    dev = device()
    array = put(dev, vectors(1)[0])
    capsule = array.__dlpack__()
    taken = Taken(capsule)
    del array, capsule
    assert dev.memory().bytes_in_use > 0
    thread = threading.Thread(target=taken.drop)
    thread.start()
    thread.join()
    assert dev.memory().bytes_in_use == 0
    finish(dev)


def test_a_capsule_that_nobody_takes_gives_the_memory_back():
    dev = device()
    for version in (None, (1, 0)):
        array = put(dev, vectors(1)[0])
        capsule = array.__dlpack__(max_version=version)
        del array
        assert dev.memory().bytes_in_use > 0
        del capsule
        assert dev.memory().bytes_in_use == 0
    finish(dev)


@pytest.mark.parametrize("stream", [None, LEGACY, PER_THREAD, "own", "ours"])
def test_the_taker_waits_for_us_and_we_for_the_taker(stream):
    """The fake raises where either does not."""
    dev = device().open()
    own = dev.api.create_stream()
    number = {"own": int(own), "ours": int(dev.main)}.get(stream, stream)
    run = Executable(cases.straight(), dev)
    x, y = vectors(2)
    (out,) = run([dev.put(x, "x"), dev.put(y, "y")])
    array = DeviceArray(dev, out, VECTOR)
    taken = Taken(array.__dlpack__(stream=number))
    address = out.address
    theirs = LEGACY if number is None else number
    dev.fake.enqueue(theirs, [reads(address, 4 * N), writes(address, 4 * N)], None, "the other library's kernel")
    del array, out
    taken.drop()
    dev.memory()
    again = dev.pool.take(4 * N, "again")
    assert again.address == address
    dev.api.fill(again.address, 0, 4 * N, dev.main)
    dev.api.destroy_stream(own)
    finish(dev)


def test_without_order_nothing_is_enqueued_and_stream_0_is_refused():
    dev = device()
    array = put(dev, vectors(1)[0])
    start = len(dev.fake.calls)
    taken = Taken(array.__dlpack__(stream=-1))
    assert dev.fake.calls[start:] == []
    with pytest.raises(CudaInteropError, match="either default stream"):
        array.__dlpack__(stream=0)
    taken.drop()
    finish(dev)


def test_what_dlpack_cannot_do_is_said():
    dev = device()
    array = put(dev, vectors(1)[0])
    for options in ({"dl_device": (1, 0)}, {"dl_device": (2, 1)}, {"copy": True}):
        with pytest.raises(CudaInteropError) as caught:
            array.__dlpack__(**options)
        assert caught.value.repair
    assert array.__dlpack__(dl_device=(2, 0), copy=False) is not None
    with pytest.raises(CudaInteropError, match="DLPack has no"):
        put(dev, np.zeros(3, ml_dtypes.float8_e5m2)).__dlpack__()
    finish(dev)


# --- taking ---


class Library:
    """An array of another library on the fake GPU."""

    def __init__(self, dev, array, version=(1, 0), kind=2, index=0):
        self.inner = put(dev, array)
        self.where, self.version, self.streams = (kind, index), version, []
        dev.synchronize()

    def __dlpack_device__(self):
        return self.where

    def __dlpack__(self, *, stream=None, **options):
        if self.version is None and options:
            raise TypeError("max_version is not known here")
        self.streams.append(stream)
        return self.inner.__dlpack__(stream=stream, max_version=self.version)


@pytest.mark.parametrize("version", [None, (1, 0)])
@pytest.mark.parametrize("array", [np.arange(12, dtype=np.float32).reshape(3, 4), np.bool_(True), np.zeros((2, 0))])
def test_an_array_of_another_library_is_taken_as_it_is(version, array):
    dev = device()
    theirs = Library(dev, array, version)
    ours = import_array(dev, theirs)
    assert ours.buffer.address == theirs.inner.buffer.address
    assert ours.shape == np.shape(array) and ours.dtype == np.asarray(array).dtype
    assert theirs.streams == [int(dev.main)]
    assert (ours.numpy() == array).all()
    del ours
    finish(dev)


def test_programs_use_what_was_taken_and_it_goes_back_when_they_are_done():
    dev = device()
    x, y = vectors(2)
    theirs = Library(dev, x)
    ours = import_array(dev, theirs)
    run = Executable(cases.straight(), dev)
    (out,) = run([ours.buffer, dev.put(y, "y")])
    address = theirs.inner.buffer.address
    del ours, theirs
    assert address in dev.pool._live  # the program has not run yet
    assert (fetch(dev, out) == cases.straight_result(x, y)).all()
    dev.synchronize()
    dev.synchronize()
    assert address not in dev.pool._live or dev.pool._live[address]() is None
    finish(dev)


def test_what_was_taken_is_held_until_programs_that_use_it_are_done():
    dev = device()
    x, y = vectors(2)
    inner = put(dev, x)
    dev.synchronize()

    class Array:
        __cuda_array_interface__ = inner.__cuda_array_interface__

    theirs = Array()
    held = weakref.ref(theirs)
    ours = import_array(dev, theirs)
    (out,) = Executable(cases.straight(), dev)([ours.buffer, dev.put(y, "y")])
    del theirs, ours
    with dev.guard():  # a use of the device, in which what is done is given back
        pass
    assert held() is not None  # the fake has not run the program
    dev.wait(out.ready, "the program was waited for")
    dev.synchronize()
    dev.memory()
    assert held() is None
    finish(dev)


def test_arrays_that_cannot_be_taken():
    dev = device()
    for library, word in (
        (Library(dev, np.zeros(3), kind=1), r"DLPack device \(1, 0\)"),
        (Library(dev, np.zeros(3), index=1), r"DLPack device \(2, 1\)"),
    ):
        with pytest.raises(CudaInteropError, match=word):
            import_array(dev, library)
    with pytest.raises(CudaInteropError, match="neither"):
        import_array(dev, [1, 2])
    strided = Library(dev, np.zeros((4, 4), np.float32))

    def spoilt(offset, value, kind=ctypes.c_int64):
        def capsule(*, stream=None, max_version=None):
            result = strided.inner.__dlpack__(max_version=(1, 0))
            at = pointer_of(result)[1] + 32
            place = ctypes.c_uint64.from_address(at + 32).value if offset == "strides" else at + offset
            kind.from_address(place).value = value
            return result

        return capsule

    for offset, value, kind, word in (
        ("strides", 1, ctypes.c_int64, "not contiguous"),
        (21, 128, ctypes.c_uint8, "of 128 bits"),
        (22, 2, ctypes.c_uint16, "DLPack type"),
        (-32, 9, ctypes.c_uint32, "version 9"),
    ):
        strided.__class__ = type("Spoilt", (Library,), {"__dlpack__": staticmethod(spoilt(offset, value, kind))})
        with pytest.raises(CudaInteropError, match=word):
            import_array(dev, strided)
    strided.inner = library.inner = None
    gc.collect()
    assert dev.memory().bytes_in_use == 0  # the capsules gave everything back
    finish(dev)


# --- __cuda_array_interface__ ---


def test_the_interface_of_our_arrays():
    dev = device()
    array = put(dev, np.zeros((2, 3), np.float32))
    facts = array.__cuda_array_interface__
    assert facts == {
        "shape": (2, 3), "typestr": "<f4", "data": (array.buffer.address, False), "strides": None, "version": 3,
        "stream": int(dev.main),
    }  # fmt: skip
    assert array.buffer.pending is None  # who waits for our stream waits for the upload too
    assert put(dev, np.zeros((0, 3))).__cuda_array_interface__["data"][0] == 0
    assert not hasattr(put(dev, np.zeros(3, ml_dtypes.bfloat16)), "__cuda_array_interface__")
    finish(dev)


def test_an_array_with_the_interface_is_taken():
    dev = device().open()
    inner = put(dev, vectors(1)[0])
    dev.synchronize()
    own = dev.api.create_stream()
    dev.fake.enqueue(own, [writes(inner.buffer.address, 4 * N)], None, "the other library's kernel")

    class Array:
        __cuda_array_interface__ = {**inner.__cuda_array_interface__, "stream": int(own), "strides": (4,)}

    ours = import_array(dev, Array())
    assert ours.buffer.address == inner.buffer.address and ours.shape_and_dtype is Shape("f32", (N,))
    ours.numpy()  # after their kernel, or the fake says that it is not
    for change, word in (({"strides": (8,)}, "contiguous"), ({"typestr": "<M8"}, "elements")):
        Array.__cuda_array_interface__ = {**Array.__cuda_array_interface__, **change}
        with pytest.raises(CudaInteropError, match=word):
            import_array(dev, Array())
    dev.api.destroy_stream(own)
    finish(dev)
