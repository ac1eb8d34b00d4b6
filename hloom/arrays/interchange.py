"""Conversion of arrays from and to Python and other libraries: numbers, nested lists, NumPy, PyTorch, DLPack.

`np.asarray(x)` and `LIBRARY.from_dlpack(x)` read an hloom array without a copy. Imported data are copied unless
copy=False allows sharing the memory: hloom arrays are immutable, so it must then not be written to.
"""

from __future__ import annotations

import numpy as np

from hloom.arrays.array import Array
from hloom.arrays.base import ArrayMethods
from hloom.errors import ArgumentError, DeviceError, DTypeError
from hloom.ir.sizes.expressions import SizeExpression
from hloom.ir.types import DTYPES, HLO_NAME, NARROWED, as_dtype, default_dtype, scalar_dtype
from hloom.platforms.kinds import kind_of_dlpack
from hloom.sharding.shardings import device_of

# PyTorch's dtypes that NumPy has no name for: the integers of their bits.
_BITS_OF = {
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2": "f8e5m2",
    "float8_e5m2fnuz": "f8e5m2fnuz",
    "float8_e8m0fnu": "f8e8m0fnu",
}

_LARGEST_F32 = float(np.finfo(np.float32).max)


def from_python(value, dtype=None) -> Array:
    """An Array of a NumPy array, a number, nested lists of them, or anything with DLPack or `__array__`.

    NumPy arrays that own contiguous memory are shared only when they are read-only; others are copied, so that later
    writes cannot change an immutable Array. An array that another library has on a GPU is shared: it stays there.
    Raises ArgumentError, CudaError, DTypeError.
    """
    if isinstance(value, Array):
        return value if dtype is None or value.dtype == dtype else Array(value._value().astype(dtype))
    if isinstance(value, (bool, int, float, complex)):
        natural, weak = scalar_dtype(value)
        return _number(value, natural) if weak and dtype is None else Array(np.asarray(value, dtype or natural))
    if isinstance(value, SizeExpression):
        return value.as_array() if dtype is None else value.as_array().astype(dtype)
    if isinstance(value, (np.ndarray, np.generic)):
        return Array(_owned(value, dtype))
    if (shared := _borrowed(value)) is not None:
        return shared if dtype is None or shared.dtype == dtype else Array(shared._value().astype(dtype))
    return _from_objects(value, dtype)


def _from_objects(value, dtype) -> Array:
    """An Array of nested lists, or of another library's array."""
    # Arrays of other libraries have a dtype; Python's numbers take the default one.
    is_array = any(hasattr(value, name) for name in ("__dlpack__", "__array__", "__array_interface__"))
    numbers = _from_nested(value)
    if numbers.dtype.kind not in "iufc" or is_array or dtype is not None:
        return Array(_owned(numbers, dtype))
    rounded = numbers.astype(_default_of(numbers))
    result = Array(_owned(rounded, None))
    if rounded.dtype.kind in "fc" and not np.array_equal(numbers, rounded, equal_nan=True):
        result._created_by = "array"
    return result


def _owned(value: np.ndarray | np.generic, dtype) -> np.ndarray:
    """The elements in a dtype, in memory that is never written to."""
    if dtype is None:
        natural = as_dtype(value.dtype)
        target = NARROWED.get(natural, natural)
    else:
        target = as_dtype(dtype)
    readonly = isinstance(value, np.ndarray) and not value.flags.writeable and value.base is None
    data = np.ascontiguousarray(value, target).reshape(np.shape(value))
    if readonly or not isinstance(value, np.ndarray) or not np.shares_memory(data, value):
        return data
    return data.copy()


def _number(value: int | float | complex, dtype: np.dtype) -> Array:
    """A weakly typed Python number."""
    if type(value) is int:
        return Array(np.asarray(value, dtype), True)
    if type(value) is complex or abs(value) > _LARGEST_F32:  # NumPy would warn, yet the exact value is kept separately
        with np.errstate(over="ignore"):
            result = Array(np.asarray(value, dtype), True)
    else:
        result = Array(np.asarray(value, dtype), True)
    result._exact = value
    return result


def _default_of(values: np.ndarray) -> np.dtype:
    """The dtype of an array of Python numbers: the default of their kind, wider where they do not fit."""
    kind = values.dtype.kind
    if kind in "iu":
        chosen = default_dtype(int)
        limits = np.iinfo(chosen)
        if values.size and not (limits.min <= values.min() and values.max() <= limits.max):
            return values.dtype
        return chosen
    return default_dtype(float if kind == "f" else complex)


_HOST_TYPES = (1, 3)  # DLPack's device types of memory that the host reads: plain, and pinned for CUDA


