"""Object code into this process: bytes to callable addresses, by `elf` or through llvmlite (no Numba).

    load(data, symbols) -> dict[str, int]                    one object file
    load_all([(data, symbols), ...]) -> list[dict[str, int]] several at once, cheaper for each

Code stays loaded until the process ends: programs hold bare addresses. Names of different objects do not collide.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from hloom.ir.process import forking
from hloom.runtime import elf

_lock = forking.lock()
_counter = itertools.count()
_jit = None
_kept: list[object] = []


class LoadError(RuntimeError):
    """Object code that the linker refuses or that lacks a symbol."""


def load(data: bytes, symbols: Sequence[str]) -> dict[str, int]:
    """Load one object file; the address of each of `symbols`. Functions of the C library resolve in this process."""
    return load_all([(data, symbols)])[0]


def load_all(objects: Iterable[tuple[bytes, Sequence[str]]]) -> list[dict[str, int]]:
    """Load object files; for each, the addresses of its symbols.

    Measured per object (ms): `elf` 0.03 to 0.1; a new MCJIT engine 1.1, one shared MCJIT engine 0.2 (but equal names
    collide in it), ORC 0.4 alone and 0.2 in a group without a repeated symbol.
    """
    objects = list(objects)
    if elf.usable():
        try:
            found, memory = elf.load(objects)
        except elf.Unknown:
            pass  # LLVM's linker knows it, or says what is wrong
        else:
            _kept.append(memory)
            return found
    addresses: list[dict[str, int]] = []
    with forking.no_fork(), _lock:
        group: list[tuple[bytes, Sequence[str]]] = []
        taken: set[str] = set()
        for data, symbols in objects:
            if taken & set(symbols):
                addresses += _link(group)
                group, taken = [], set()
            group.append((data, symbols))
            taken |= set(symbols)
        if group:
            addresses += _link(group)
    return addresses


def _link(group: list[tuple[bytes, Sequence[str]]]) -> list[dict[str, int]]:
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
    _kept.append(library)
    return [{symbol: library[symbol] for symbol in symbols} for _, symbols in group]
