"""KernelSource: one kernel as readable Python text, ready for a target to compile."""

from __future__ import annotations

import ast

from hloom.compiler.kernel_ir.bounds.chosen import Checks
from hloom.compiler.kernel_ir.nodes import Kernel
from hloom.compiler.kernel_ir.printer import printed
from hloom.compiler.kernel_ir.types import is_pointer
from hloom.ir.process import forking
from hloom.ir.records import record

# An alias scope that nothing else names: LLVM's vectorizer keeps this mark on the vector stores it makes of stores.
STREAMED = "hloom streamed"
_NODES = "_nodes"


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
    def nodes(self) -> Kernel | None:
        """What the text says, where it was made of nodes: it need not be read again."""
        return self.__dict__.get(_NODES)

    @property
    def checks(self) -> Checks | None:
        """Which accesses are compiled with checks; None for a kernel without."""
        return None


@record(frozen=True)
class CheckedSource(KernelSource):
    """A kernel that is compiled with checks of its accesses: its code has further parameters, before `lo` and `hi`
    (`kernel_ir.bounds.checks`)."""

    checks: Checks | None = None


def source_of(kernel: Kernel, parts: tuple[tuple[str, KernelSource], ...] = ()) -> KernelSource:
    """The source of a kernel that is there as nodes, whose variables say whether they vary (`scopes.settle`)."""
    params = tuple([f"{var.type[1:]}*" if is_pointer(var.type) else var.type for var in kernel.params])
    made = KernelSource(kernel.name, printed(kernel), params, parts)
    made.__dict__[_NODES] = kernel  # no field: sources of one text are equal
    return made


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
