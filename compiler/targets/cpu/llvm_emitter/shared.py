"""Functions of the math library that a kernel calls often: compiled once, and called, instead of inlined at each call.

LLVM takes some 25 ms for each inlined copy of a sine (Zen 3), so a kernel of many of them took seconds. A shared
function is called without making the loop scalar: LLVM's vector function ABI names its variants of several lanes, and
the loop vectorizer calls the one of its width. A variant is a loop over its lanes around the inlined scalar function,
which the vectorizer turns into straight vector code, so both forms have the same bits. A complex argument is passed as
two numbers.

Source: LLVM, Vector Function ABI, https://llvm.org/docs/LangRef.html (attribute "vector-function-abi-variant").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from hloom.compiler.kernel_ir.types import PART, REGISTER
from hloom.compiler.targets.cpu.interface import library_symbol
from hloom.compiler.targets.cpu.llvm_emitter.values import LLVM

SHARED = "shared "  # before the name of a function: the module with its shared form
CALLS = 6  # of one function, from which on it may be shared
INLINED = 4  # calls of one part of a kernel up to which it is inlined
INSTRUCTIONS = 1100  # that its inlined copies would have
_WIDTHS = {"float": (4, 8, 16), "double": (2, 4, 8), "i32": (4, 8, 16), "i64": (2, 4, 8)}  # lanes of variants, by type


def shared_symbol(name: str) -> str:
    """The symbol of the shared form of a function of the math library; its variants append their lanes."""
    return f"{library_symbol(name)}.shared"


def is_shared_symbol(symbol: str) -> bool:
    """Whether a symbol is one of a shared function or its variants."""
    return symbol.startswith(library_symbol("")) and ".shared" in symbol


def often_called(calls: Counter[str], size: Callable[[str], int]) -> frozenset[str]:
    """The functions of the math library that are called so often that they are to be shared.

    size: instructions of a function that can be shared; 0 for others.
    """
    calls = calls.copy()
    for name in [name for name in calls if name.endswith("_c64") and not size(name)]:
        calls[f"{name[:-4]}_c128"] += calls[name]  # computed by that function
    often = (name for name, count in calls.items() if count >= CALLS)
    return frozenset(name for name in often if calls[name] * size(name) >= INSTRUCTIONS)


def scalars(kinds: Iterable[str]) -> list[str] | None:
    """LLVM's types of arguments of these kinds, two for a complex one; None where a vector cannot hold one of them."""
    found = []
    for kind in kinds:
        kind = REGISTER.get(kind, kind)
        found += [LLVM[PART[kind]]] * 2 if kind in PART else [LLVM[kind]]
    return found if all(kind in _WIDTHS for kind in found) else None


def shared_text(name: str, parameters: tuple[str, ...], result: str) -> str:
    """A module that defines the shared form of a function and its variants, and declares the function itself."""
    kinds, results = scalars(parameters), scalars([result])
    assert kinds is not None and results is not None
    symbol, shared = library_symbol(name), shared_symbol(name)
    whole = [LLVM[REGISTER.get(p, p)] for p in parameters]
    returned = LLVM[REGISTER.get(result, result)]
    widths = sorted({width for kind in (*kinds, *results) for width in _WIDTHS[kind]})
    variants = ",".join(f"_ZGV_LLVM_N{width}{'v' * len(kinds)}_{shared}({shared}.{width})" for width in widths)
    passed = ", ".join(f"{kind} %x{k}" for k, kind in enumerate(kinds))
    lines, arguments = _arguments(whole, [f"%x{k}" for k in range(len(kinds))])
    parts = [
        f"declare {returned} @{symbol}({', '.join(whole)})",
        "declare ptr @llvm.launder.invariant.group.p0(ptr)",
        f"define {returned} @{shared}({passed}) #0 {{",
        *lines,
        f"  %r = call {returned} @{symbol}({arguments})\n  ret {returned} %r\n}}",
    ]
    for width in widths:
        parts += _variant(symbol, f"{shared}.{width}", width, whole, kinds, results, returned)
        parts.append(f"!{width} = distinct !{{!{width}, !98, !99, !{100 + width}}}")
        parts.append(f'!{100 + width} = !{{!"llvm.loop.vectorize.width", i32 {width}}}')
    pure = "noinline nounwind willreturn memory(none)"
    parts += [
        f'attributes #0 = {{ {pure} "vector-function-abi-variant"="{variants}" }}',
        f"attributes #1 = {{ {pure} }}",
        '!98 = !{!"llvm.loop.interleave.count", i32 1}\n!99 = !{!"llvm.loop.unroll.disable"}',
    ]
    return "\n".join(parts) + "\n"


