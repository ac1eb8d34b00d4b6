"""What the LLVM emitter has to know of a kernel's nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hloom.compiler.kernel_ir.functions import is_slow
from hloom.compiler.kernel_ir.nodes import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    For,
    Kernel,
    Load,
    Logic,
    Scratch,
    Stmt,
    Store,
    Unary,
    Var,
    While,
)
from hloom.compiler.kernel_ir.transforms.nests import innermost
from hloom.compiler.kernel_ir.types import STORED

_HARMLESS = (Var, Const, Binary, Logic, Unary, Cast)


def is_harmless(node: Expr) -> bool:
    """Whether it may be computed where Python would not: no memory is read, no function but a cast is called."""
    return isinstance(node, _HARMLESS) and all(map(is_harmless, node.children()))


EXPLICIT = "; vectors are written out"  # the first line of a module that LLVM's vectorizer has nothing to do for
_BLOCKS = ("tile_", "transpose_", "fft")
_VECTORS = (*_BLOCKS, "copy_", "zero_")
SHORT = 8
_FROM_ZERO = Const("s64", 0), Const("s64", 1)


def is_plain(node: For) -> bool:
    """Whether a loop gains nothing from LLVM's vectorizer and unroller, which take most of its time for contractions:
    its body is vector code already, it stores elements that are not adjacent, or it has a few iterations, as many as
    are left of them."""
    match node.stop:
        case Call(function="min", arguments=bounds) if (node.start, node.step) == _FROM_ZERO:
            if any(isinstance(b, Const) and type(b.value) is int and b.value <= SHORT for b in bounds):
                return True
    return _calls(node, _BLOCKS) or _moves_apart(node)


def steps_of(kernel: Kernel) -> frozenset[Var]:
    """The arguments by which innermost loops of slow functions step, in a kernel without memory of its own.

    LLVM vectorizes a loop that steps by an argument for a step of 1 alone: for any other one it runs the functions one
    by one, in ten times the time.
    """
    if not any(map(is_slow, kernel.called())) or scratch_variables(kernel):
        return frozenset()
    innermost_variables = {path[-1].var for path in innermost(kernel.body)}
    expressions = (part for s in kernel.walk() for e in s.expressions() for part in e.walk())
    products = [e for e in expressions if isinstance(e, Binary) and e.op == "*"]
    pairs = [(e.left, e.right) for e in products] + [(e.right, e.left) for e in products]
    params = {var for var in kernel.params if var.type == "s64"}
    return frozenset(
        step
        for step, var in pairs
        if isinstance(step, Var) and step in params and isinstance(var, Var) and var in innermost_variables
    )


def is_check(test: Expr) -> bool:
    """Whether a test is that of an index out of range, `u64(i) >= u64(n)`."""
    match test:
        case Binary(op=">=", left=Cast(type="u64", operand=left), right=Cast(type="u64", operand=right)):
            return left.type == right.type == "s64"
    return False


def is_of_vectors(node: For) -> bool:
    """Whether a loop has a multiple of some iterations, `(k + 7) // 8 * 8`: it may have no more than one vector."""
    match node.stop:
        case Binary(op="+", right=Binary(op="*", left=Binary(op="//", right=Const() as lanes), right=Const() as again)):
            return lanes == again
    return False


def _moves_apart(node: For) -> bool:
    """Whether the loop is one assignment of an element to another, whose index is a multiple of the loop's variable:
    such stores are made one by one."""
    match node.body:
        case [Store(index=index, value=Load() as value, augmented=False) as store] if is_subscript(value):
            if is_function(store):
                return False
            products = (part for part in index.walk() if isinstance(part, Binary) and part.op == "*")
            return any(one is node.var for part in products for one in part.walk())
    return False


def is_subscript(load: Load) -> bool:
    """Whether a load is written `p[i]`: what is stored is no narrow dtype that is converted."""
    kind = load.pointer.type[1:]
    return kind not in STORED or load.type == STORED[kind]


def is_function(store: Store) -> bool:
    """Whether a store is written as a call: `stream_f32(p, i, v)`, `store_pred(p, i, v)`."""
    return store.streamed or store.stored in STORED


def _calls(node: Stmt, names: tuple[str, ...]) -> bool:
    return any(name.startswith(names) for name in node.called())


def scratch_variables(kernel: Kernel) -> frozenset[Var]:
    """The variables of scratch memory."""
    return frozenset([statement.var for statement in kernel.walk() if isinstance(statement, Scratch)])


class Run(NamedTuple):
    """A loop that fills adjacent elements of scratch memory: with zeros (source: None), or with adjacent elements of
    the same dtype from a parameter."""

    variable: Var
    target: Store
    source: Load | None


def run_of(node: For, scratch: frozenset[Var], parameters: tuple[Var, ...]) -> Run | None:
    """The loop as a run, which is a call of the C library, as LLVM would find out after much else; None for others."""
    if node.step != _FROM_ZERO[1] or node.var.varies:
        return None

    def adjacent(index: Expr) -> bool:
        match index:
            case Var():
                return index is node.var
            case Binary(op="+", left=left, right=Var() as right):
                return right is node.var and all(part is not node.var for part in left.walk())
        return False

    match node.body:
        case [Store(pointer=Var() as target, index=index, value=value, augmented=False) as store]:
            if target not in scratch or is_function(store) or not adjacent(index):
                return None
            match value:
                case Load(pointer=Var() as source, index=index) if is_subscript(value):
                    kind = source.type[1:]
                    same = source in parameters and f"*{STORED.get(kind, kind)}" == target.type
                    return Run(node.var, store, value) if same and adjacent(index) else None
                case Cast(type=kind, operand=Const(value=0)) if f"*{kind}" == target.type:
                    return Run(node.var, store, None)
    return None


def is_explicit(kernel: Kernel, written: Callable[[For], object]) -> bool:
    """Whether a kernel has vectors that are written out, and no innermost loop that is neither of them nor short.
    written: true for a loop that will be none (a run)."""
    plain = 0
    for loop in kernel.walk():
        if isinstance(loop, For | While):
            if any(isinstance(inner, For | While) for part in loop.body for inner in part.walk()):
                continue
            if isinstance(loop, While):
                return False
            if is_plain(loop) or _calls(loop, _VECTORS) or written(loop):
                plain += 1
            elif not (isinstance(loop.stop, Const) and (loop.start, loop.step) == _FROM_ZERO):
                return False
    return plain > 0
