"""How the checks of `kernel_ir.bounds.checks` are compiled: a test, and a return from the kernel where it fails.

The state of a program's frame (`hloom.runtime.host_steps`) is a byte, which a failed check makes 0, and from `RECORD`
on int64 words: which access it was, its index, the size of its array and the number of the launch. The first that
fails has them.
"""

from __future__ import annotations

from hloom.compiler.kernel_ir.bounds.checks import ARRAYS
from hloom.compiler.targets.cpu.llvm_emitter.values import Value

__all__ = ["CHECKS", "RECORD", "TABLES"]

RECORD = 8  # bytes of the state before what is said of the access

# A module that checked kernels are linked with.
TABLES = f"""\
define linkonce_odr void @hloom_outside(i64 %table, i64 %access, i64 %index, i64 %size) noinline cold nounwind {{
entry:
  %words = inttoptr i64 %table to ptr
  %at = getelementptr i64, ptr %words, i64 1
  %state = load ptr, ptr %at
  %first = getelementptr i8, ptr %state, i64 {RECORD}
  %taken = cmpxchg ptr %first, i64 0, i64 %access seq_cst seq_cst
  %mine = extractvalue {{ i64, i1 }} %taken, 1
  br i1 %mine, label %note, label %done
note:
  %second = getelementptr i64, ptr %first, i64 1
  store i64 %index, ptr %second
  %third = getelementptr i64, ptr %first, i64 2
  store i64 %size, ptr %third
  %of = getelementptr i64, ptr %words, i64 2
  %launch = load i64, ptr %of
  %fourth = getelementptr i64, ptr %first, i64 3
  store i64 %launch, ptr %fourth
  br label %done
done:
  store atomic i8 0, ptr %state seq_cst, align 1
  ret void
}}

define linkonce_odr i1 @hloom_within(i64 %given, i64 %start, i64 %bytes, i64 %access) noinline nounwind {{
entry:
  %empty = icmp sle i64 %bytes, 0
  br i1 %empty, label %inside, label %tables
tables:
  %table = phi i64 [ %given, %entry ], [ %parent, %after ]
  %best.t = phi i64 [ 0, %entry ], [ %best, %after ]
  %nbytes.t = phi i64 [ 0, %entry ], [ %nbytes, %after ]
  %words = inttoptr i64 %table to ptr
  %parent = load i64, ptr %words
  %count.at = getelementptr i64, ptr %words, i64 3
  %count = load i64, ptr %count.at
  br label %arrays
arrays:
  %k = phi i64 [ 0, %tables ], [ %next, %other ]
  %best = phi i64 [ %best.t, %tables ], [ %best.n, %other ]
  %nbytes = phi i64 [ %nbytes.t, %tables ], [ %nbytes.n, %other ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %array, label %after
array:
  %twice = shl i64 %k, 1
  %place = add i64 %twice, {ARRAYS}
  %base.at = getelementptr i64, ptr %words, i64 %place
  %base = load i64, ptr %base.at
  %size.at = getelementptr i64, ptr %base.at, i64 1
  %size = load i64, ptr %size.at
  %offset = sub i64 %start, %base
  %room = sub i64 %size, %bytes
  %not.before = icmp sge i64 %offset, 0
  %not.behind = icmp sle i64 %offset, %room
  %is.in = and i1 %not.before, %not.behind
  br i1 %is.in, label %inside, label %other
other:
  %later = icmp uge i64 %base, %best
  %nearer = and i1 %not.before, %later
  %best.n = select i1 %nearer, i64 %base, i64 %best
  %nbytes.n = select i1 %nearer, i64 %size, i64 %nbytes
  %next = add i64 %k, 1
  br label %arrays
after:
  %none = icmp eq i64 %parent, 0
  br i1 %none, label %outside, label %tables
outside:
  %distance = sub i64 %start, %best
  %last = add i64 %distance, %bytes
  %index = sub i64 %last, 1
  call void @hloom_outside(i64 %given, i64 %access, i64 %index, i64 %nbytes)
  ret i1 false
inside:
  ret i1 true
}}

define linkonce_odr i1 @hloom_within_runs(i64 %table, i64 %start, i64 %bytes, i64 %runs, i64 %distances, i64 %access) \
noinline nounwind {{
entry:
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %next, %well ]
  %at = phi i64 [ %start, %entry ], [ %later, %well ]
  %found = call i1 @hloom_within(i64 %table, i64 %at, i64 %bytes, i64 %access)
  br i1 %found, label %some, label %out
some:
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, %runs
  br i1 %more, label %well, label %in
well:
  %byte = shl i64 %k, 3
  %word = add i64 %distances, %byte
  %pointer = inttoptr i64 %word to ptr
  %distance = load i64, ptr %pointer
  %later = add i64 %start, %distance
  br label %head
out:
  ret i1 false
in:
  ret i1 true
}}
"""


def _call(function, name: str, result: str, arguments: list[str]) -> str:
    function.module.declare(name, f"declare {result} @{name}({', '.join(['i64'] * len(arguments))})")
    return f"call {result} @{name}({', '.join([f'i64 {argument}' for argument in arguments])})"


def _words(function, values: list[Value]) -> list[str]:
    return [function.cast(value, "s64").text for value in values]


def _within(function, values: list[Value]) -> Value:
    index, size, table, access = _words(function, values)
    inside, outside = function.label("inside"), function.label("outside")
    test = function.result(f"icmp ult i64 {index}, {size}")
    function.add(f"br i1 {test}, label %{inside}, label %{outside}")
    function.block(outside)
    function.add(_call(function, "hloom_outside", "void", [table, access, index, size]))
    function.go_to("leave")
    function.block(inside)
    return Value("s64", index)


def _within_memory(function, values: list[Value]) -> Value:
    index, word, nbytes, table, access = _words(function, values)
    _looked_up(function, [table, word, nbytes, access])
    return Value("s64", index)


def _within_block(function, values: list[Value]) -> None:
    word, nbytes, table, access = _words(function, values)
    _looked_up(function, [table, word, nbytes, access])


def _within_runs(function, values: list[Value]) -> None:
    word, nbytes, runs, distances, table, access = _words(function, values)
    arguments = [table, word, nbytes, runs, distances, access]
    _unless(function, function.result(_call(function, "hloom_within_runs", "i1", arguments)))


def _looked_up(function, arguments: list[str]) -> None:
    _unless(function, function.result(_call(function, "hloom_within", "i1", arguments)))


def _unless(function, test: str) -> None:
    inside = function.label("inside")
    function.add(f"br i1 {test}, label %{inside}, label %leave")
    function.block(inside)


def _word(function, values: list[Value]) -> Value:
    table, number = _words(function, values)
    pointer = function.result(f"inttoptr i64 {table} to ptr")
    place = function.result(f"getelementptr i64, ptr {pointer}, i64 {number}")
    return Value("s64", function.result(f"load i64, ptr {place}"))


def _leave_if_outside(function, values: list[Value]) -> None:
    state = _word(function, [*values, Value("s64", "1")])
    pointer = function.result(f"inttoptr i64 {state.text} to ptr")
    byte = function.result(f"load atomic i8, ptr {pointer} monotonic, align 1")
    _unless(function, function.result(f"icmp ne i8 {byte}, 0"))


CHECKS = {
    "within": _within, "within_memory": _within_memory, "within_block": _within_block, "within_runs": _within_runs,
    "word": _word, "leave_if_outside": _leave_if_outside,
}  # fmt: skip