def _arguments(whole: list[str], values: list[str]) -> tuple[list[str], str]:
    """Lines that make the arguments of the function from scalars, and the arguments."""
    lines, arguments, left = [], [], iter(values)
    for k, kind in enumerate(whole):
        if not kind.startswith("{"):
            arguments.append(f"{kind} {next(left)}")
            continue
        part = kind.strip("{} ").split(",")[0]
        lines.append(f"  %c{k} = insertvalue {kind} undef, {part} {next(left)}, 0")
        lines.append(f"  %z{k} = insertvalue {kind} %c{k}, {part} {next(left)}, 1")
        arguments.append(f"{kind} %z{k}")
    return lines, ", ".join(arguments)


def _variant(symbol, variant, width: int, whole, kinds, results, returned) -> list[str]:
    """The loop over the lanes: arguments and results lie on the stack until the vectorizer has removed the loop."""
    vector = [f"<{width} x {kind}>" for kind in kinds]
    made = [f"<{width} x {kind}>" for kind in results]
    kind = made[0] if len(made) == 1 else f"{{ {', '.join(made)} }}"
    lines = [f"define {kind} @{variant}({', '.join(f'{v} %x{k}' for k, v in enumerate(vector))}) #1 {{", "entry:"]
    for k, v in enumerate(vector):
        lines += [f"  %in{k} = alloca {v}, align 64", f"  store {v} %x{k}, ptr %in{k}"]
    lines += [f"  %out{k} = alloca {v}, align 64" for k, v in enumerate(made)]
    count = str(width)
    if width == 2:
        # A loop of two known steps becomes something else before the vectorizer sees it.
        count = "%lanes"
        lines.append("  %hidden = call ptr @llvm.launder.invariant.group.p0(ptr inttoptr (i64 2 to ptr))")
        lines.append("  %lanes = ptrtoint ptr %hidden to i64")
    lines += ["  br label %loop", "loop:", "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]"]
    for k, element in enumerate(kinds):
        lines.append(f"  %p{k} = getelementptr {element}, ptr %in{k}, i64 %i")
        lines.append(f"  %e{k} = load {element}, ptr %p{k}")
    before, arguments = _arguments(whole, [f"%e{k}" for k in range(len(kinds))])
    lines += [*before, f"  %r = call {returned} @{symbol}({arguments})"]
    for k, element in enumerate(results):
        value = "%r"
        if len(results) > 1:
            value = f"%r{k}"
            lines.append(f"  {value} = extractvalue {returned} %r, {k}")
        lines.append(f"  %q{k} = getelementptr {element}, ptr %out{k}, i64 %i")
        lines.append(f"  store {element} {value}, ptr %q{k}")
    lines += ["  %next = add nuw nsw i64 %i, 1", f"  %more = icmp ult i64 %next, {count}"]
    lines += [f"  br i1 %more, label %loop, label %end, !llvm.loop !{width}", "end:"]
    lines += [f"  %v{k} = load {v}, ptr %out{k}" for k, v in enumerate(made)]
    if len(made) == 1:
        return [*lines, f"  ret {kind} %v0", "}"]
    lines.append(f"  %s0 = insertvalue {kind} undef, {made[0]} %v0, 0")
    lines.append(f"  %s1 = insertvalue {kind} %s0, {made[1]} %v1, 1")
    return [*lines, f"  ret {kind} %s1", "}"]
