"""What the compiler needs to know about the processor it compiles for."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import json
import os
import platform
import re
import sys
from pathlib import Path

from hloom.compiler.cache import default_cache
from hloom.ir.process import forking
from hloom.ir.process.lazy import LazyModule
from hloom.ir.records import record, replace

subprocess = LazyModule("subprocess")  # for macOS alone


@record(frozen=True)
class Machine:
    """One processor, as seen by the code generator and by the cost model.

    arch:             `"x86_64"`, `"aarch64"` or whatever `platform.machine()` says, in lower case.
    cpu:              LLVM's name of the processor, for example `"znver3"`.
    features:         LLVM's feature string, for example `"+avx2,+fma"`, in a stable order.
    vector_bytes:     width of one vector register in bytes (AVX-512 64, AVX2 and AVX 32, SSE and NEON 16).
    vector_registers: number of architectural vector registers.
    l1_bytes:         first-level data cache of one core, in bytes.
    l2_bytes:         second-level cache of one core, in bytes.
    l3_bytes:         last-level cache that the cores share, in bytes, as far as this process may count on it (0 where
                      there is none).
    cores:            logical processors this process may run on.
    """

    arch: str
    cpu: str
    features: str
    vector_bytes: int
    vector_registers: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    cores: int

    @property
    def identity(self) -> str:
        """The part that decides which machine code is right: two machines with equal identity can share object code."""
        return f"{self.arch} {self.cpu} {self.features}"

    def has(self, feature: str) -> bool:
        """Whether `feature` (LLVM's name, for example `"avx2"`) is switched on."""
        return f"+{feature}" in self.features.split(",")

    @property
    def multiplies_bytes(self) -> bool:
        """Whether an instruction multiplies 8-bit integers, several times as many as f32."""
        return any(map(self.has, ("avx512vnni", "avxvnni", "amx-int8")))


# The most of the last-level cache that each core of this process counts on: a virtual machine on two cores of a server
# sees the whole cache, but shares it with its neighbours.
L3_OF_A_CORE = 16 << 20


NATIVE = "native"
_V2 = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
# The levels of the System V ABI for x86-64, by LLVM's names of processors and features. The ABI's "osfxsr" and "xsave"
# decide no code of ours.
LEVELS = {"x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}
CHOICES = (*LEVELS, NATIVE)

_chosen: str | None = None  # by `use_cpu`


def use_cpu(name: str | None) -> None:
    """From now on code is generated for a processor of `CHOICES`; None: what HLOOM_CPU says, else "native".

    Raises ValueError for a name that `valid_choices` lacks."""
    global _chosen
    if name is not None:
        machine_of(name)
    _chosen = name


def host() -> Machine:
    """The machine that code is generated for: this one, or the part of it that `use_cpu` or HLOOM_CPU names."""
    return machine_of(host_name())


def host_name() -> str:
    """Which of `CHOICES` `host` is."""
    return _chosen or os.environ.get("HLOOM_CPU") or NATIVE


@functools.cache
def machine_of(name: str) -> Machine:
    """The machine of one of `CHOICES`, which this process can run. Raises ValueError for another."""
    valid = valid_choices()
    if name not in valid:
        reason = "this processor lacks its instructions" if name in CHOICES else "there is no such processor"
        raise ValueError(f"{name!r}: {reason}; valid here: {', '.join(valid)}")
    return native_machine() if name == NATIVE else level_machine(name)


def valid_choices() -> list[str]:
    """Those of `CHOICES` that this process can run."""
    return [level for level in LEVELS if runs_level(level)] + [NATIVE]


@functools.cache
def runs_level(level: str) -> bool:
    """Whether this process can run code of a level of x86-64."""
    machine = native_machine()
    return machine.arch == "x86_64" and all(machine.has(feature) for feature in LEVELS[level])


@functools.cache
def level_machine(level: str) -> Machine:
    """A machine with the instructions of a level and the caches and cores of this one. Code can be generated for it
    whether or not this process can run that."""
    features = LEVELS[level]
    switches = ",".join([f"+{feature}" for feature in features] + ["-prefer-256-bit"])
    vector_bytes, registers = _vectors("x86_64", dict.fromkeys(features, True))
    return replace(
        native_machine(),
        arch="x86_64", cpu=level, features=switches, vector_bytes=vector_bytes, vector_registers=registers,
    )  # fmt: skip


def architecture() -> str:
    """`platform.machine()` in lower case, with one name for each architecture."""
    return platform.machine().lower().replace("amd64", "x86_64").replace("arm64", "aarch64")


@functools.cache
def native_machine() -> Machine:
    """The machine this process runs on. Detected once per process."""
    arch = architecture()
    name, flags = _processor()
    if flags.get("avx512f"):
        # LLVM prefers 256-bit vectors on several AVX-512 processors because early ones lowered their clock; the
        # kernels here are long vector loops, which gain from the full width.
        flags["prefer-256-bit"] = False
    if flags.get("amx-tile") and not _may_use_matrix_registers():
        flags |= {name: False for name in flags if name.startswith("amx-")}
    features = ",".join(("+" if on else "-") + name for name, on in sorted(flags.items()))
    vector_bytes, vector_registers = _vectors(arch, flags)
    l1, l2, l3 = _caches()
    cores = available_cores()
    return Machine(arch, name, features, vector_bytes, vector_registers, l1, l2, min(l3, cores * L3_OF_A_CORE), cores)


def portable_machine() -> Machine:
    """The host with nothing but the instructions that every processor of its architecture has."""
    plain = "x86-64" if architecture() == "x86_64" else "generic"
    return replace(native_machine(), cpu=plain, features="")


def _may_use_matrix_registers() -> bool:
    """Asks Linux for them, which saves 8 KiB more for each thread from then on; it has to be asked once a process.

    Source: Linux, Documentation/arch/x86/xstate.rst (ARCH_REQ_XCOMP_PERM of component 18, XTILE_DATA)."""
    if not sys.platform.startswith("linux"):
        return False
    syscall, arch_prctl, request = ctypes.CDLL(None).syscall, 158, 0x1023
    return syscall(ctypes.c_long(arch_prctl), ctypes.c_long(request), ctypes.c_long(18)) == 0


def _processor() -> tuple[str, dict[str, bool]]:
    """LLVM's name of the processor, and its features.

    LLVM takes 30 ms to come into a process, which one whose kernels are all in the disk cache has no other use for. So
    the answer is kept there, under what the system says of the processor.
    """
    description = _described()
    cache = default_cache()
    key = "processor-" + hashlib.sha256(description).hexdigest() if description else ""
    if key and (known := cache.load(key, _decoded_processor)):
        return known
    with forking.no_fork():
        import llvmlite.binding as llvm  # saves start-up time: LLVM

        name, flags = llvm.get_host_cpu_name(), dict(llvm.get_host_cpu_features())
    if key:
        cache.put(key, json.dumps((name, flags)).encode())
    return name, flags


def _decoded_processor(data: bytes) -> tuple[str, dict[str, bool]]:
    name, flags = json.loads(data)
    return str(name), dict(flags)


def version_file(package: str) -> bytes:
    """What says the version of Numba or llvmlite; read, because an import takes as long as all else of a warm start."""
    found = importlib.util.find_spec(package)
    assert found is not None and found.origin is not None, f"{package} is a dependency of hloom"
    return Path(found.origin).with_name("_version.py").read_bytes()


def _described() -> bytes:
    """The first processor in /proc/cpuinfo but for its clock, and the version of llvmlite; empty elsewhere."""
    try:
        with open("/proc/cpuinfo", "rb") as file:
            first = file.read(8192).split(b"\n\n")[0]
    except OSError:
        return b""
    changing = (b"cpu MHz", b"bogomips", b"processor", b"apicid", b"initial apicid", b"core id", b"physical id")
    lines = [line for line in first.split(b"\n") if not line.startswith(changing)]
    return b"\n".join([version_file("llvmlite"), platform.machine().encode(), *lines])


def available_cores() -> int:
    """Logical processors this process may run on (the affinity mask where the system has one)."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return max(1, os.cpu_count() or 1)


def _vectors(arch: str, flags: dict[str, bool]) -> tuple[int, int]:
    if arch == "x86_64":
        if flags.get("avx512f"):
            return 64, 32
        return (32, 16) if flags.get("avx") else (16, 16)
    return 16, 32  # NEON, and a harmless guess elsewhere


def _caches() -> tuple[int, int, int]:
    """Sizes in bytes of the data caches of levels 1 to 3; typical sizes where the system does not say."""
    found: dict[int, int] = {}
    if sys.platform == "darwin":
        names = {1: "hw.perflevel0.l1dcachesize", 2: "hw.perflevel0.l2cachesize", 3: "hw.l3cachesize"}
        for level, name in names.items():
            answer = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=False)
            if answer.returncode == 0 and answer.stdout.strip().isdigit():
                found[level] = int(answer.stdout)
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            kind = (index / "type").read_text().strip()
            level = int((index / "level").read_text())
            size = _size((index / "size").read_text())
        except (OSError, ValueError):
            continue
        if kind in ("Data", "Unified"):
            found[level] = size
    return found.get(1, 32 << 10), found.get(2, 1 << 20), found.get(3, 0 if found else 8 << 20)


def _size(text: str) -> int:
    """Bytes in `"32K"`, `"1M"` or `"512"`."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text.strip())
    if match is None:
        raise ValueError(f"not a cache size: {text!r}")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]
