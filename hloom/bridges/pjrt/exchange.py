"""DLPack for arrays on hloom, which are in host memory: jax only exchanges arrays of its own devices."""

from __future__ import annotations

import jax.dlpack as public_dlpack
import numpy as np
from jax._src import array, dlpack, xla_bridge
from jax._src.api import device_put

__all__ = ["install"]

_ON_HOST = (dlpack.DLDeviceType.kDLCPU, 0)


class _Lent:
    """The memory of a NumPy array, as one that may be written: older consumers of DLPack cannot be notified
    otherwise."""

    def __init__(self, of: np.ndarray):
        interface = dict(of.__array_interface__)
        address, _ = interface["data"]
        self.__array_interface__ = interface | {"data": (address, False)}
        self._of = of  # holds jax's buffer


def _is_ours(x) -> bool:
    return isinstance(x, array.ArrayImpl) and len(x.devices()) == 1 and x.platform() == "hloom"


def install() -> None:
    """Makes `np.from_dlpack(x)`, `torch.from_dlpack(x)` and `jnp.from_dlpack(x)` work where x or its device is hloom's:
    without a copy."""
    to_others, device_of_others, from_others = (
        dlpack.to_dlpack, array.ArrayImpl.__dlpack_device__, dlpack.from_dlpack,
    )  # fmt: skip

    def to_dlpack(x, stream=None, src_device=None, dl_device=None, max_version=None, copy=None):
        if not _is_ours(x) or dl_device not in (None, _ON_HOST):
            return to_others(x, stream, src_device, dl_device, max_version, copy)
        values = np.asarray(x)
        return np.asarray(_Lent(values.copy() if copy else values)).__dlpack__()

    def dlpack_device(self):
        return _ON_HOST if _is_ours(self) else device_of_others(self)

    def from_dlpack(external_array, device=None, copy=None):
        default = xla_bridge.get_backend()
        wanted = device or (default.local_devices()[0] if default.platform == "hloom" else None)
        on_host = getattr(external_array, "__dlpack_device__", lambda: (None, 0))()[0] == _ON_HOST[0]
        if getattr(wanted, "platform", None) != "hloom" or not on_host:
            return from_others(external_array, device, copy)
        if _is_ours(external_array):
            return device_put(external_array, wanted)
        return device_put(np.from_dlpack(external_array), wanted, may_alias=None if copy is None else not copy)

    dlpack.to_dlpack = to_dlpack
    dlpack.from_dlpack = public_dlpack.from_dlpack = from_dlpack
    array.ArrayImpl.__dlpack_device__ = dlpack_device  # type: ignore[method-assign]
