"""The structs and constants of XLA's FFI: `xla/ffi/api/c_api.h`, version 0.3 (OpenXLA, Apache 2.0)."""

from __future__ import annotations

from ctypes import Structure, c_int32, c_int64

__all__ = [
    "API_FUNCTIONS", "DATA_TYPES", "EXECUTE", "INSTANTIATE", "Api", "Array", "Attributes", "Buffer", "ByteSpan",
    "CallFrame", "Scalar", "Values",
]  # fmt: skip

INSTANTIATE, EXECUTE = 0, 3  # stages

DATA_TYPES = {
    "pred": 1, "s2": 26, "s4": 21, "s8": 2, "s16": 3, "s32": 4, "s64": 5, "u2": 27, "u4": 22, "u8": 6, "u16": 7,
    "u32": 8, "u64": 9, "f16": 10, "f32": 11, "f64": 12, "bf16": 16, "c64": 15, "c128": 18, "f8e5m2": 19, "f8e3m4": 29,
    "f8e4m3": 28, "f8e4m3fn": 20, "f8e4m3b11fnuz": 23, "f8e5m2fnuz": 24, "f8e4m3fnuz": 25, "f4e2m1fn": 32,
    "f8e8m0fnu": 33,
}  # fmt: skip

API_FUNCTIONS = (
    "Error_Create", "Error_GetMessage", "Error_Destroy", "Handler_Register", "Stream_Get", "Type_Register",
    "ExecutionContext_Get", "State_Set", "State_Get", "DeviceMemory_Allocate", "DeviceMemory_Free",
    "ThreadPool_Schedule", "ThreadPool_NumThreads", "Future_Create", "Future_SetAvailable", "Future_SetError",
    "RunId_Get", "DeviceOrdinal_Get",
)  # fmt: skip


class Api(Structure):
    """XLA_FFI_Api."""

    _fields_ = (
        ("size", c_int64), ("extensions", c_int64), ("version_size", c_int64), ("version_extensions", c_int64),
        ("major", c_int32), ("minor", c_int32), ("internal", c_int64), ("functions", c_int64 * len(API_FUNCTIONS)),
    )  # fmt: skip


class ByteSpan(Structure):
    """XLA_FFI_ByteSpan."""

    _fields_ = (("address", c_int64), ("size", c_int64))


class Scalar(Structure):
    """XLA_FFI_Scalar."""

    _fields_ = (("dtype", c_int32), ("address", c_int64))


class Array(Structure):
    """XLA_FFI_Array."""

    _fields_ = (("dtype", c_int32), ("count", c_int64), ("address", c_int64))


class Buffer(Structure):
    """XLA_FFI_Buffer."""

    _fields_ = (
        ("size", c_int64), ("extensions", c_int64), ("dtype", c_int32), ("address", c_int64), ("rank", c_int64),
        ("dims", c_int64),
    )  # fmt: skip


class Values(Structure):
    """XLA_FFI_Args and XLA_FFI_Rets."""

    _fields_ = (
        ("size", c_int64), ("extensions", c_int64), ("count", c_int64), ("types", c_int64), ("values", c_int64),
    )  # fmt: skip


class Attributes(Structure):
    """XLA_FFI_Attrs."""

    _fields_ = (
        ("size", c_int64), ("extensions", c_int64), ("count", c_int64), ("types", c_int64), ("names", c_int64),
        ("values", c_int64),
    )  # fmt: skip


class CallFrame(Structure):
    """XLA_FFI_CallFrame."""

    _fields_ = (
        ("size", c_int64), ("extensions", c_int64), ("api", c_int64), ("context", c_int64), ("stage", c_int32),
        ("arguments", Values), ("results", Values), ("attributes", Attributes), ("future", c_int64),
    )  # fmt: skip
