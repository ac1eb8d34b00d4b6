"""Arrays as text and in files: NumPy's print options and formats."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from hloom.arrays.array import Array
from hloom.arrays.interchange import from_python
from hloom.lax import iota
from hloom.lax.operands import NUMBERS, as_operand, canonical_shape, default_float
from hloom.numpy.creation import array, asarray
from hloom.transforms.vmap import vmap

# Arrays print with NumPy's options, so these are NumPy's functions.
printoptions, set_printoptions, get_printoptions = np.printoptions, np.set_printoptions, np.get_printoptions


def array_repr(arr, max_line_width=None, precision=None, suppress_small=None) -> str:
    """The text of `repr(arr)`, with a width, a number of digits, and tiny numbers as 0 if wanted.

    >>> hnp.array_repr(hnp.array([1, 2]))
    'Array([1, 2], dtype=int32)'
    """
    x = as_operand(arr, "array_repr")
    width = get_printoptions()["linewidth"] if max_line_width is None else max_line_width
    with _options(precision, suppress_small, linewidth=width):
        return repr(x)


def array_str(a, max_line_width=None, precision=None, suppress_small=None) -> str:
    """The text of `str(a)`, with a width, a number of digits, and tiny numbers as 0 if wanted.

    >>> hnp.array_str(hnp.array([1, 2]))
    '[1 2]'
    """
    return np.array_str(np.asarray(as_operand(a, "array_str")), max_line_width, precision, suppress_small)


def _options(precision, suppress, **more):
    chosen = dict(more)
    if precision is not None:
        chosen["precision"] = precision
    if suppress is not None:
        chosen["suppress"] = suppress
    return printoptions(**chosen)


# --- files --------------------------------------------------------------------------------------------------------


def _for_file(value):
    """The NumPy array to write.

    The format cannot name the dtypes of ml_dtypes. bfloat16 becomes two unnamed bytes, as in JAX; the others become
    records with one field, named after the dtype.
    """
    # Python scalars and NumPy arrays keep all their bits instead of being narrowed.
    array = np.asarray(value if isinstance(value, (np.ndarray, np.generic, *NUMBERS)) else as_operand(value, "save"))
    if array.dtype.isbuiltin != 2 or array.dtype == ml_dtypes.bfloat16:
        return array
    return array.view(np.dtype([(array.dtype.name, f"V{array.dtype.itemsize}")]))


def _from_file(found):
    """The inverse of `_for_file`."""
    if not isinstance(found, np.ndarray):
        return found
    if found.dtype == np.dtype("V2"):
        return found.view(ml_dtypes.bfloat16)
    if found.dtype.names and len(found.dtype.names) == 1 and hasattr(ml_dtypes, found.dtype.names[0]):
        return found.view(getattr(ml_dtypes, found.dtype.names[0]))
    return found


class _Archive(np.lib.npyio.NpzFile):
    """An open .npz file whose arrays have hloom's dtypes."""

    def __getitem__(self, key):
        return _from_file(super().__getitem__(key))


def save(file, arr, allow_pickle: bool = True) -> None:
    """Writes an array into a file of NumPy's format (.npy). file: a path or an open file.

    >>> import io
    >>> file = io.BytesIO()
    >>> hnp.save(file, hnp.array([1, 2]))
    >>> len(file.getvalue())
    136
    """
    np.save(file, _for_file(arr), allow_pickle=allow_pickle)


def savez(file, *args, allow_pickle: bool = True, **kwds) -> None:
    """Writes arrays into one uncompressed .npz file, under their keywords or arr_0, arr_1, ...

    >>> hnp.savez("arrays.npz", x=hnp.array([1, 2]))
    >>> hnp.load("arrays.npz")["x"]
    array([1, 2], dtype=int32)
    """
    np.savez(file, *map(_for_file, args), allow_pickle=allow_pickle, **{n: _for_file(v) for n, v in kwds.items()})


def load(file, *args, **kwargs):
    """The array of an .npy file; of an .npz file NumPy's dictionary of NumPy arrays. Arguments as numpy.load's.

    Elements of two unnamed bytes are read as bfloat16, whose name the format does not store.

    >>> import io
    >>> file = io.BytesIO()
    >>> hnp.save(file, hnp.array([1, 2]))
    >>> _ = file.seek(0)
    >>> hnp.load(file)
    Array([1, 2], dtype=int32)
    """
    found = np.load(file, *args, **kwargs)
    if isinstance(found, np.lib.npyio.NpzFile):
        found.__class__ = _Archive
    found = _from_file(found)
    if not isinstance(found, np.ndarray):
        return found
    return Array(np.ascontiguousarray(found).reshape(found.shape))


def fromfile(file, dtype=float, count: int = -1, sep: str = "", offset: int = 0):
    """A vector of the elements in a binary or (with sep) text file, as numpy.fromfile reads them. Raises DTypeError."""
    return from_python(np.fromfile(file, asarray(0, dtype).dtype, count, sep, offset=offset))


def fromstring(string: str, dtype=float, count: int = -1, *, sep: str):
    """A vector of the numbers in a string, separated by sep. Raises DTypeError.

    >>> hnp.fromstring("1 2 3", dtype=hnp.int32, sep=" ")
    Array([1, 2, 3], dtype=int32)
    """
    return from_python(np.fromstring(string, asarray(0, dtype).dtype, count, sep=sep))


def fromiter(iter, dtype, count: int = -1):
    """A vector of the first count numbers of an iterator. Raises DTypeError.

    >>> hnp.fromiter((k * k for k in range(4)), dtype=hnp.int32)
    Array([0, 1, 4, 9], dtype=int32)
    """
    return from_python(np.fromiter(iter, asarray(0, dtype).dtype, count))


def fromfunction(function, shape, *, dtype=None, **kwargs):
    """function(i, j, ...) for each index of this shape: called once with the indices of one element, then mapped.

    dtype: of the indices, floats by default. Further keywords are passed to the function. Raises ShapeError.

    >>> hnp.fromfunction(lambda i, j: 10 * i + j, (2, 3), dtype=int)
    Array([[ 0,  1,  2],
           [10, 11, 12]], dtype=int32)
    """
    dims = canonical_shape(shape, "fromfunction")
    mapped = function if not kwargs else lambda *index: function(*index, **kwargs)
    for axis in reversed(range(len(dims))):
        chosen: list[int | None] = [None] * len(dims)
        chosen[axis] = 0
        mapped = vmap(mapped, in_axes=tuple(chosen))
    kind = default_float() if dtype is None else array(0, dtype).dtype
    return mapped(*(iota(kind, extent) for extent in dims))
