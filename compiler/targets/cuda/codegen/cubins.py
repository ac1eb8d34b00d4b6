"""Cubins from the disk cache or the compiler, and what is in them.

A cubin's key is its text, its types, its architecture and our own sources that decide the code, and its entry says
which compilers made it. Another version of these makes it anew; a machine without compilers takes it as it is. Nothing
of the machine is part of either, so a cache folder may be copied to another one.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from hloom.compiler.compile_timings import count, stage
from hloom.compiler.targets.cuda.codegen.compile import CudaCode, CudaNotInstalledError, compile_cuda
from hloom.compiler.targets.cuda.codegen.source import CudaSource

_PACKAGES = ("numba", "numba-cuda", "llvmlite", "nvidia-nvvm", "nvidia-nvjitlink")
_FACTS = ("name", "arch", "registers", "spills", "stack", "shared")


@functools.cache
def versions() -> str:
    """The versions of the compilers, '' where one of them is not installed."""
    try:
        return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES)
    except importlib.metadata.PackageNotFoundError:
        return ""


@functools.cache
def fingerprint() -> str:
    """Hash over our own sources that kernels are made of."""
    folder = Path(__file__).resolve().parent
    library = folder.parents[2] / "kernels" / "math"
    digest = hashlib.sha256()
    ours = [*folder.glob("*intrinsics.py"), folder / "compile.py", folder / "lowering.py"]
    for path in sorted([*ours, *library.rglob("*.py")]):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def cubin_key(source: CudaSource, arch: str) -> str:
    """The cache key of a text's cubin."""
    parts = [
        fingerprint(),
        arch,
        source.name,
        ",".join(source.params),
        str(source.threads),
        str(source.together),
        source.text,
    ]
    return "cubin-" + hashlib.sha256("\0".join(parts).encode()).hexdigest()


def cubins(sources: Sequence[CudaSource], arch: str, cache=None) -> list[CudaCode]:
    """The code of each text, from `cache` (`compiler.cache.Cache`) where it has it.

    Raises CudaNotInstalledError where one has to be compiled and the extra `cuda` is missing, CudaCompileError.
    """
    made: dict[CudaSource, CudaCode] = {}
    for source in dict.fromkeys(sources):
        key = cubin_key(source, arch)
        code = cache.load(key, _unpacked) if cache is not None else None
        if code is None:
            with stage("cubins"):
                (code,) = compile_cuda([source], arch, functools.partial(_lowered, cache=cache))
            count("kernels compiled")
            if cache is not None:
                cache.put(key, _packed(code))
        made[source] = code
    return [made[source] for source in sources]


def _lowered(source: CudaSource, cache=None) -> str:
    """The LLVM IR of a source, from `cache` where another architecture has put it there."""
    key = cubin_key(source, f"llvm {versions()}")
    if cache is not None and (known := cache.load(key, lambda data: zlib.decompress(data).decode())):
        return known
    from hloom.compiler.targets.cuda.codegen.lowering import lower_cuda  # saves start-up time: Numba

    ir = lower_cuda(source)
    if cache is not None:
        cache.put(key, zlib.compress(ir.encode(), 1))
    return ir


def _packed(code: CudaCode) -> bytes:
    head = {name: getattr(code, name) for name in _FACTS} | {"versions": versions(), "cubin": len(code.cubin)}
    return json.dumps(head).encode() + b"\n" + code.cubin + zlib.compress(code.ptx.encode())


def _unpacked(data: bytes) -> CudaCode | None:
    """The code of an entry; None where other versions of the compilers made it than those that are installed."""
    line, rest = data.split(b"\n", 1)
    head = json.loads(line)
    if versions() and head["versions"] != versions():
        return None
    size = head["cubin"]
    facts = {name: head[name] for name in _FACTS}
    return CudaCode(cubin=rest[:size], ptx=zlib.decompress(rest[size:]).decode(), **facts)


def disassembled(code: CudaCode) -> str:
    """The machine instructions (SASS) of a cubin. Raises CudaNotInstalledError where nvdisasm is not installed."""
    program = _nvdisasm()
    if program is None:
        raise CudaNotInstalledError(
            f"the machine instructions of {code.name}", "nvdisasm is not installed", "pip install nvidia-cuda-nvdisasm"
        )
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code.cubin)
        file.flush()
        result = subprocess.run([program, "-c", file.name], capture_output=True, text=True, check=False)
    if result.returncode:
        raise CudaNotInstalledError(
            f"the machine instructions of {code.name}", f"{program}: {result.stderr.strip()}",
            "install an nvdisasm as new as the compiler: pip install -U nvidia-cuda-nvdisasm",
        )  # fmt: skip
    return result.stdout


def _nvdisasm() -> str | None:
    """The program, of a toolkit or of its wheel."""
    if found := shutil.which("nvdisasm"):
        return found
    for folder in sys.path:
        for path in sorted(Path(folder or ".", "nvidia").glob("*/bin/nvdisasm*")):
            return str(path)
    return None
