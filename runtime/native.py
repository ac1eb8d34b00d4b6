"""Loads object code into this process: from bytes to callable addresses, by `elf` or through llvmlite (no Numba).

    load_codes([(data, symbols), ...]) -> list[Code]         one for each object file, loaded while referenced
    load(data, symbols) -> dict[str, int]                    one object file for good
    load_all([(data, symbols), ...]) -> list[dict[str, int]] several for good

Addresses are plain integers: callers that may still jump to one must keep the Code. Names of different objects do not
collide.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from hloom.ir.process import forking
from hloom.runtime import elf

_lock = forking.lock()
_counter = itertools.count()
_jit = None
_kept: list[Code] = []


class LoadError(RuntimeError):
    """Object code that the linker refuses or that lacks a symbol."""


class Code:
    """Loaded object code. addresses: of its symbols. When nothing refers to it any more, its memory is given back."""

    __slots__ = ("__weakref__", "_memory", "addresses")

    def __init__(self, addresses: dict[str, int], memory: object):
        self.addresses, self._memory = addresses, memory


def load(data: bytes, symbols: Sequence[str]) -> dict[str, int]:
    """Load one object file for good; the address of each of `symbols`. Functions of the C library resolve in this
    process."""
    return load_all([(data, symbols)])[0]


def load_all(objects: Iterable[tuple[bytes, Sequence[str]]]) -> list[dict[str, int]]:
    """Load object files for good; for each, the addresses of its symbols."""
    codes = load_codes(objects)
    _kept.extend(codes)
    return [code.addresses for code in codes]


def load_codes(objects: Iterable[tuple[bytes, Sequence[str]]]) -> list[Code]:
    """Load object files. Raises LoadError.

    Measured per object (ms): `elf` 0.03 to 0.1; a new MCJIT engine 1.1, one shared MCJIT engine 0.2 (but equal names
    collide in it), ORC 0.4 alone and 0.2 in a group without a repeated symbol.
    """
    objects = list(objects)
    if elf.usable():
        try:
            return [Code(found, piece) for found, piece in zip(*elf.load(objects), strict=True)]
        except elf.Unknown:
            pass  # LLVM's linker supports it, or reports the problem
    codes: list[Code] = []
    with forking.no_fork(), _lock:
        group: list[tuple[bytes, Sequence[str]]] = []
        taken: set[str] = set()
        for data, symbols in objects:
            if taken & set(symbols):
                codes += _link(group)
                group, taken = [], set()
            group.append((data, symbols))
            taken |= set(symbols)
        if group:
            codes += _link(group)
    return codes


def _link(group: list[tuple[bytes, Sequence[str]]]) -> list[Code]:
    global _jit
    import llvmlite.binding as llvm  # saves start-up time: LLVM

    if _jit is None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        _jit = llvm.create_lljit_compiler(use_jit_link=True)
    builder = llvm.JITLibraryBuilder().add_current_process()
    for data, symbols in group:
        builder.add_object_img(data)
        for symbol in symbols:
            builder.export_symbol(symbol)
    try:
        library = builder.link(_jit, f"hloom-{next(_counter)}")
    except RuntimeError as error:
        names = ", ".join(symbol for _, symbols in group for symbol in symbols)
        raise LoadError(f"the object code of {names} does not load: {error}") from error
    return [Code({symbol: library[symbol] for symbol in symbols}, library) for _, symbols in group]
