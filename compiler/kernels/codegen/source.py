"""KernelSource: one kernel as readable Python text, ready for a target to compile."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cached_property
from typing import Any

from hloom.compiler.kernel_ir import printer, reader, scopes
from hloom.compiler.kernel_ir.bounds.chosen import Checks
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.nodes import Kernel
from hloom.ir.process import forking
from hloom.ir.records import record

# The mark of a store that goes past the caches: metadata that nothing else in a kernel has, of the kinds that LLVM's
# vectorizer keeps on the vector stores it makes of stores. It is about the order among atomic accesses.
STREAM_MARK = "!mmra"


@record(frozen=True)
class KernelSource:
    """One kernel of the dialect described in docs/reference/kernels.md.

    name:   a Python identifier; `text` defines one function of that name.
    text:   the Python source of that function.
    params: one type for each parameter of the function, in order. `"f32*"` is a pointer to float32 elements (any HLO
            dtype name followed by `*`), `"s64"` a 64-bit integer (sizes, strides, byte addresses). On the CPU the
            last two parameters are always `lo` and `hi`: the kernel does the work items lo <= item < hi.
    parts:  (name, kernel) of kernels that the text calls by that name; they become part of this one's code.
    """

    name: str
    text: str
    params: tuple[str, ...]
    parts: tuple[tuple[str, KernelSource], ...] = ()

    @property
    def identity(self) -> str:
        """What the kernel's code depends on besides its name and parameters."""
        return self.text

    @property
    def checks(self) -> Checks | None:
        """Which accesses are compiled with checks; None for a kernel without."""
        return None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters."""
        return tuple([var.name for var in self.unsettled.params])

    @classmethod
    def of(cls, kernel: Kernel, parts: tuple[tuple[str, KernelSource], ...] = ()) -> KernelSource:
        """The source of nodes, which nobody changes any more."""
        params = [f"{var.type[1:]}*" if var.type[0] == "*" else var.type for var in kernel.params]
        source = cls(kernel.name, printer.printed(kernel), tuple(params), parts)
        source.__dict__["_made"] = kernel
        return source

    @cached_property
    def nodes(self) -> Kernel:
        """The nodes of the text. Raises KernelSyntaxError, SyntaxError."""
        kernel = self.unsettled
        if "_made" in self.__dict__:
            scopes.settle(kernel)
        return kernel

    @property
    def unsettled(self) -> Kernel:
        """The nodes, of whose variables nobody may have said yet whether they vary."""
        made: Kernel | None = self.__dict__.get("_made")
        if made is not None:
            return made
        found: Kernel | None = self.__dict__.get("nodes")
        if found is None:
            parts = [name for name, _ in self.parts]
            found = self.__dict__["nodes"] = reader.read(self.text, self.params, by_name, parts)
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("nodes", "_made")}


class LaterSource(KernelSource):
    """A kernel that is made when its text or its nodes are asked for. Two of one identity are the same.

    make: makes it. identity: what decides that, besides the sources of the compiler.
    """

    identity: str = ""

    def __init__(self, name: str, params: tuple[str, ...], identity: str, make: Callable[[], Kernel]):
        self.__dict__.update(name=name, params=params, parts=(), identity=identity, make=make)

    @cached_property
    def text(self) -> str:
        return printer.printed(self.unsettled)

    @property
    def unsettled(self) -> Kernel:
        if "_made" not in self.__dict__:
            self.__dict__["_made"] = self.__dict__["make"]()
        made: Kernel = self.__dict__["_made"]
        return made

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, LaterSource) and (self.name, self.identity) == (other.name, other.identity)
        return same if isinstance(other, LaterSource) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.name, self.identity))

    def __reduce__(self) -> tuple[Any, ...]:
        return KernelSource, (self.name, self.text, self.params)


@record(frozen=True)
class CheckedSource(KernelSource):
    """A kernel that is compiled with checks of its accesses: its code has further parameters, before `lo` and `hi`
    (`kernel_ir.bounds.checks`)."""

    checks: Checks | None = None


_parsing = forking.lock()
_PARSES = 10


def parsed(text: str) -> ast.Module:
    """The syntax tree of a kernel's text, from any thread.

    CPython up to 3.12.1 counts the depth of the tree for all threads together: where one takes over in the middle, as a
    callback of the garbage collector lets it, both answer SystemError (gh-106905). Ours go one after the other, and a
    clash with others' parsing is tried again. Raises SyntaxError.
    """
    for _ in range(_PARSES - 1):
        try:
            with _parsing:
                return ast.parse(text)
        except SystemError:
            continue
    return ast.parse(text)
