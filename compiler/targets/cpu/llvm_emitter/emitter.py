"""Kernel sources to LLVM IR in one walk over Python's syntax tree, without Numba.

Kernel sources are written in a small language: loops over int64 ranges, pointers, numbers, calls of kernel intrinsics,
with Numba's meaning. Numba's front end compiles the math library, and every source with what this walk does not know
(`Unsupported`: unusual mixtures of types). Tests hold the two equal on the kernels of the benchmark's programs.
Every variable that is assigned once on the way to its uses is an LLVM value; the others live in stack slots, which
LLVM's first pass turns into values.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

from hloom.compiler.kernels.codegen.source import KernelSource, parsed
from hloom.compiler.targets.cpu.llvm_emitter import scratch
from hloom.compiler.targets.cpu.llvm_emitter.analysis import (
    EXPLICIT,
    Run,
    in_slots,
    is_explicit,
    is_harmless,
    is_plain,
    run_of,
    scratch_dtypes,
)
from hloom.compiler.targets.cpu.llvm_emitter.calls import CALLS, call_function
from hloom.compiler.targets.cpu.llvm_emitter.shared import INLINED, SHARED, counted_calls, often_called
from hloom.compiler.targets.cpu.llvm_emitter.values import (
    LLVM,
    PART,
    Unsupported,
    Value,
    Values,
    element,
    is_integer,
    is_pointer,
)
from hloom.compiler.targets.cpu.loop_hints import interleaved, is_interleaved
from hloom.ir.types import DTYPES

_COMPARE = {
    ast.Lt: ("slt", "ult", "olt"), ast.LtE: ("sle", "ule", "ole"), ast.Gt: ("sgt", "ugt", "ogt"),
    ast.GtE: ("sge", "uge", "oge"), ast.Eq: ("eq", "eq", "oeq"), ast.NotEq: ("ne", "ne", "une"),
}  # fmt: skip


Signature = Callable[[str], tuple[tuple[str, ...], str] | None]
Size = Callable[[str], int]


def kernel_text(
    kernel: KernelSource, triple: str, signature: Signature, size: Size | None = None
) -> tuple[str, list[str]]:
    """LLVM IR of a kernel with its C entry, and the names of the library and block functions that it calls.

    signature: HLO dtypes of the parameters and of the result of a function of the math library; None where there is
               none.
    size:      lines of LLVM IR of a function that may be shared (`shared`), 0 for others; None: all are inlined.

    Raises Unsupported for what Numba has to compile, SyntaxError.
    """
    if kernel.params[-2:] != ("s64", "s64"):
        raise Unsupported(f"{kernel.params} without lo and hi")
    module = Module(signature, scratch.size_type(triple))
    if size is not None:
        calls = counted_calls(_trees(kernel))
        module.share(often_called(calls, size))
        module.often = frozenset(name for name, count in calls.items() if count > INLINED)
    for name, part in kernel.parts:
        module.part(name, part)
    module.called = set()
    module.function(f"{kernel.name}.body", kernel, "noinline nounwind")
    module.entry(kernel)
    text = module.text(triple)
    # Loops of many calls have enough to do at a time.
    wanted = is_interleaved(module.called) and not module.shared
    return (interleaved(text) if wanted else text), list(module.libraries)


def _trees(kernel: KernelSource) -> Iterator[ast.AST]:
    yield parsed(kernel.text)
    for _, part in kernel.parts:
        yield from _trees(part)


class Module:
    """Functions, declarations and library names of one kernel."""

    def __init__(self, signature: Signature, size_type: str):
        self.signature, self.size_type = signature, size_type
        self.functions: list[str] = []
        self.declarations: dict[str, str] = {}
        self.libraries: dict[str, None] = {}
        self.parts: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.symbols: dict[KernelSource, str] = {}
        self.metadata: list[str] = []
        self.loops: list[str] = []
        self.explicit = True  # until a loop is found that LLVM's vectorizer may want
        self.called: set[str] = set()
        self.shared: frozenset[str] = frozenset()
        self.often: frozenset[str] = frozenset()  # parts that are called too often to be inlined

    def share(self, names: frozenset[str]) -> None:
        """Functions of the math library that are called, not inlined. Their modules are linked before those of the
        functions, which are linked where something calls them."""
        self.shared = names
        for name in sorted(names):
            self.libraries |= {f"{SHARED}{name}": None, name: None}

    def declare(self, symbol: str, text: str) -> None:
        self.declarations[symbol] = text

    def plain_loop(self) -> str:
        """The mark of a loop that LLVM neither vectorizes nor unrolls."""
        if not self.loops:
            self.loops += [
                '!8000 = !{!"llvm.loop.unroll.disable"}',
                '!8001 = !{!"llvm.loop.vectorize.enable", i1 false}',
            ]
        number = 8000 + len(self.loops)
        self.loops.append(f"!{number} = distinct !{{!{number}, !8000, !8001}}")
        return f", !llvm.loop !{number}"

    def part(self, name: str, kernel: KernelSource) -> None:
        symbol = self.symbols.get(kernel)
        if symbol is None:
            symbol = self.symbols[kernel] = f"{name}.part{len(self.symbols)}"
            before, self.parts = self.parts, {}
            for inner, part in kernel.parts:
                self.part(inner, part)
            self.function(symbol, kernel, "noinline nounwind" if name in self.often else "alwaysinline nounwind")
            self.parts = before
        self.parts = self.parts | {name: (symbol, kernel.params)}

    def function(self, symbol: str, kernel: KernelSource, attributes: str) -> None:
        (definition,) = (node for node in parsed(kernel.text).body if isinstance(node, ast.FunctionDef))
        widened: dict[str, str] = {}
        for _ in range(8):
            made = _Function(self, definition, kernel.params, widened)
            self.explicit &= is_explicit(definition, made.run_of)
            try:
                self.functions.append(made.define(symbol, attributes))
                return
            except _Widen as found:
                widened = widened | {found.name: found.kind}
        raise Unsupported("variables whose types follow each other")

    def entry(self, kernel: KernelSource) -> None:
        """`void NAME(int64_t *args, int64_t lo, int64_t hi)`: see `lower._kernel_entry`."""
        lines, values = [], []
        for k, param in enumerate(kernel.params[:-2]):
            lines.append(f"  %p{k} = getelementptr inbounds i64, ptr %args, i64 {k}\n  %w{k} = load i64, ptr %p{k}")
            kind = LLVM["*" if param.endswith("*") else param]
            word = f"%w{k}"
            if kind == "ptr":
                lines.append(f"  %v{k} = inttoptr i64 {word} to ptr")
            elif kind == "double":
                lines.append(f"  %v{k} = bitcast i64 {word} to double")
            elif kind == "float":
                lines.append(f"  %n{k} = trunc i64 {word} to i32\n  %v{k} = bitcast i32 %n{k} to float")
            elif kind[0] == "{":
                raise Unsupported("a complex argument")
            elif kind != "i64":
                lines.append(f"  %v{k} = trunc i64 {word} to {kind}")
            values.append(f"{kind} {word if kind == 'i64' else f'%v{k}'}")
        arguments = ", ".join([*values, "i64 %lo", "i64 %hi"])
        self.functions.append(
            f"define void @{kernel.name}(ptr %args, i64 %lo, i64 %hi) nounwind {{\nentry:\n"
            + "\n".join(lines)
            + f"\n  call void @{kernel.name}.body({arguments})\n  ret void\n}}"
        )

    def text(self, triple: str) -> str:
        head = [EXPLICIT] if self.explicit else []
        parts = [
            *head,
            f'target triple = "{triple}"',
            *self.declarations.values(),
            *self.functions,
            *self.metadata,
            *self.loops,
        ]
        return "\n\n".join(parts) + "\n"


class _Widen(Exception):
    """A variable holds integers of several types: it has to be int64 from the start."""

    def __init__(self, name: str, kind: str):
        self.name, self.kind = name, kind


class _Function(Values):
    """The walk over one function: statements here, numbers in `Values`, calls in `calls`."""

    def __init__(self, module: Module, definition: ast.FunctionDef, params: tuple[str, ...], widened: dict[str, str]):
        super().__init__()
        self.module, self.definition, self.widened = module, definition, widened
        names = [argument.arg for argument in definition.args.args]
        self.arguments = {
            name: Value("*" + p[:-1] if p.endswith("*") else p, f"%{name}")
            for name, p in zip(names, params, strict=True)
        }
        self.in_slots = in_slots(definition)
        self.in_scratch = scratch_dtypes(definition)
        self.dtypes = {name: element(v.kind) for name, v in self.arguments.items() if is_pointer(v.kind)}
        # Numbers that are chosen by branches: there are masked reads of 32 and 64 bits on every processor.
        stored = {p[:-1] for p in params if p.endswith("*")}
        self.branching = ("f32", "f64") if stored <= {"f32", "f64", "s32", "u32", "s64", "u64"} else ()
        self.slots: dict[str, Value] = {}  # variable -> its type, and the address
        self.scopes: list[dict[str, Value]] = [{}]
        self.allocas: list[str] = []
        self.arrays: list[scratch.Array] = []
        self.calls_kernels = False
        self.loops: list[tuple[str, str]] = []  # labels for `continue` and `break`

    def define(self, symbol: str, attributes: str) -> str:
        for name, value in self.arguments.items():
            self.assign(name, value)
        self.suite(self.definition.body)
        parameters = ", ".join(
            f"ptr noalias {v.text}" if is_pointer(v.kind) else f"{LLVM[v.kind]} {v.text}"
            for v in self.arguments.values()
        )
        first, last, declarations = scratch.places(self.arrays, self.calls_kernels, self.module.size_type)
        for declared, text in declarations.items():
            self.module.declare(declared, text)
        self.go_to("leave")
        lines = [*self.allocas, *first, "  br label %start", "start:", *self.lines, "leave:", *last, "  ret void"]
        body = "\n".join(["entry:", *lines])
        return f"define internal void @{symbol}({parameters}) {attributes} {{\n{body}\n}}"

    def run_of(self, node: ast.For) -> Run | None:
        run = run_of(node, self.in_scratch, self.dtypes)
        return run if run is not None and run.variable not in self.in_slots else None

    # --- statements

    def suite(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self._write(statement)

    def nested(self, statements: list[ast.stmt], bound: dict[str, Value] | None = None) -> None:
        self.scopes.append(dict(bound or {}))
        self.suite(statements)
        self.scopes.pop()

    def assign(self, name: str, value: Value) -> None:
        if name not in self.in_slots:
            self.scopes[-1][name] = value
            return
        slot = self.slots.get(name)
        if slot is None:
            kind = self.widened.get(name, value.kind)
            slot = self.slots[name] = Value(kind, self.alloca(LLVM["*" if is_pointer(kind) else kind]))
        if value.kind != slot.kind:
            if not (is_integer(value.kind) and is_integer(slot.kind)) or "u64" in (value.kind, slot.kind):
                raise Unsupported(f"{name} holds {slot.kind} and {value.kind}")
            if slot.kind != "s64":
                raise _Widen(name, "s64")
            value = self.cast(value, slot.kind)
        self.add(f"store {self.typed(value)}, ptr {slot.text}")

    def read(self, name: str) -> Value:
        if name in self.in_slots:
            slot = self.slots.get(name)
            if slot is None:
                raise Unsupported(f"{name} is read before it has a type")
            kind = LLVM["*" if is_pointer(slot.kind) else slot.kind]
            return Value(slot.kind, self.result(f"load {kind}, ptr {slot.text}"))
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        if name in ("inf", "nan"):
            return self.float_constant("f64", float(name))
        raise Unsupported(f"the name {name}")

    def alloca(self, kind: str, count: str = "", align: int = 0) -> str:
        name = self.name()
        text = f"  {name} = alloca {kind}" + (f", i64 {count}" if count else "") + (f", align {align}" if align else "")
        self.allocas.append(text)
        return name

    def scratch_array(self, dtype: str, count: int) -> Value:
        """Scratch memory for so many elements, until the function returns; the same in each iteration of a loop."""
        kind = element(f"*{dtype}")
        array = scratch.Array(self.name(), LLVM[kind], count, count * DTYPES[kind].itemsize)
        self.arrays.append(array)
        return Value(f"*{dtype}", array.name)

    def _assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Tuple):
                if not isinstance(node.value, ast.Tuple) or len(node.value.elts) != len(target.elts):
                    raise Unsupported("tuples")
                values = [self.value(part) for part in node.value.elts]
                for part, value in zip(target.elts, values, strict=True):
                    self._store(part, value)
            else:
                self._store(target, self.value(node.value))

    def _store(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.assign(target.id, value)
        elif isinstance(target, ast.Subscript):
            pointer, kind = self.element_address(target)
            self.add(f"store {self.typed(self.cast(value, kind))}, ptr {pointer}")
        else:
            raise Unsupported(type(target).__name__)

    def _augassign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            old = self.read(node.target.id)
            self.assign(node.target.id, self.arithmetic(type(node.op), old, self.value(node.value)))
        elif isinstance(node.target, ast.Subscript):
            pointer, kind = self.element_address(node.target)
            old = Value(kind, self.result(f"load {LLVM[kind]}, ptr {pointer}"))
            made = self.cast(self.arithmetic(type(node.op), old, self.value(node.value)), kind)
            self.add(f"store {self.typed(made)}, ptr {pointer}")
        else:
            raise Unsupported(type(node.target).__name__)

    def _expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        if not isinstance(node.value, ast.Call):
            raise Unsupported("a statement without effect")
        self.call(node.value)

    def _for(self, node: ast.For) -> None:
        iterator = node.iter
        if node.orelse or not isinstance(node.target, ast.Name) or not isinstance(iterator, ast.Call):
            raise Unsupported("a loop over something else than a range")
        if not isinstance(iterator.func, ast.Name) or iterator.func.id != "range" or iterator.keywords:
            raise Unsupported("a loop over something else than a range")
        bounds = [self.cast(self.value(bound), "s64").text for bound in iterator.args]
        start, stop, step = ("0", *bounds, "1") if len(bounds) == 1 else (*bounds, "1")[:3]
        if (run := self.run_of(node)) is not None:
            return self._run(run, start, stop)
        head, body, latch, end = (self.label(what) for what in ("head", "body", "latch", "end"))
        current, following = self.name(), self.name()
        before = self.next_block(self.label("before"))
        self.next_block(head)
        self.add(f"{current} = phi i64 [ {start}, %{before} ], [ {following}, %{latch} ]")
        if step.lstrip("-").isdigit():
            test = self.result(f"icmp {'slt' if int(step) > 0 else 'sgt'} i64 {current}, {stop}")
        else:
            rising = self.result(f"icmp sgt i64 {step}, 0")
            up, down = (self.result(f"icmp {how} i64 {current}, {stop}") for how in ("slt", "sgt"))
            test = self.result(f"select i1 {rising}, i1 {up}, i1 {down}")
        self.add(f"br i1 {test}, label %{body}, label %{end}")
        self.block(body)
        value = Value("s64", current)
        self.loops.append((latch, end))
        if node.target.id in self.in_slots:
            self.assign(node.target.id, value)
            self.nested(node.body)
        else:
            self.nested(node.body, {node.target.id: value})
        self.loops.pop()
        self.next_block(latch)
        self.add(f"{following} = add nsw i64 {current}, {step}")
        self.add(f"br label %{head}{self.module.plain_loop() if is_plain(node) else ''}")
        self.block(end)

    def _run(self, run: Run, start: str, stop: str) -> None:
        self.scopes.append({run.variable: Value("s64", start)})
        place, dtype = self.element_address(run.target)
        source = self.element_address(run.source)[0] if run.source is not None else None
        self.scopes.pop()
        count = CALLS["max"](self, [Value("s64", self.result(f"sub i64 {stop}, {start}")), Value("s64", "0")])
        size = self.result(f"mul i64 {count.text}, {DTYPES[dtype].itemsize}")
        if source is None:
            self.module.declare("llvm.memset.p0.i64", "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
            self.add(f"call void @llvm.memset.p0.i64(ptr {place}, i8 0, i64 {size}, i1 false)")
        else:
            self.module.declare("llvm.memcpy.p0.p0.i64", "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
            self.add(f"call void @llvm.memcpy.p0.p0.i64(ptr {place}, ptr {source}, i64 {size}, i1 false)")

    def _while(self, node: ast.While) -> None:
        if node.orelse:
            raise Unsupported("while ... else")
        head, body, end = (self.label(what) for what in ("head", "body", "end"))
        self.next_block(head)
        if isinstance(node.test, ast.Constant) and node.test.value is True:
            self.go_to(body)
        else:
            self.add(f"br i1 {self.truth(self.value(node.test))}, label %{body}, label %{end}")
        self.block(body)
        self.loops.append((head, end))
        self.nested(node.body)
        self.loops.pop()
        self.go_to(head)
        self.block(end)

    def _if(self, node: ast.If) -> None:
        test = self.truth(self.value(node.test))
        then, end = self.label("then"), self.label("end")
        other = self.label("else") if node.orelse else end
        self.add(f"br i1 {test}, label %{then}, label %{other}")
        self.block(then)
        self.nested(node.body)
        self.go_to(end)
        if node.orelse:
            self.block(other)
            self.nested(node.orelse)
            self.go_to(end)
        self.block(end)

    def _jump(self, node: ast.Break | ast.Continue) -> None:
        self.go_to(self.loops[-1][isinstance(node, ast.Break)])
        self.block(self.label("dead"))  # text after a jump is never reached, but has to stand in a block

    _break = _continue = _jump

    def _return(self, node: ast.Return) -> None:
        if node.value is not None:
            raise Unsupported("a result")
        self.go_to("leave")
        self.block(self.label("dead"))

    def _pass(self, node: ast.Pass) -> None:
        pass

    # --- expressions

    def value(self, node: ast.expr) -> Value:
        return self._write(node)

    def _write(self, node: ast.AST) -> Any:
        """What the method for nodes of this type returns: nothing for statements, the value of expressions."""
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise Unsupported(type(node).__name__)
        return method(node)

    def _name(self, node: ast.Name) -> Value:
        return self.read(node.id)

    def _constant(self, node: ast.Constant) -> Value:
        value = node.value
        if isinstance(value, bool):
            return Value("pred", str(value).lower())
        if isinstance(value, int) and -(1 << 63) <= value < 1 << 64:
            return Value("s64" if value < 1 << 63 else "u64", str(value))
        if isinstance(value, float):
            return self.float_constant("f64", value)
        raise Unsupported(f"the constant {value!r}")

    def _binop(self, node: ast.BinOp) -> Value:
        return self.arithmetic(type(node.op), self.value(node.left), self.value(node.right))

    def _unaryop(self, node: ast.UnaryOp) -> Value:
        value = self.value(node.operand)
        if isinstance(node.op, ast.USub):
            if isinstance(node.operand, ast.Constant) and value == Value("u64", str(1 << 63)):
                return Value("s64", f"-{value.text}")  # Python has no negative literals: it is not minus a u64
            return self.negative(value)
        if isinstance(node.op, ast.Not):
            return Value("pred", self.result(f"xor i1 {self.truth(value)}, true"))
        if isinstance(node.op, ast.Invert) and (value.kind == "pred" or is_integer(value.kind)):
            ones = "true" if value.kind == "pred" else "-1"
            return Value(value.kind, self.result(f"xor {self.typed(value)}, {ones}"))
        raise Unsupported(type(node.op).__name__)

    def _compare(self, node: ast.Compare) -> Value:
        if len(node.ops) != 1 or type(node.ops[0]) not in _COMPARE:
            raise Unsupported("a chain of comparisons")
        left, right = self.value(node.left), self.value(node.comparators[0])
        # Integers of one type are compared as they are: LLVM does not find back from 64 bits to lanes of 32.
        if left.kind != right.kind or not is_integer(left.kind):
            left, right = self.together(left, right)
        return self.compared(type(node.ops[0]), left, right)

    def compared(self, operator: type[ast.cmpop], left: Value, right: Value) -> Value:
        signed, unsigned, ordered = _COMPARE[operator]
        if left.kind in PART:
            if operator not in (ast.Eq, ast.NotEq):
                raise Unsupported("an order of complex numbers")
            both = zip(self.parts(left), self.parts(right), strict=True)
            real, imaginary = (self.compared(operator, *parts).text for parts in both)
            how = "and" if operator is ast.Eq else "or"
            return Value("pred", self.result(f"{how} i1 {real}, {imaginary}"))
        if left.kind in ("f32", "f64"):
            return Value("pred", self.result(f"fcmp {ordered} {self.typed(left)}, {right.text}"))
        how = signed if left.kind[0] == "s" else unsigned
        return Value("pred", self.result(f"icmp {how} {self.typed(left)}, {right.text}"))

    def _boolop(self, node: ast.BoolOp) -> Value:
        first, *others = node.values
        value = self._pred(first)
        name = "and" if isinstance(node.op, ast.And) else "or"
        for other in others:
            if is_harmless(other):
                value = self.result(f"{name} i1 {value}, {self._pred(other)}")
                continue
            # What guards a read has to come first.
            more, end, here = self.label("more"), self.label("end"), self.label("here")
            self.next_block(here)
            self.add(f"br i1 {value}, label %{more if name == 'and' else end}, label %{end if name == 'and' else more}")
            self.block(more)
            second = self._pred(other)
            last = self.next_block(self.label("last"))
            self.next_block(end)
            known = "false" if name == "and" else "true"
            value = self.result(f"phi i1 [ {known}, %{here} ], [ {second}, %{last} ]")
        return Value("pred", value)

    def _pred(self, node: ast.expr) -> str:
        value = self.value(node)
        if value.kind != "pred":
            raise Unsupported("and, or of numbers")
        return value.text

    def _ifexp(self, node: ast.IfExp) -> Value:
        test = self.truth(self.value(node.test))
        if is_harmless(node.body) and is_harmless(node.orelse):
            yes, no = self.value(node.body), self.value(node.orelse)
            if yes.kind != no.kind:
                yes, no = self.together(yes, no)
            if yes.kind in self.branching and all(map(self._is_of_this_turn, (node.test, node.body))):
                return self._branches(test, yes, no)
            return self.choice(test, yes, no)
        then, other, end = self.label("then"), self.label("else"), self.label("end")
        self.add(f"br i1 {test}, label %{then}, label %{other}")
        made = []
        for label, part in ((then, node.body), (other, node.orelse)):
            self.block(label)
            value = self.value(part)
            last = self.next_block(self.label("last"))
            self.go_to(end)
            made.append((value, last))
        if made[0][0].kind != made[1][0].kind:
            raise Unsupported("a choice between types")
        self.block(end)
        kind = made[0][0].kind
        ways = ", ".join(f"[ {value.text}, %{last} ]" for value, last in made)
        return Value(kind, self.result(f"phi {LLVM['*' if is_pointer(kind) else kind]} {ways}"))

    def _is_of_this_turn(self, node: ast.expr) -> bool:
        return not isinstance(node, ast.Name) or node.id in self.scopes[-1]

    def _branches(self, test: str, yes: Value, no: Value) -> Value:
        """A choice that LLVM moves reads of memory into: what is not chosen is not read, in vectors neither."""
        kind = LLVM[yes.kind]
        slot = self.alloca(kind)
        then, other, end = self.label("then"), self.label("else"), self.label("end")
        self.add(f"br i1 {test}, label %{then}, label %{other}")
        for label, value in ((then, yes), (other, no)):
            self.block(label)
            self.add(f"store {self.typed(value)}, ptr {slot}")
            self.go_to(end)
        self.block(end)
        return Value(yes.kind, self.result(f"load {kind}, ptr {slot}"))

    def _attribute(self, node: ast.Attribute) -> Value:
        if node.attr not in ("real", "imag"):
            raise Unsupported(node.attr)
        return self.parts(self.value(node.value))[node.attr == "imag"]

    def _subscript(self, node: ast.Subscript) -> Value:
        pointer, kind = self.element_address(node)
        return Value(kind, self.result(f"load {LLVM[kind]}, ptr {pointer}"))

    def element_address(self, node: ast.Subscript) -> tuple[str, str]:
        return self.place(self.value(node.value), self.value(node.slice))

    def place(self, pointer: Value, index: Value) -> tuple[str, str]:
        """The address of an element, and the type of what is stored there."""
        if not is_pointer(pointer.kind) or not is_integer(index.kind):
            raise Unsupported("an index of something else than a pointer")
        kind = element(pointer.kind)
        offset = self.cast(index, "s64").text
        return self.result(f"getelementptr {LLVM[kind]}, ptr {pointer.text}, i64 {offset}"), kind

    def call(self, node: ast.Call) -> Value | None:
        if not isinstance(node.func, ast.Name) or node.keywords:
            raise Unsupported("a call of something else than a name")
        name = node.func.id
        self.module.called.add(name)
        if any(isinstance(argument, ast.Starred) for argument in node.args):
            raise Unsupported("*arguments")
        arguments = [self.value(argument) for argument in node.args]
        if name in self.module.parts:
            symbol, params = self.module.parts[name]
            kinds = ["*" + p[:-1] if p.endswith("*") else p for p in params]
            values = [self.cast(value, kind) for value, kind in zip(arguments, kinds, strict=True)]
            self.add(f"call void @{symbol}({', '.join(map(self.typed, values))})")
            return None
        if name in CALLS:
            return CALLS[name](self, arguments)
        return call_function(self, name, arguments)

    def _call(self, node: ast.Call) -> Value:
        made = self.call(node)
        if made is None:
            raise Unsupported(f"the result of {ast.unparse(node.func)}")
        return made
