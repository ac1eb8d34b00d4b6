"""The errors of the CUDA runtime. Each states what was requested, what was found, the user's line if known, one repair,
and the driver's code with its name where a driver call failed.

    CudaError
      CudaUnavailableError     CUDA cannot be used here at all
        CudaNotInstalledError    the Python packages are missing
        NoDriverError            no libcuda, or one that cannot be initialized
        DriverTooOldError        found and needed version
        NoGpuError               a driver without a visible GPU
        ComputeCapabilityError   a GPU that kernels are not compiled for
      CudaOutOfMemoryError     also a MemoryError: the largest live buffers by the names of the user's variables
      CudaLaunchError          a kernel, copy or graph that the driver refuses; the device stays usable
      CudaModuleError          machine code that does not load, or lacks a function
      CudaDeviceLostError      a kernel failed while it ran: this process cannot use the device any more
      CudaLibraryError         a failed call of a library such as cublasLt
      CudaInteropError         an array that cannot be shared with another library without a copy
"""

from __future__ import annotations

from hloom.ir.base_error import HloomError, Source


class CudaError(HloomError, RuntimeError):
    """Base. asked, found, repair: sentences. source: the user's line or ''. code, name: of the driver, or None.

    immediate: whether such an error comes from the current call, whose line is reported where no other is known. Other
    answers of the driver may belong to work that was enqueued before.
    """

    immediate = False

    def __init__(
        self,
        asked: str,
        found: str = "",
        repair: str = "",
        source: Source | str | None = "",
        code: int | None = None,
        name: str | None = None,
    ):
        super().__init__(asked, found, repair, source or (None if self.immediate else ""))
        self.code, self.name, self._located = code, name, bool(source)

    def locate(self, where: str) -> None:
        """Sets the line of the step that failed, unless the error has one."""
        if not self._located:
            self.source = where or self.source


class CudaUnavailableError(CudaError):
    """CUDA cannot be used in this process."""

    immediate = True


class CudaNotInstalledError(CudaUnavailableError, ImportError):
    """cuda-python is not installed."""


class NoDriverError(CudaUnavailableError):
    """There is no CUDA driver, or it does not start."""


class DriverTooOldError(CudaUnavailableError):
    """The driver is older than the machine code that it would be given."""


class NoGpuError(CudaUnavailableError):
    """The driver shows no GPU."""


class ComputeCapabilityError(CudaUnavailableError):
    """The GPU is older than the oldest that kernels are compiled for."""


class CudaOutOfMemoryError(CudaError, MemoryError):
    """Device or pinned memory ran out, even after the caches were released and the request was retried.

    largest: (label, bytes) of the largest live buffers.
    """

    largest: tuple[tuple[str, int], ...] = ()
    immediate = True


class CudaLaunchError(CudaError):
    """A call that the driver refuses. Nothing was enqueued."""


class CudaModuleError(CudaError):
    """Machine code that does not load here."""


class CudaDeviceLostError(CudaError):
    """Work on the device failed. CUDA answers every further call of this process to this device with the same error.

    programs: names of those that were running. told: whether the device has noted it.
    """

    programs: tuple[str, ...] = ()
    told = False


class CudaLibraryError(CudaError):
    """A call that a library refuses. code, name: the library's. Nothing was enqueued."""


class CudaInteropError(CudaError, TypeError):
    """An array cannot be shared with another library without a copy."""

    immediate = True


# Codes after which a context answers nothing else (the driver's manual: "the process must be terminated").
STICKY = frozenset((214, 219, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721))
OUT_OF_MEMORY = 2
_LOADING = frozenset((200, 209, 218, 221, 222, 300, 301, 302, 303, 500))

# By code: one thing to try.
_REPAIRS = {
    1: "check the grid, block and shared bytes of the launch; this is most likely an error of hloom: report it",
    2: "free arrays, or make the program's temporaries smaller",
    3: "call this after the driver has started",
    4: "the process is ending: do this earlier",
    100: "make a GPU visible: CUDA_VISIBLE_DEVICES, or the container's --gpus",
    101: "name a device that is there",
    200: "compile for this GPU's architecture",
    209: "compile for this GPU's architecture",
    218: "compile again: the cached machine code may be damaged",
    222: "update the driver, or give it machine code in place of PTX",
    400: "the object was destroyed: do not use it after close()",
    500: "the machine code and the program do not belong together: compile again",
    700: "restart the process; HLOOM_CUDA_STEPWISE=1 names the launch that reads or writes outside of its arrays",
    701: "use a smaller block or less shared memory",
    702: "restart the process; the display's time limit ended a kernel that took too long",
    719: "restart the process; HLOOM_CUDA_STEPWISE=1 names the launch",
    720: "the grid is larger than the GPU can hold at once: use fewer blocks",
    801: "update the driver",
    802: "wait until the GPU is initialized (nvidia-fabricmanager on systems with NVSwitch)",
    803: "the driver in the kernel and the library differ: restart the machine",
    804: "use the driver that the machine's kernel module belongs to",
}


def library_error(asked: str, found: str, repair: str, status: int, name: str, *, out_of_memory: bool) -> CudaError:
    """The error for a status that a library's call returned. name: of the status."""
    if out_of_memory:
        return CudaOutOfMemoryError(asked, found, f"free arrays, or {repair}", "", status, name)
    return CudaLibraryError(asked, found, repair, "", status, name)


def typed_error(code: int, name: str, text: str, asked: str, source: str = "") -> CudaError:
    """The error for a code of the driver. asked: what was being done. text: the driver's own sentence."""
    kind: type[CudaError]
    if code in STICKY:
        kind, repair = CudaDeviceLostError, "restart the process; HLOOM_CUDA_STEPWISE=1 names the launch"
    elif code == OUT_OF_MEMORY:
        kind, repair = CudaOutOfMemoryError, _REPAIRS[2]
    elif code in _LOADING:
        kind, repair = CudaModuleError, "compile for this GPU's architecture"
    else:
        kind, repair = CudaLaunchError, "report this with the text above"
    return kind(asked, f"{name} ({code}): {text}", _REPAIRS.get(code, repair), source, code, name)
