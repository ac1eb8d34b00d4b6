"""Arrays of other libraries borrowed without a copy: by DLPack, or by __cuda_array_interface__ version 3.

    import_array(device, other) -> DeviceArray       by DLPack where `other` has it, else by the interface

The other library's stream is told of ours. Memory that was borrowed is given back only when our stream is done with it.
"""

from __future__ import annotations

import numpy as np

from hloom.ir.types import Shape
from hloom.runtime.cuda.array import DeviceArray
from hloom.runtime.cuda.dlpack import (
    CUDA,
    CUDA_MANAGED,
    DTYPES,
    NAMES,
    VERSION,
    Deleter,
    Versioned,
    capsule_get,
    capsule_is,
    rename_capsule,
    strides_of,
)
from hloom.runtime.cuda.errors import CudaInteropError
from hloom.runtime.cuda.memory import Buffer


def import_array(device, other):
    """A DeviceArray over the memory of another library's array on the same device, without a copy.

    other: has __dlpack__ or __cuda_array_interface__. Raises CudaInteropError for other devices, non-contiguous memory
    and dtypes that hloom lacks.
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
        capsule = other.__dlpack__(stream=int(device.main), max_version=VERSION)
    except TypeError:  # a library older than max_version
        capsule = other.__dlpack__(stream=int(device.main))
    found = next((n for n in NAMES if capsule_is(capsule, n[0])), None)
    if found is None:
        raise CudaInteropError(what, "its __dlpack__ does not return a DLPack capsule", "update that library")
    name, used, kind_of = found
    address = capsule_get(capsule, name)
    managed = kind_of.from_address(address)
    if kind_of is Versioned and managed.major != VERSION[0]:
        version = f"its DLPack is of version {managed.major}"
        raise CudaInteropError(what, version, "update hloom")  # a capsule that was not renamed releases the tensor
    tensor = managed.tensor
    dims = tuple(tensor.shape[k] for k in range(tensor.ndim))
    strides = tuple(tensor.strides[k] for k in range(tensor.ndim)) if tensor.strides else None
    dtype = DTYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if dtype is None:
        elements = f"its elements are of DLPack type {tensor.code} of {tensor.bits} bits"
        raise CudaInteropError(what, elements, "convert it first")
    _check_contiguous(what, dims, strides)
    rename_capsule(capsule, used)

    def release():
        if managed.deleter:
            Deleter(managed.deleter)(address)

    return _borrowed(device, (tensor.data or 0) + tensor.byte_offset, Shape(dtype, dims), release, other)


def _from_interface(device, other):
    what = f"a {type(other).__name__} was taken on {device}"
    facts = other.__cuda_array_interface__
    dtype, dims = np.dtype(facts["typestr"]), tuple(facts["shape"])
    if dtype not in DTYPES.values():
        raise CudaInteropError(what, f"its elements are {facts['typestr']}", "convert it first")
    strides = facts.get("strides")
    _check_contiguous(what, dims, strides and tuple(s // dtype.itemsize for s in strides))
    stream = facts.get("stream")
    with device.guard() as api:
        if stream is not None:
            api.wait_event(device.main, device.record(api.stream_of(int(stream))).handle)

    def release(kept=other):  # holding it is all there is to do
        del kept

    return _borrowed(device, facts["data"][0], Shape(dtype, dims), release, other)


def _check_contiguous(what: str, dims, strides) -> None:
    if strides is None or 0 in dims:
        return
    if any(n > 1 and s != want for n, s, want in zip(dims, strides, strides_of(dims), strict=True)):
        raise CudaInteropError(
            what, f"its memory is not contiguous (extents {dims}, strides {strides})", "make it contiguous first"
        )


def _borrowed(device, address: int, shape: Shape, release, other):
    def defer_release(address, capacity, stream, pending, readers, shelved):
        device.defer(release, readers)

    buffer = Buffer(address, shape.bytes, shape.bytes, f"memory of a {type(other).__name__}", defer_release)
    buffer.owned = False
    return DeviceArray(device, buffer, shape)
