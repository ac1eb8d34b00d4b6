"""Arrays from and for other libraries: NumPy, PyTorch, and all that speak DLPack.

`np.asarray(x)` and `LIBRARY.from_dlpack(x)` read an hloom array where it lies. What comes in is copied unless
copy=False says that the memory may be shared: an array of hloom does not change, so nobody should write to it then.
"""

from __future__ import annotations

import numpy as np

from hloom.arrays.array import Array, from_python
from hloom.arrays.operators import ArrayMethods
from hloom.errors import ArgumentError, DeviceError, DTypeError
from hloom.ir.types import DTYPES, HLO_NAME, as_dtype

# PyTorch's dtypes that NumPy has no name for: the integers of their bits.
_BITS_OF = {
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2": "f8e5m2",
    "float8_e5m2fnuz": "f8e5m2fnuz",
    "float8_e8m0fnu": "f8e8m0fnu",
}


def from_numpy(array, *, copy: bool = True) -> Array:
    """An Array of a NumPy array, with its dtype. Raises ArgumentError, DTypeError.

    copy=False takes contiguous memory as it is.
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
        raise DeviceError(
            "a tensor was to be taken over", f"it is on {tensor.device}", "copy it to the CPU first: tensor.cpu()"
        )
    if str(tensor.layout) != "torch.strided":
        raise ArgumentError("from_torch takes dense tensors", f"layout {tensor.layout}", "call tensor.to_dense()")
    tensor = tensor.detach().resolve_conj().resolve_neg()
    name = str(tensor.dtype).removeprefix("torch.")
    if name in _BITS_OF:
        import torch

        dtype = DTYPES[_BITS_OF[name]]
        bits = tensor.contiguous().view(torch.int16 if dtype.itemsize == 2 else torch.uint8)
        return from_numpy(bits.numpy().view(dtype), copy=copy)
    try:
        array = tensor.numpy()
    except TypeError as error:
        found = f"dtype {tensor.dtype}: {error}"
        raise DTypeError("a tensor was to be taken over", found, "convert it first") from None
    return from_numpy(array, copy=copy)


def to_numpy(x) -> np.ndarray:
    """An array as a new NumPy array, which may be written to. `np.asarray(x)` is a read-only view without a copy."""
    return np.array(x)


def to_torch(x, *, copy: bool = True):
    """A PyTorch tensor of an array, with its dtype. copy=False shares the memory, which is not to be written to.

    Raises ArgumentError, and ImportError where there is no PyTorch.
    """
    import torch

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
