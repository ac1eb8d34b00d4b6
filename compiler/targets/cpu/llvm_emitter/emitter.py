"""Kernels to LLVM IR in one walk over their nodes (`hloom.compiler.kernel_ir`), without Numba.

Kernels are written in a small language: loops over int64 ranges, pointers, numbers, calls of kernel intrinsics, with
Numba's meaning. Numba's front end compiles the math library, and every source that the language's reader or this walk
refuses (`Unsupported`: unusual mixtures of types). Tests hold the two equal on the kernels of the benchmark's programs.

A variable that does not vary is an LLVM value. The others live in stack slots, which LLVM's first pass turns into
values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from hloom.compiler.kernel_ir.bounds.checks import checked
from hloom.compiler.kernel_ir.functions import Signature
from hloom.compiler.kernel_ir.nodes import (
    Assign,
    Binary,
    Call,
    Cast,
    Choice,
    Const,
    Do,
    Expr,
    For,
    If,
    Jump,
    Kernel,
    Load,
    Logic,
    Scratch,
    Stmt,
    Store,
    Together,
    Unary,
    Var,
    While,
)
from hloom.compiler.kernel_ir.reader import KernelSyntaxError
from hloom.compiler.kernel_ir.types import PART, is_integer, is_pointer
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.targets.cpu.llvm_emitter import scratch
from hloom.compiler.targets.cpu.llvm_emitter.analysis import (
    EXPLICIT,
    Run,
    is_check,
    is_explicit,
    is_function,
    is_harmless,
    is_of_vectors,
    is_plain,
    is_subscript,
    run_of,
    scratch_variables,
    steps_of,
)
from hloom.compiler.targets.cpu.llvm_emitter.calls import CALLS, call_function, hidden_step
from hloom.compiler.targets.cpu.llvm_emitter.shared import INLINED, SHARED, often_called
from hloom.compiler.targets.cpu.llvm_emitter.values import LLVM, Unsupported, Value, Values, element
from hloom.compiler.targets.cpu.loop_hints import OPTION, interleave_count, is_interleaved
from hloom.compiler.targets.cpu.microkernels.memory import memory_of
from hloom.ir.types import DTYPES

_COMPARE = {
    "<": ("slt", "ult", "olt"), "<=": ("sle", "ule", "ole"), ">": ("sgt", "ugt", "ogt"), ">=": ("sge", "uge", "oge"),
    "==": ("eq", "eq", "oeq"), "!=": ("ne", "ne", "une"),
}  # fmt: skip
_COUNTS = {2: 8999, 4: 8998}  # vectors per iteration of a loop -> the metadata that says so
_LEAVES = {"break": 1, "continue": 0}  # the label of a loop that a jump goes to

Size = Callable[[str], int]


def kernel_text(
    kernel: KernelSource, triple: str, signature: Signature, size: Size | None = None
) -> tuple[str, list[str]]:
    """LLVM IR of a kernel with its C entry, and the names of the library and block functions that it calls.

    signature: HLO dtypes of the parameters and of the result of a function of the math library; None where there is
               none.
    size:      instructions of a function that may be shared (`shared`), 0 for others; None: all are inlined.

    Raises Unsupported for what Numba has to compile, SyntaxError.
    """
    if kernel.params[-2:] != ("s64", "s64"):
        raise Unsupported(f"{kernel.params} without lo and hi")
    module = Module(signature, scratch.size_type(triple))
    if size is not None:
        calls = Counter([name for nodes in module.nodes_of(kernel) for name in nodes.called()])
        module.share(often_called(calls, size))
        module.often = frozenset(name for name, count in calls.items() if count > INLINED)
    # Loops of many calls have enough to do at a time.
    module.interleaves = is_interleaved(module.nodes(kernel).called()) and not module.shared
    for name, part in kernel.parts:
        module.part(name, part)
    module.function(f"{kernel.name}.body", kernel, "noinline nounwind")
    module.entry(kernel)
    return module.text(triple), list(module.libraries)


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
        self.interleaves = False  # whether innermost loops are marked for it
        self.interleaved: list[str] = []
        self.explicit = True  # until a loop is found that LLVM's vectorizer may want
        self.shared: frozenset[str] = frozenset()
        self.often: frozenset[str] = frozenset()  # parts that are called too often to be inlined
        self._read: dict[KernelSource, Kernel] = {}

    def nodes(self, kernel: KernelSource) -> Kernel:
        """The nodes of a kernel. Raises Unsupported, SyntaxError."""
        found = self._read.get(kernel)
        if found is None:
            try:
                found = kernel.nodes
            except KernelSyntaxError as error:
                raise Unsupported(str(error)) from None
            if kernel.checks is not None:
                found = checked(found, kernel.checks, memory_of, frozenset([name for name, _ in kernel.parts]))
            self._read[kernel] = found
        return found

    def params(self, kernel: KernelSource) -> tuple[str, ...]:
        """The types of the parameters of a kernel, those of checks among them."""
        kinds = [var.type for var in self.nodes(kernel).params]
        return tuple([f"{kind[1:]}*" if is_pointer(kind) else kind for kind in kinds])

    def nodes_of(self, kernel: KernelSource) -> Iterator[Kernel]:
        """The nodes of a kernel and of all its parts, as often as they are parts."""
        yield self.nodes(kernel)
        for _, part in kernel.parts:
            yield from self.nodes_of(part)

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

    def interleaved_loop(self, operations: int) -> str:
        """The mark of an innermost loop with so many operations that LLVM's vectorizer interleaves."""
        if not self.interleaves:
            return ""
        number = 9000 + len(self.interleaved)
        self.interleaved.append(f"!{number} = distinct !{{!{number}, !{_COUNTS[interleave_count(operations)]}}}")
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
        self.parts = self.parts | {name: (symbol, self.params(kernel))}

    def function(self, symbol: str, kernel: KernelSource, attributes: str) -> None:
        made = _Function(self, self.nodes(kernel))
        self.explicit &= is_explicit(made.kernel, made.run_of)
        self.functions.append(made.define(symbol, attributes))

    def entry(self, kernel: KernelSource) -> None:
        """`void NAME(int64_t *args, int64_t lo, int64_t hi)`: see `lower._kernel_entry`."""
        lines, values = [], []
        for k, param in enumerate(self.params(kernel)[:-2]):
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
        counts = [f'!{number} = !{{!"{OPTION}", i32 {count}}}' for count, number in _COUNTS.items()]
        marks = ["", *self.interleaved, *counts] if self.interleaved else []
        return "\n\n".join(parts) + "\n" + "\n".join(marks)


