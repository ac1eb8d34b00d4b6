"""Array: an immutable array on a device."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from hloom.arrays import repairs, views
from hloom.arrays.base import ArrayMethods
from hloom.arrays.shape_dtype import ShapeDtypeStruct
from hloom.arrays.sharded import ShardedData, split
from hloom.config import config
from hloom.errors import ArgumentError, DeviceError, DonatedArrayError
from hloom.ir.types import HLO_NAME, Shape
from hloom.platforms.device import default_device
from hloom.sharding.shardings import NamedSharding, Shard, SingleDeviceSharding


class Strided:
    """Data that are not row-major: a NumPy view of another array's memory (transposed, broadcast, sliced), or a result
    in its operands' order.

    Eager operations read it as it is; everything else gets a row-major copy, which the Array then keeps.
    """

    __slots__ = ("view",)

    def __init__(self, view: np.ndarray):
        self.view = view


class Array(ArrayMethods):
    """An immutable array, as `hloom.numpy` functions, `hl.device_put` and jitted functions return it.

    NumPy, the buffer protocol and DLPack read it without a copy. `weak` marks the result of Python
    scalars only, which adopts the dtype of the other operand. A donated array no longer holds data.
    """

    __slots__ = (
        "_shape",
        "_data",
        "_key",
        "_device",
        "_lent",
        "_exact",
        "_created_by",
        "_link",
        "_views",
        "__weakref__",
    )
    _link: views.Link  # of a view (`hloom.arrays.views`); missing in other arrays
    _views: Any  # the links of the views of this array; may be missing
    _created_by: str  # the function that chose the default dtype, f32, for numbers with more digits; may be missing
    _exact: Any  # of a weakly typed number its value in double precision (`hloom.tracing.exact`); may be missing
    _data: Any  # a NumPy array, `Strided`, `ShardedData` or data in a device's memory; None after donation
    _key: Any

    def __init__(self, data: Any, weak: bool = False, device=None, shape: Shape | None = None):
        self._data = data
        self._shape = shape = shape or Shape(data.dtype, data.shape)
        # The key under which compiled functions are cached: the shape, with weakness and a chosen device, if any.
        self._key = shape if not weak and device is None else (shape, weak, device)
        # The device, or the sharding over several. None: no device was chosen, so it follows the other operands.
        self._device = device

    @property
    def weak(self) -> bool:
        """Whether this is the result of Python scalars only, which adopts the dtype of the other operand."""
        return self._key is not self._shape and self._key[1]

    @weak.setter
    def weak(self, weak: bool) -> None:
        self._key = self._shape if not weak and self._device is None else (self._shape, weak, self._device)

    @property
    def numpy_view(self) -> np.ndarray:
        """The data as a read-only NumPy array, no copy. Raises DonatedArrayError."""
        view = self._value().view()
        view.flags.writeable = False
        return view

    def _value(self) -> np.ndarray:
        data = self._data
        if data.__class__ is np.ndarray:
            return data
        data = self._held()
        # A copy from the GPU, when it is computed, or the parts of several devices put together.
        return data if data.__class__ is np.ndarray else data.numpy()

    def _in_any_order(self) -> np.ndarray:
        """The elements as a NumPy array of any strides, no copy on the host. Raises DonatedArrayError."""
        data = self._data
        if data.__class__ is Strided:
            return data.view
        return data if data.__class__ is np.ndarray else self._value()

    def _held(self):
        """The data on their device, row-major. Raises DonatedArrayError."""
        data = self._data
        if data.__class__ is Strided:
            # Another thread may do the same: both copies are right.
            self._data = data = np.ascontiguousarray(data.view)
        if data is None:
            raise DonatedArrayError(
                "use of a donated array",
                f"{self._shape!r}: its buffer now belongs to the result of the function it was passed to",
                "use that function's result, or do not donate this argument",
            )
        return data

    @property
    def device(self):
        """The device of the array; the sharding of one on several."""
        return self._device or default_device()

    def devices(self):
        return set(self._device.device_set) if self.is_sharded else {self.device}

    @property
    def is_sharded(self) -> bool:  # type: ignore[override]
        """Whether several devices hold the array, each its part."""
        return self._device.__class__ is NamedSharding

    def block_until_ready(self):
        """Waits until the value is computed. Computation on the CPU is finished when a call returns."""
        if self._held().__class__ is not np.ndarray:
            self._data.block_until_ready()
        return self

    def is_deleted(self) -> bool:
        """True after the array was donated."""
        return self._data is None

    # --- to other libraries, without a copy ---

    def __array__(self, dtype=None, copy=None):
        view = self.numpy_view
        if dtype is not None and np.dtype(dtype) != view.dtype:
            if copy is False:
                raise ValueError(f"a copy is needed to convert {self._shape!r} to {np.dtype(dtype)}")
            return view.astype(dtype)
        return view.copy() if copy else view

    @property
    def __array_interface__(self):
        if self._shape.dtype.isbuiltin == 2:
            # The interface has no name for the dtypes of ml_dtypes; NumPy then asks __array__, which has.
            raise AttributeError(f"the array interface cannot describe {HLO_NAME[self._shape.dtype]}")
        if _is_on_gpu(self._data):
            raise AttributeError("an array of a GPU has no address of the host")  # NumPy then asks __array__
        self._lend()
        return self.numpy_view.__array_interface__

    def _lend(self) -> None:
        """Keeps the data alive as long as this array: consumers of their address hold this array, not the data, which a
        donation or an assignment would release."""
        data, lent = self._held(), getattr(self, "_lent", ())
        if not any(data is other for other in lent):
            self._lent = (*lent, data)

    def __buffer__(self, flags):
        return self.numpy_view.data

    @property
    def __cuda_array_interface__(self) -> dict:
        if not _is_on_gpu(self._held()):
            raise AttributeError("an array of the host has no __cuda_array_interface__")
        self._lend()
        return self._data.__cuda_array_interface__

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if _is_on_gpu(self._data):
            return self._data.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)
        if dl_device not in (None, (1, 0)):
            raise BufferError("hloom exports CPU memory; ask for dl_device=(1, 0)")
        data = self._value()
        if max_version is not None and max_version[0] >= 1 and not copy:
            return self.numpy_view.__dlpack__(max_version=max_version)
        # Unversioned DLPack cannot mark memory as read-only; consumers that request no version promise not to write.
        return (data.copy() if copy or not data.flags.writeable else data).__dlpack__()

    def __dlpack_device__(self):
        return self._data.__dlpack_device__() if _is_on_gpu(self._data) else (1, 0)

    # --- Python numbers ---

    def _scalar(self, convert):
        if self._shape.size != 1:
            raise ArgumentError(
                f"{convert.__name__}() of an array",
                f"{self._shape!r}, which has {self._shape.size} elements",
                "index one element first",
            )
        return convert(self._value().reshape(())[()])

    def __bool__(self):
        if self._shape.size != 1:
            raise ArgumentError(
                "the truth value of an array",
                f"{self._shape!r}, which has {self._shape.size} elements",
                repairs.of_truth_value("use hnp.any(x) or hnp.all(x)"),
            )
        return bool(self._value().reshape(())[()])

    def __round__(self, digits=None):
        return self._scalar(round) if digits is None else self.round(digits)

    def __float__(self):
        return self._scalar(float)

    def __int__(self):
        return self._scalar(int)

    def __complex__(self):
        return self._scalar(complex)

    def __index__(self):
        try:
            return self._value().__index__()
        except TypeError:
            raise ArgumentError(
                "a Python integer from an array",
                f"{self._shape!r}, which is not an integer scalar",
                "pass an integer, or an array of one: int(x) rounds a float",
            ) from None

    def __format__(self, specification):
        """As the number, or the text of an array, is formatted. Raises ArgumentError for a number's format of an
        array."""
        if self._shape.dims == ():
            return format(self._value()[()], specification)
        try:
            return format(str(self), specification)
        except ValueError:
            raise ArgumentError(
                f"an array formatted by {specification!r}",
                f"{self._shape!r}, which has {self._shape.size} elements",
                "index one element first, or write np.array2string(np.asarray(x), precision=3)",
            ) from None

    def __repr__(self):
        if self._data is None:
            return f"Array(donated {self._shape!r})"
        if not self.is_fully_addressable:
            place = f"{self._device!r}" if self.is_sharded else f"{self._device}, a device of another process"
            return f"Array({self._shape!r} on {place})"
        width = np.get_printoptions()["linewidth"]
        if self._shape.size:
            body = np.array2string(self._value(), width, prefix="Array(", suffix=",", separator=", ")
        else:
            body = f"[], shape={self._shape.dims}"
        tail = f"dtype={self._shape.dtype.name}{', weak_type=True' * self.weak})"
        # The dtype goes on a separate line if it does not fit after the elements.
        last = len(body) - body.rfind("\n") - 1
        gap = "\n      " if last + len(tail) + 3 > width else " "
        return f"Array({body},{gap}{tail}"

    def __str__(self):
        return str(self._value()) if self.is_fully_addressable else repr(self)

    def __setitem__(self, index, value):
        """Assigns elements, with `hl.config.item_assignment` only. Raises ImmutableArrayError.

        For libraries written for NumPy, such as SciPy and scikit-learn. The array gets new memory, so that traces and
        memory shared with other libraries keep their elements; hloom's views of it follow (`hloom.arrays.views`).
        """
        if not config.item_assignment:
            super().__setitem__(index, value)
        self.take_over(self.at[index].set(value))

    def take_over(self, other: Array) -> None:
        """Gives this array the elements of another one of its shape from now on (`hl.config.item_assignment`)."""
        if self.is_sharded:
            self._data = split(other._value(), self._device, self._shape)
        else:
            views.write(self, other._value())

    # --- devices and memory ---

    @property
    def aval(self):
        """The shape and dtype without the data, a ShapeDtypeStruct; of an array over several devices with its
        sharding."""
        return ShapeDtypeStruct(
            self.shape, self.dtype, weak_type=self.weak, sharding=self._device if self.is_sharded else None
        )

    @property
    def committed(self) -> bool:
        """Whether a device was chosen for it (`hl.device_put(x, device)`)."""
        return self._device is not None

    @property
    def sharding(self):
        """The layout over devices: a `hl.sharding.NamedSharding` over several devices, or a SingleDeviceSharding."""
        return self._device if self.is_sharded else SingleDeviceSharding(self.device)

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all of its devices are in this process."""
        if self.is_sharded:
            return self._device.is_fully_addressable
        return self._device is None or not self._device.is_away

    @property
    def is_fully_replicated(self) -> bool:
        """Whether each of its devices holds all of it."""
        return not self.is_sharded or self._device.is_fully_replicated

    @property
    def addressable_shards(self) -> list:
        """The parts on the devices of this process, as `hl.Shard`s."""
        return [shard for shard in self.global_shards if shard.data is not None]

    @property
    def global_shards(self) -> list:
        """The parts on all devices; the data of those of other processes are None."""
        if not self.is_sharded:
            own = self if self.is_fully_addressable else None
            return [Shard(self.device, tuple(slice(None) for _ in self._shape.dims), 0, own)]
        data: ShardedData = self._held()
        seen: dict[str, int] = {}
        shards = []
        for number, (device, index) in enumerate(
            zip(self._device.devices, self._device.indices(self._shape.dims), strict=True)
        ):
            part, replica = data.part(number), seen.get(repr(index), 0)
            seen[repr(index)] = replica + 1
            if isinstance(part, np.ndarray):
                part = np.ascontiguousarray(part).reshape(part.shape)
            one = None if part is None else Array(part, self.weak, device)
            shards.append(Shard(device, index, replica, one))
        return shards

    def addressable_data(self, index: int = 0):
        """The part on the device of this index among those of this process."""
        return self.addressable_shards[index].data

    def is_ready(self) -> bool:
        """Whether the elements are computed; computation on the CPU is finished when a call returns."""
        return True if self._held().__class__ is np.ndarray else self._data.is_ready()

    def copy_to_host_async(self) -> None:
        """No effect: CPU memory is the host's, and data on a GPU are copied when they are read."""
        self._held()

    def delete(self) -> None:
        """Releases the memory immediately; the array no longer holds data."""
        self._data = None

    def unsafe_buffer_pointer(self) -> int:
        """The address of the first element, on its device. Valid as long as the array."""
        if self.is_sharded:
            raise ArgumentError(
                "the address of an array", f"{self._shape!r} has a part on each of {len(self.devices())} devices",
                "read that of a part: x.addressable_data(0).unsafe_buffer_pointer()",
            )  # fmt: skip
        return self._data.buffer.address if _is_on_gpu(self._data) else self._value().ctypes.data

    def on_device_size_in_bytes(self) -> int:
        return self._shape.bytes

    def tobytes(self, order: Literal["K", "A", "C", "F"] = "C") -> bytes:
        """The elements as bytes in row-major order."""
        return self._value().tobytes(order)

    @property
    def flat(self):
        """An iterator over the elements in row-major order."""
        return iter(self.ravel())

    # --- copies ---

    def __reduce__(self):
        return _restore, (np.array(self._value()), self.weak)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    clone = __copy__


