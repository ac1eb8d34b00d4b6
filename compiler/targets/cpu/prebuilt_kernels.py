"""Machine code of the kernels that all contractions share, or all Fourier transforms, in a file beside this module, as
a BLAS brings its own.

    object_code(kernel) -> bytes | None      None: not in the file, which may be absent or made from other sources
    write() -> Path                          makes the file; `python -m hloom.backends.cpu.driver`

A process that has no kernels on disk spent 0.1 s in the compiler for its first product of matrices, always for the same
texts. Those are in the file for the levels of x86-64 below (the System V ABI's names), one object each; a processor
that lacks an instruction of the level compiles the text. The bits of results are the same: these kernels name each
fused multiply-add. The file's first line says in JSON what it was made from, and where each kernel lies.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
import zlib
from pathlib import Path

from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.targets.cpu.machine import Machine, host
from hloom.compiler.targets.cpu.numba_frontend import prebuilt_library
from hloom.ir.records import record, replace

DTYPES = ("f32", "f64", "s32", "s64")  # that products sum in; sums of unsigned integers are rare
TRANSFORMED = ("f32",)  # parts of the complex numbers of transforms
# What decides the code of a text, besides the tiles.
_SOURCES = ("backend.py", "llvm_emitter/*.py", "prebuilt_kernels.py", "fft/butterflies.py")


@record(frozen=True)
class Level:
    """Processors that share code. cpu, features: as LLVM names them; vector_bytes, registers: as of a Machine."""

    cpu: str
    features: tuple[str, ...]
    vector_bytes: int
    registers: int

    def machine(self) -> Machine:
        # As of the host, long vectors are not halved. No text of these kernels has the size of a cache in it.
        on = ",".join(["-prefer-256-bit", *(f"+{feature}" for feature in self.features)])
        widths = {"vector_bytes": self.vector_bytes, "vector_registers": self.registers}
        return replace(host(), cpu=self.cpu, features=on, **widths)


_AVX2 = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_AVX512 = (*_AVX2, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
LEVELS = {"x86_64": (Level("x86-64-v3", _AVX2, 32, 16), Level("x86-64-v4", _AVX512, 64, 32))}


def _path() -> Path:
    return Path(__file__).with_name(f"kernels_{sys.platform}_{host().arch}.bin")


@functools.cache
def _made_from() -> str:
    """Hash of all that decides the code but the kernels' texts, which are their keys."""
    digest = hashlib.sha256(prebuilt_library.made_from("tiles").encode())
    for pattern in _SOURCES:
        for path in sorted(Path(__file__).parent.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _key(kernel: KernelSource) -> str:
    parts = (kernel.name, ",".join(kernel.params), kernel.text)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


@functools.cache
def _contents() -> tuple[str, dict[str, list[int]], bytes]:
    """What the file was made from; level, first byte and length of every kernel; the bytes that it points into. Empty
    where there is no file."""
    try:
        head, data = _path().read_bytes().split(b"\n", 1)
        head = json.loads(head.removeprefix(b"; "))
    except (OSError, ValueError):
        return "", {}, b""
    return head["made from"], head["kernels"], data


@functools.cache
def _runs_here(level: int) -> bool:
    levels = LEVELS.get(host().arch, ())
    return level < len(levels) and all(host().has(feature) for feature in levels[level].features)


def object_code(kernel: KernelSource) -> bytes | None:
    """The object file of a kernel with these very parameters and text, for this process's processor."""
    if kernel.parts:
        return None
    _, entries, data = _contents()
    entry = entries.get(_key(kernel))
    # The sources are read last: most programs have no such kernel.
    if entry is None or not _runs_here(entry[0]) or outdated():
        return None
    _, start, length = entry
    return zlib.decompress(data[start : start + length])


def outdated() -> bool:
    """Whether the file of this architecture is absent or was made from other sources."""
    return bool(LEVELS.get(host().arch)) and _contents()[0] != _made_from()


def write() -> Path | None:
    """Compiles the kernels for every level and writes the file; None for an architecture that has no levels."""
    from hloom.compiler.kernels.contractions import render
    from hloom.compiler.targets.cpu import backend, codegen
    from hloom.compiler.targets.cpu.fft import launches

    entries, parts, at = {}, [], 0
    for index, level in enumerate(LEVELS.get(host().arch, ())):
        machine = level.machine()
        kernels = [kernel for dtype in DTYPES for kernel in render.shared_kernels(dtype, machine)]
        kernels += [kernel for dtype in TRANSFORMED for kernel in launches.shared_kernels(dtype, machine)]
        for kernel in kernels:
            data = zlib.compress(backend.compiled(*codegen.kernel_module(kernel, None), machine), 9)
            entries[_key(kernel)] = [index, at, len(data)]
            parts.append(data)
            at += len(data)
    if not entries:
        return None
    head = json.dumps({"made from": _made_from(), "kernels": entries})
    partial = _path().with_suffix(".partial")
    partial.write_bytes(f"; {head}\n".encode() + b"".join(parts))
    partial.replace(_path())
    _contents.cache_clear()
    return _path()