class _Function(Values):
    """The walk over one function: statements here, numbers in `Values`, calls in `calls`."""

    def __init__(self, module: Module, kernel: Kernel):
        super().__init__()
        self.module, self.kernel = module, kernel
        self.scratch = scratch_variables(kernel)
        # Numbers that are chosen by branches: there are masked reads of 32 and 64 bits on every processor.
        stored = {var.type[1:] for var in kernel.params if is_pointer(var.type)}
        self.branching = ("f32", "f64") if stored <= {"f32", "f64", "s32", "u32", "s64", "u64"} else ()
        self.values: dict[Var, Value] = {}
        self.slots: dict[Var, Value] = {}  # variable -> its type, and the address
        self.turns: list[set[Var]] = [set()]  # what each block around has assigned
        self.allocas: list[str] = []
        self.arrays: list[scratch.Array] = []
        self.calls_kernels = False
        self.loops: list[tuple[str, str]] = []  # labels for `continue` and `break`
        self.ended = 0  # loops that LLVM's vectorizer may want, up to here

    def define(self, symbol: str, attributes: str) -> str:
        # With a point, which no label and no other value has: users' arguments are called "start" and "t1" too.
        arguments = [Value(var.type, f'%"{var.name}."') for var in self.kernel.params]
        steps = steps_of(self.kernel)
        for var, value in zip(self.kernel.params, arguments, strict=True):
            self.assign(var, hidden_step(self, value) if var in steps else value)
        self.suite(self.kernel.body)
        parameters = ", ".join(
            f"ptr noalias {v.text}" if is_pointer(v.kind) else f"{LLVM[v.kind]} {v.text}" for v in arguments
        )
        first, last, declarations = scratch.places(self.arrays, self.calls_kernels, self.module.size_type)
        for declared, text in declarations.items():
            self.module.declare(declared, text)
        self.go_to("leave")
        lines = [*self.allocas, *first, "  br label %start", "start:", *self.lines, "leave:", *last, "  ret void"]
        body = "\n".join(["entry:", *lines])
        return f"define internal void @{symbol}({parameters}) {attributes} {{\n{body}\n}}"

    def run_of(self, node: For) -> Run | None:
        return run_of(node, self.scratch, self.kernel.params)

    # --- statements

    def suite(self, statements: list[Stmt]) -> None:
        for statement in statements:
            self.statement(statement)

    def nested(self, statements: list[Stmt], *bound: Var) -> None:
        self.turns.append(set(bound))
        self.suite(statements)
        self.turns.pop()

    def statement(self, node: Stmt) -> None:
        match node:
            case Assign():
                self.assign(node.var, self.value(node.value))
            case Store():
                self._store(node)
            case For():
                self._for(node)
            case Do():
                self.call(node.function, node.arguments)
            case If():
                self._if(node)
            case While():
                self._while(node)
            case Together():
                for part, value in zip(node.parts, [self.value(part.value) for part in node.parts], strict=True):
                    if isinstance(part, Assign):
                        self.assign(part.var, value)
                    else:
                        self.store(part, value)
            case Scratch():
                dtype = node.var.type[1:]
                self.assign(node.var, self.scratch_array(dtype, node.size))
            case Jump():
                self.go_to("leave" if node.how == "return" else self.loops[-1][_LEAVES[node.how]])
                self.block(self.label("dead"))  # text after a jump is never reached, but has to stand in a block

    def assign(self, var: Var, value: Value) -> None:
        if not var.varies:
            self.turns[-1].add(var)
            self.values[var] = value
            return
        slot = self.slots.get(var)
        if slot is None:
            slot = self.slots[var] = Value(var.type, self.alloca(LLVM["*" if is_pointer(var.type) else var.type]))
        if value.kind != slot.kind and not is_pointer(slot.kind):
            value = self.cast(value, slot.kind)
        self.add(f"store {self.typed(value)}, ptr {slot.text}")

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

    def _store(self, node: Store) -> None:
        if is_function(node):
            name = f"{'stream' if node.streamed else 'store'}_{node.stored}"
            self.call(name, (node.pointer, node.index, node.value))
        elif node.augmented:
            assert isinstance(node.value, Binary)
            pointer, kind = self.place(self.value(node.pointer), self.value(node.index))
            old = Value(kind, self.result(f"load {LLVM[kind]}, ptr {pointer}"))
            made = self.cast(self.arithmetic(node.value.op, old, self.value(node.value.right)), kind)
            self.add(f"store {self.typed(made)}, ptr {pointer}")
        else:
            self.store(node, self.value(node.value))

    def store(self, node: Store, value: Value) -> None:
        pointer, kind = self.place(self.value(node.pointer), self.value(node.index))
        self.add(f"store {self.typed(self.cast(value, kind))}, ptr {pointer}")

    def _for(self, node: For) -> None:
        start, stop, step = (self.cast(self.value(bound), "s64").text for bound in (node.start, node.stop, node.step))
        if (run := self.run_of(node)) is not None:
            return self._run(run, start, stop)
        head, body, latch, end = (self.label(what) for what in ("head", "body", "latch", "end"))
        current, following = self.name(), self.name()
        ended, operations = self.ended, self.operations
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
        if node.var.varies:
            self.assign(node.var, value)
            self.nested(node.body)
        else:
            self.values[node.var] = value
            self.nested(node.body, node.var)
        self.loops.pop()
        self.next_block(latch)
        self.add(f"{following} = add nsw i64 {current}, {step}")
        mark = self.module.plain_loop() if is_plain(node) else self.mark(ended, operations, is_of_vectors(node))
        self.add(f"br label %{head}{mark}")
        self.block(end)

    def mark(self, ended: int, operations: int, of_vectors: bool = False) -> str:
        """The mark of a loop that ends here. ended, operations: how many there were where it began."""
        inner, self.ended = self.ended - ended, self.ended + 1
        return "" if inner or of_vectors else self.module.interleaved_loop(self.operations - operations)

    def _run(self, run: Run, start: str, stop: str) -> None:
        self.values[run.variable] = Value("s64", start)
        place, dtype = self.place(self.value(run.target.pointer), self.value(run.target.index))
        source = None
        if run.source is not None:
            source, _ = self.place(self.value(run.source.pointer), self.value(run.source.index))
        count = CALLS["max"](self, [Value("s64", self.result(f"sub i64 {stop}, {start}")), Value("s64", "0")])
        size = self.result(f"mul i64 {count.text}, {DTYPES[dtype].itemsize}")
        if source is None:
            self.module.declare("llvm.memset.p0.i64", "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
            self.add(f"call void @llvm.memset.p0.i64(ptr {place}, i8 0, i64 {size}, i1 false)")
        else:
            self.module.declare("llvm.memcpy.p0.p0.i64", "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
            self.add(f"call void @llvm.memcpy.p0.p0.i64(ptr {place}, ptr {source}, i64 {size}, i1 false)")

    def _while(self, node: While) -> None:
        head, body, end = (self.label(what) for what in ("head", "body", "end"))
        ended, operations = self.ended, self.operations
        self.next_block(head)
        if node.test == Const("pred", True):
            self.go_to(body)
        else:
            self.add(f"br i1 {self.truth(self.value(node.test))}, label %{body}, label %{end}")
        self.block(body)
        self.loops.append((head, end))
        self.nested(node.body)
        self.loops.pop()
        self.add(f"br label %{head}{self.mark(ended, operations)}")
        self.block(end)

    def _if(self, node: If) -> None:
        test = self.truth(self.value(node.test))
        then, end = self.label("then"), self.label("end")
        other = self.label("else") if node.other else end
        self.add(f"br i1 {test}, label %{then}, label %{other}{self._seldom(node)}")
        self.block(then)
        self.nested(node.then)
        self.go_to(end)
        if node.other:
            self.block(other)
            self.nested(node.other)
            self.go_to(end)
        self.block(end)

    def _seldom(self, node: If) -> str:
        """The mark of a branch that is hardly ever taken, that of an index out of range."""
        if is_check(node.test):
            self.module.declare("!7999", '!7999 = !{!"branch_weights", i32 1, i32 65535}')
        return ", !prof !7999" if is_check(node.test) else ""

    # --- expressions

    def value(self, node: Expr) -> Value:
        match node:
            case Var():
                return self._variable(node)
            case Const(type="f64"):
                return self.float_constant("f64", node.value)
            case Const():
                return Value(node.type, str(node.value).lower())
            case Binary():
                return self._binary(node)
            case Load():
                return self._load(node)
            case Call():
                return self._call(node.function, node.arguments)
            case Cast():
                return self._call(node.type, (node.operand,))
            case Unary():
                return self._unary(node)
            case Choice():
                return self._choice(node)
            case Logic():
                return self._logic(node)
        raise Unsupported(type(node).__name__)

    def _variable(self, node: Var) -> Value:
        if not node.varies:
            return self.values[node]
        kind = LLVM["*" if is_pointer(node.type) else node.type]
        slot = self.slots.get(node)
        if slot is None:
            raise Unsupported(f"{node.name} is read before it is assigned")
        return Value(slot.kind, self.result(f"load {kind}, ptr {slot.text}"))

    def _binary(self, node: Binary) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        if node.op not in _COMPARE:
            return self.arithmetic(node.op, left, right)
        # Integers of one type are compared as they are: LLVM does not find back from 64 bits to lanes of 32.
        if left.kind != right.kind or not is_integer(left.kind):
            left, right = self.together(left, right)
        return self.compared(node.op, left, right)

    def _unary(self, node: Unary) -> Value:
        value = self.value(node.operand)
        match node.op:
            case "-":
                return self.negative(value)
            case "~":
                ones = "true" if value.kind == "pred" else "-1"
                return Value(value.kind, self.result(f"xor {self.typed(value)}, {ones}"))
            case "not":
                return Value("pred", self.result(f"xor i1 {self.truth(value)}, true"))
        return self.parts(value)[node.op == ".imag"]

    def compared(self, operator: str, left: Value, right: Value) -> Value:
        signed, unsigned, ordered = _COMPARE[operator]
        if left.kind in PART:
            if operator not in ("==", "!="):
                raise Unsupported("an order of complex numbers")
            both = zip(self.parts(left), self.parts(right), strict=True)
            real, imaginary = (self.compared(operator, *parts).text for parts in both)
            return Value("pred", self.result(f"{'and' if operator == '==' else 'or'} i1 {real}, {imaginary}"))
        if left.kind in ("f32", "f64"):
            return Value("pred", self.result(f"fcmp {ordered} {self.typed(left)}, {right.text}"))
        how = signed if left.kind[0] == "s" else unsigned
        return Value("pred", self.result(f"icmp {how} {self.typed(left)}, {right.text}"))

    def _logic(self, node: Logic) -> Value:
        first, *others = node.operands
        value, name = self.value(first).text, node.op
        for other in others:
            if is_harmless(other):
                value = self.result(f"{name} i1 {value}, {self.value(other).text}")
                continue
            # What guards a read has to come first.
            more, end, here = self.label("more"), self.label("end"), self.label("here")
            self.next_block(here)
            self.add(f"br i1 {value}, label %{more if name == 'and' else end}, label %{end if name == 'and' else more}")
            self.block(more)
            second = self.value(other).text
            last = self.next_block(self.label("last"))
            self.next_block(end)
            known = "false" if name == "and" else "true"
            value = self.result(f"phi i1 [ {known}, %{here} ], [ {second}, %{last} ]")
        return Value("pred", value)

    def _choice(self, node: Choice) -> Value:
        test = self.truth(self.value(node.test))
        if is_harmless(node.yes) and is_harmless(node.no):
            yes, no = self.value(node.yes), self.value(node.no)
            if yes.kind != no.kind:
                yes, no = self.together(yes, no)
            if yes.kind in self.branching and all(map(self._is_of_this_turn, (node.test, node.yes))):
                return self._branches(test, yes, no)
            return self.choice(test, yes, no)
        then, other, end = self.label("then"), self.label("else"), self.label("end")
        self.add(f"br i1 {test}, label %{then}, label %{other}")
        made = []
        for label, part in ((then, node.yes), (other, node.no)):
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

    def _is_of_this_turn(self, node: Expr) -> bool:
        return not isinstance(node, Var) or node in self.turns[-1]

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

    def _load(self, node: Load) -> Value:
        if not is_subscript(node):
            return self._call(f"load_{node.pointer.type[1:]}", (node.pointer, node.index))
        pointer, kind = self.place(self.value(node.pointer), self.value(node.index))
        return Value(kind, self.result(f"load {LLVM[kind]}, ptr {pointer}"))

    def place(self, pointer: Value, index: Value) -> tuple[str, str]:
        """The address of an element, and the type of what is stored there."""
        if not is_pointer(pointer.kind) or not is_integer(index.kind):
            raise Unsupported("an index of something else than a pointer")
        kind = element(pointer.kind)
        offset = self.cast(index, "s64").text
        return self.result(f"getelementptr {LLVM[kind]}, ptr {pointer.text}, i64 {offset}"), kind

    def call(self, name: str, arguments: tuple[Expr, ...]) -> Value | None:
        values = [self.value(argument) for argument in arguments]
        if name in self.module.parts:
            symbol, params = self.module.parts[name]
            kinds = ["*" + p[:-1] if p.endswith("*") else p for p in params]
            values = [self.cast(value, kind) for value, kind in zip(values, kinds, strict=True)]
            self.add(f"call void @{symbol}({', '.join(map(self.typed, values))})")
            return None
        if name in CALLS:
            found: Value | None = CALLS[name](self, values)
            return found
        return call_function(self, name, values)

    def _call(self, name: str, arguments: tuple[Expr, ...]) -> Value:
        made = self.call(name, arguments)
        if made is None:
            raise Unsupported(f"the result of {name}")
        return made
