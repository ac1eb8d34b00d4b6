"""The dialect's functions in LLVM's language, in a file beside this module, so that no process has to make them again.

    signature(name) -> (params, result) | None      None: not there, or the file was made from other sources
    symbol(name) -> str                              the C name of its function
    module_text(name) -> str                         a module that defines it, with all that it calls inlined; passes
                                                     of Fourier transforms are written anew (`kernels.tiles_fft`)
    write() -> Path                                  makes the file, with Numba; `python -m hloom.backends.cpu.driver`

Vector math is written in Python and instructions that need Numba's front end (`kernels.math`, `microkernels`). It is
the same in every process and on every processor of an architecture. The file's first line says in JSON which sources it
was made from, and where each function lies. Without a file that fits, kernels are compiled by Numba throughout.
"""

from __future__ import annotations

import functools
import hashlib
import json
import mmap
import platform
import re
import sys
from pathlib import Path

from hloom.compiler.targets.cpu.fft.names import parameters as fft_parameters
from hloom.compiler.targets.cpu.llvm_emitter.values import LLVM, REGISTER


def _path() -> Path:
    arch = platform.machine().lower().replace("amd64", "x86_64").replace("arm64", "aarch64")
    return Path(__file__).with_name(f"dialect_{sys.platform}_{arch}.ll")


_IMPORTS = re.compile(r"^from hloom\.compiler\.kernels\.math\.([\w.]+) import", re.MULTILINE)
# Files whose functions are instructions, made by the call of another file's function.
_INSTRUCTIONS = ("accumulators", "bits", "casts", "integer", "memory", "precision", "elementary.range_reduction")


@functools.cache
def _sources() -> dict[str, str]:
    """The files that functions are made from, by module; "tiles" is one of them."""
    compiler = Path(__file__).resolve().parents[3]
    library = compiler / "kernels" / "math"
    texts = {
        ".".join(path.relative_to(library).with_suffix("").parts): path.read_text() for path in library.rglob("*.py")
    }
    tiles = [*sorted(compiler.glob("targets/cpu/microkernels/*.py")), compiler / "kernels/contractions/tile_shapes.py"]
    return texts | {"tiles": "".join(file.read_text() for file in tiles)}


@functools.cache
def made_from(module: str) -> str:
    """Hash of a file with all that it imports: what decides the code of the functions in it."""
    if module == "instructions":
        return hashlib.sha256("".join(made_from(name) for name in _INSTRUCTIONS).encode()).hexdigest()
    texts, found, left = _sources(), {}, [module]
    while left:
        name = left.pop()
        if name in texts and name not in found and name != "accuracy":  # which states errors and makes no code
            found[name] = texts[name]
            left += _IMPORTS.findall(texts[name])
    return hashlib.sha256("".join(found[name] for name in sorted(found)).encode()).hexdigest()


@functools.cache
def _contents() -> tuple[dict, dict, mmap.mmap | bytes, int]:
    """Hashes by module, the table of functions, the file, and where in it the bytes begin that the table points into;
    empty where there is no file. Of its 3 MB a process reads what it calls."""
    try:
        with open(_path(), "rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        head = json.loads(data.readline().removeprefix(b"; "))
    except (OSError, ValueError):
        return {}, {}, b"", 0
    return head["modules"], head["functions"], data, data.tell()


@functools.cache
def signature(name: str) -> tuple[tuple[str, ...], str] | None:
    modules, functions, *_ = _contents()
    entry = functions.get(name)
    if entry is None or modules[entry[2]] != made_from(entry[2]):
        return None
    return tuple(entry[0]), entry[1]


def symbol(name: str) -> str:
    return f"dialect_{name}"


@functools.lru_cache(64)  # kernels of one program share passes, and those of other shapes have the same
def module_text(name: str) -> str:
    if fft_parameters(name):
        from hloom.compiler.targets.cpu.fft import butterflies

        return butterflies.module_text(name)
    _, functions, data, start = _contents()
    at, length = functions[name][3:]
    return data[start + at : start + at + length].decode()


def outdated() -> list[str]:
    """Names of modules whose functions in the file were made from other sources, and of those that are not in it."""
    modules = _contents()[0]
    return [name for name, digest in modules.items() if digest != made_from(name)] or ([] if modules else ["all"])


_LEFT_OUT = re.compile(r"^(;.*|source_filename.*|target datalayout.*|)\n", re.MULTILINE)


def write() -> Path:
    """Compiles all functions and writes the file. Some ten seconds."""
    from hloom.compiler.targets.cpu.numba_frontend import lower

    modules: dict[str, str] = {}
    functions, texts, at = {}, [], 0
    for name, module, params, result, text in lower.library_functions({*LLVM, *REGISTER} - {"*"}):
        modules[module] = made_from(module)
        data = (_LEFT_OUT.sub("", text) + "\n").encode()
        functions[name] = (params, result, module, at, len(data))
        texts.append(data)
        at += len(data)
    head = json.dumps({"modules": modules, "functions": functions})
    partial = _path().with_suffix(".partial")
    partial.write_bytes(f"; {head}\n".encode() + b"".join(texts))
    partial.replace(_path())
    for cached in (_contents, signature, module_text):
        cached.cache_clear()
    return _path()