def _borrowed(value) -> Array | None:
    """An Array over the memory of another library's array on a device that keeps arrays; None for one of the host.

    Raises CudaError, DeviceError if no kind of device shares that memory.
    """
    if not hasattr(value, "__dlpack_device__"):
        return None
    device_type, index = (int(number) for number in value.__dlpack_device__())
    if device_type in _HOST_TYPES:
        return None
    kind = kind_of_dlpack(device_type)
    if kind is None:
        found = f"it is on DLPack's device ({device_type}, {index})"
        raise DeviceError(f"import of a {type(value).__name__} through DLPack", found, "copy it to the CPU first")
    data, number = kind.borrow(value.detach() if hasattr(value, "detach") else value, index)  # torch's: no gradient
    return Array(data, device=device_of(f"{kind.name}:{number}"))


def _from_nested(value) -> np.ndarray:
    if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach"):
        return from_torch(value, copy=False)._value()  # tensors with a gradient, bfloat16
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError) as error:
            # NumPy's DLPack does not support bfloat16; such arrays may still convert themselves with `__array__`.
            if not hasattr(value, "__array__") or "dtype" not in str(error):
                raise DeviceError("import of an array through DLPack", str(error), "copy it to the CPU first") from None
    try:
        array = np.asarray(value)
        as_dtype(array.dtype)
        return array
    except (ValueError, TypeError):
        raise ArgumentError(
            "an array was expected",
            f"{type(value).__name__}: {value!r:.80}",
            "pass a number, a NumPy array, nested lists of equal lengths, or an hloom array",
        ) from None


def from_numpy(array, *, copy: bool = True) -> Array:
    """An Array of a NumPy array, with its dtype. Raises ArgumentError, DTypeError.

    copy=False takes contiguous memory as it is.

    >>> hl.from_numpy(np.array([1.5, 2.5], np.float32))
    Array([1.5, 2.5], dtype=float32)
    """
    if not isinstance(array, (np.ndarray, np.generic)):
        raise ArgumentError("from_numpy takes a NumPy array", f"{type(array).__name__}", "use hnp.asarray")
    if copy or not (isinstance(array, np.ndarray) and array.flags.c_contiguous and array.dtype.isnative):
        return from_python(array, array.dtype)
    as_dtype(array.dtype)  # an error where hloom has no such dtype
    view = array.view()
    view.flags.writeable = False
    return Array(view)


def from_torch(tensor, *, copy: bool = True) -> Array:
    """An Array of a PyTorch tensor on the CPU, detached from its gradient, with its dtype (bfloat16 and f8 too).

    copy=False takes contiguous memory as it is. Raises ArgumentError, DeviceError, DTypeError.
    """
    if not (hasattr(tensor, "detach") and hasattr(tensor, "device")):
        raise ArgumentError("from_torch takes a tensor of PyTorch", f"{type(tensor).__name__}", "use hnp.asarray")
    if tensor.device.type != "cpu":
        raise DeviceError("import of a tensor", f"it is on {tensor.device}", "copy it to the CPU first: tensor.cpu()")
    if str(tensor.layout) != "torch.strided":
        raise ArgumentError("from_torch takes dense tensors", f"layout {tensor.layout}", "call tensor.to_dense()")
    tensor = tensor.detach().resolve_conj().resolve_neg()
    name = str(tensor.dtype).removeprefix("torch.")
    if name in _BITS_OF:
        import torch  # an optional library, which takes seconds to start

        dtype = DTYPES[_BITS_OF[name]]
        bits = tensor.contiguous().view(torch.int16 if dtype.itemsize == 2 else torch.uint8)
        return from_numpy(bits.numpy().view(dtype), copy=copy)
    try:
        array = tensor.numpy()
    except TypeError as error:
        found = f"dtype {tensor.dtype}: {error}"
        raise DTypeError("import of a tensor", found, "convert it first") from None
    return from_numpy(array, copy=copy)


def to_numpy(x) -> np.ndarray:
    """An array as a new NumPy array, which may be written to. `np.asarray(x)` is a read-only view without a copy.

    >>> x = hl.to_numpy(hnp.array([1, 2]))
    >>> x[0] = 9
    >>> x
    array([9, 2], dtype=int32)
    """
    return np.array(x)


def to_torch(x, *, copy: bool = True):
    """A PyTorch tensor of an array, with its dtype. copy=False shares the memory, which must not be written to.

    Raises ArgumentError, and ImportError if there is no PyTorch.
    """
    import torch  # an optional library, which takes seconds to start

    if not isinstance(x, ArrayMethods):
        raise ArgumentError("to_torch takes an array of hloom", f"{type(x).__name__}", "use torch.as_tensor")
    view = x.__array__()
    dtype = view.dtype
    names = {DTYPES[ours]: theirs for theirs, ours in _BITS_OF.items()}
    if dtype in names:
        view = view.view(np.int16 if dtype.itemsize == 2 else np.uint8)
    elif dtype.isbuiltin == 2:
        raise DTypeError(f"PyTorch has no {HLO_NAME[dtype]}", f"{x._shape!r}", "convert it with astype first")
    tensor = torch.from_numpy(np.array(view)) if copy else torch.from_dlpack(Array(view))
    return tensor.view(getattr(torch, names[dtype])) if dtype in names else tensor
