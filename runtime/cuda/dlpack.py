"""DLPack's structures and capsules, as ctypes."""

from __future__ import annotations

import ctypes
from math import prod

import ml_dtypes
import numpy as np

CUDA, CUDA_HOST, CUDA_MANAGED = 2, 3, 13  # DLPack's kinds of devices
READ_ONLY = 1
VERSION = (1, 0)

# DLPack's type codes.
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_BFLOAT = 4
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = {(code, dtype.itemsize * 8): dtype for dtype in map(np.dtype, (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "complex64", "complex128", "bool",
)) for code in (_CODES[dtype.kind],)} | {(_BFLOAT, 16): BFLOAT16}  # fmt: skip
CODES_OF = {dtype: key for key, dtype in DTYPES.items()}


class Tensor(ctypes.Structure):
    """DLTensor: memory, device, dtype, shape and strides in elements."""

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


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    """Before version 1.0: capsules named 'dltensor'."""

    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    """From version 1.0: capsules named 'dltensor_versioned'."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


_python = ctypes.pythonapi
new_capsule = _python.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
capsule_is = _python.PyCapsule_IsValid
capsule_is.restype, capsule_is.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
capsule_get = _python.PyCapsule_GetPointer
capsule_get.restype, capsule_get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
rename_capsule = _python.PyCapsule_SetName
rename_capsule.restype, rename_capsule.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]

NAMES = ((b"dltensor_versioned", b"used_dltensor_versioned", Versioned), (b"dltensor", b"used_dltensor", Managed))


def strides_of(dims) -> list[int]:
    """In elements, of contiguous memory."""
    return [prod(dims[k + 1 :]) for k in range(len(dims))]