def _is_on_gpu(data) -> bool:
    """Whether an array's data are a `hloom.runtime.cuda.array.DeviceArray`."""
    return data.__class__.__name__ == "DeviceArray"


def common_device(arrays, what: str):
    """The device that was chosen for some of the arrays, or None; the sharding of the first array on several devices.
    Raises DeviceError if there are two devices, or two sets of them."""
    chosen = None
    for array in arrays:
        device = getattr(array, "_device", None)
        if device is not None and device is not chosen:
            if chosen is not None and not _together(chosen, device):
                raise _apart(arrays, what)
            if chosen is None:
                chosen = device
    return chosen


def _together(a, b) -> bool:
    """Whether arrays with two placements can be used in one program."""
    if a.__class__ is NamedSharding and b.__class__ is NamedSharding:
        return a.mesh is b.mesh or a.device_set == b.device_set
    return a == b


def _apart(arrays, what: str) -> DeviceError:
    """The error for arrays on devices that no single program uses."""
    places: dict[str, str] = {}
    for array in arrays:
        place = getattr(array, "_device", None)
        if place is not None:
            places.setdefault(_described(place), repr(array._shape))
    if not any(getattr(a, "_device", None).__class__ is NamedSharding for a in arrays):
        return DeviceError(
            f"{what} takes arrays of one device", " and ".join(places), "move them to one with hl.device_put(x, device)"
        )
    return DeviceError(
        f"{what} takes arrays on the same devices",
        "; ".join(f"{shape} on {place}" for place, shape in places.items()),
        "move them to one mesh with hl.device_put(x, NamedSharding(mesh, spec))",
    )


def _described(place) -> str:
    if place.__class__ is not NamedSharding:
        return str(place)
    return f"{', '.join(map(str, place.devices))} ({place.mesh!s})"


def _restore(data, weak):
    return Array(np.asarray(data), weak)
