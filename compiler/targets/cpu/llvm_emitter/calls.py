"""Calls in kernel sources. What is an instruction or two is written here; all else calls a function of the math
library, which LLVM inlines, or a block function (`microkernels.names`)."""

from __future__ import annotations

from collections.abc import Callable

from hloom.compiler.kernel_ir.types import PART, REGISTER, is_integer, is_pointer
from hloom.compiler.kernels.codegen.source import STREAM_MARK
from hloom.compiler.kernels.contractions.tile_shapes import ITEMSIZES
from hloom.compiler.targets.cpu.interface import library_symbol
from hloom.compiler.targets.cpu.llvm_emitter.checks import CHECKS
from hloom.compiler.targets.cpu.llvm_emitter.shared import shared_symbol
from hloom.compiler.targets.cpu.llvm_emitter.values import LLVM, Unsupported, Value
from hloom.compiler.targets.cpu.microkernels.names import argument_count, move_of, symbol_of

_FLOATS = {"f32": "float", "f64": "double"}
_INTEGERS = [f"{sign}{bits}" for sign in "su" for bits in (8, 16, 32, 64)]


def call_function(function, name: str, arguments: list[Value]) -> Value | None:
    """A call of a name that is no single instruction: a block of a contraction, or a function of the library."""
    if move := move_of(name):
        return _MOVES[move.kind](function, move.dtype, move.elements, [v.text for v in _words(function, arguments)])
    if (count := argument_count(name)) is not None:
        symbol = symbol_of(name)
        function.module.declare(symbol, f"declare void @{symbol}({', '.join(['i64'] * count)})")
        function.module.libraries[name] = None
        function.add(f"call void @{symbol}({', '.join(map(function.typed, _words(function, arguments, count)))})")
        return None
    signature = function.module.signature
    entry = signature(name)
    if entry is None and name.endswith("_c64") and signature(wide := f"{name[:-4]}_c128"):
        # `kernels.math.complex.single_precision`: complex128's, rounded.
        return function.cast(call_function(function, wide, [function.cast(v, "c128") for v in arguments]), "c64")
    if entry is None or len(entry[0]) != len(arguments):
        raise Unsupported(f"the function {name}")
    params = [REGISTER.get(param, param) for param in entry[0]]
    result = REGISTER.get(entry[1], entry[1])
    kind = LLVM[result]
    values = [function.cast(value, param) for value, param in zip(arguments, params, strict=True)]
    if name in function.module.shared:
        symbol = shared_symbol(name)
        values = [part for v in values for part in (function.parts(v) if v.kind in PART else [v])]
    else:
        symbol = library_symbol(name)
        function.module.libraries[name] = None
    function.module.declare(symbol, f"declare {kind} @{symbol}({', '.join(LLVM[v.kind] for v in values)})")
    return Value(result, function.result(f"call {kind} @{symbol}({', '.join(map(function.typed, values))})"))


def _words(function, arguments: list[Value], count: int | None = None) -> list[Value]:
    if (count is not None and len(arguments) != count) or not all(is_integer(value.kind) for value in arguments):
        raise Unsupported("words that are no integers")
    return [function.cast(value, "s64") for value in arguments]


def _casts(kind: str) -> Callable:
    return lambda function, arguments: _of_kind(function, arguments, kind, 1)[0]


def _bitcast(source: str, target: str) -> Callable:
    def cast(function, arguments):
        (value,) = _of_kind(function, arguments, source, 1)
        if LLVM[source] == LLVM[target]:
            return Value(target, value.text)
        return Value(target, function.result(f"bitcast {function.typed(value)} to {LLVM[target]}"))

    return cast


def _extremum(signed: str, ordered: str) -> Callable:
    """Python's min or max of two or more numbers of one kind, as `builtin` has them."""

    def call(function, arguments):
        if len(arguments) < 2:
            raise Unsupported("min, max of one")
        if all(is_integer(value.kind) for value in arguments):
            values = [function.cast(value, "s64") for value in arguments]
            compare = f"icmp {signed} i64"
        elif {value.kind for value in arguments} in ({"f32"}, {"f64"}):
            values = arguments
            compare = f"fcmp {ordered} {_FLOATS[values[0].kind]}"
        else:
            raise Unsupported("min, max of several types")
        best, *others = values
        for value in others:
            test = function.result(f"{compare} {value.text}, {best.text}")
            text = f"select i1 {test}, {function.typed(value)}, {function.typed(best)}"
            best = Value(best.kind, function.result(text))
        return best

    return call


def _of_kind(function, arguments: list[Value], kind: str, count: int) -> list[Value]:
    if len(arguments) != count:
        raise Unsupported("the number of arguments")
    return [function.cast(value, kind) for value in arguments]


def _instruction(kind: str, count: int, text: str) -> Callable:
    def call(function, arguments):
        values = _of_kind(function, arguments, kind, count)
        function.operations += kind in _FLOATS
        return Value(kind, function.result(text.format(*[value.text for value in values])))

    return call


def _llvm_function(kind: str, count: int, stem: str) -> Callable:
    def call(function, arguments):
        values = _of_kind(function, arguments, kind, count)
        symbol = f"{stem}.{kind}"
        ir = LLVM[kind]
        function.module.declare(symbol, f"declare {ir} @{symbol}({', '.join([ir] * count)})")
        return Value(kind, function.result(f"call {ir} @{symbol}({', '.join(map(function.typed, values))})"))

    return call


def _select(function, arguments):
    test, yes, no = arguments
    no = function.cast(no, yes.kind)
    return function.choice(function.truth(test), yes, no)


def _complex(kind: str) -> Callable:
    def call(function, arguments):
        return function.complex(*_of_kind(function, arguments, kind, 2))

    return call


def _product(kind: str) -> Callable:
    """As `kernels.math.complex.arithmetic` has it: each part is rounded twice."""
    fma = _llvm_function(PART[kind], 3, "llvm.fma")

    def call(function, arguments):
        (a, b), (c, d) = map(function.parts, _of_kind(function, arguments, kind, 2))
        less = function.negative(function.arithmetic("*", b, d))
        return function.complex(fma(function, [a, c, less]), fma(function, [b, c, function.arithmetic("*", a, d)]))

    return call


def _address(function, arguments):
    (pointer,) = arguments
    if not is_pointer(pointer.kind):
        raise Unsupported("the address of a number")
    return Value("s64", function.result(f"ptrtoint ptr {pointer.text} to i64"))


def _quotient(function, arguments):
    left, right = _words(function, arguments, 2)
    return Value("s64", function.result(f"udiv i64 {left.text}, {right.text}"))


def _prefetch(function, arguments):
    (word,) = _words(function, arguments, 1)
    function.module.declare("llvm.prefetch.p0", "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    place = _pointer(function, word.text)
    function.add(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 3, i32 1)")  # to read, into all caches, data


def _call_kernel(function, arguments):
    function.calls_kernels = True
    kernel, lo, hi, *words = _words(function, arguments)
    block = function.alloca("i64", str(max(1, len(words))))
    for k, word in enumerate(words):
        place = function.result(f"getelementptr i64, ptr {block}, i64 {k}")
        function.add(f"store i64 {word.text}, ptr {place}")
    target = function.result(f"inttoptr i64 {kernel.text} to ptr")
    function.add(f"call void {target}(ptr {block}, i64 {lo.text}, i64 {hi.text})")


def _scratch(dtype: str) -> Callable:
    def call(function, arguments):
        (count,) = arguments
        if not count.text.isdigit():
            raise Unsupported("a stack array of a computed size")
        return function.scratch_array(dtype, int(count.text))

    return call


def _load(dtype: str) -> Callable:
    def call(function, arguments):
        pointer, index = arguments
        if not is_pointer(pointer.kind):
            raise Unsupported("a load from a number")
        place, _ = function.place(Value(f"*{dtype}", pointer.text), index)
        if dtype == "pred":
            return Value("pred", function.result(f"icmp ne i8 {function.result(f'load i8, ptr {place}')}, 0"))
        bits = function.result(f"load i16, ptr {place}")
        if dtype == "f16":
            half = function.result(f"bitcast i16 {bits} to half")
            return Value("f32", function.result(f"fpext half {half} to float"))
        word = function.result(f"shl i32 {function.result(f'zext i16 {bits} to i32')}, 16")
        return Value("f32", function.result(f"bitcast i32 {word} to float"))

    return call


def _store(dtype: str, streamed: bool = False) -> Callable:
    def call(function, arguments):
        pointer, index, value = arguments
        if not is_pointer(pointer.kind):
            raise Unsupported("a store to a number")
        if dtype in ("f16", "bf16"):
            converted = call_function(function, f"bitcast_{dtype}_u16", [function.cast(value, "f32")])
            assert converted is not None  # only blocks of contractions have no value
            bits = converted
        elif dtype == "pred":
            bits = Value("u8", function.result(f"zext i1 {function.truth(value)} to i8"))
        else:
            bits = function.cast(value, dtype)
        place, _ = function.place(Value(f"*{bits.kind}", pointer.text), index)
        mark = f", {STREAM_MARK} {_streamed(function.module)}" if streamed else ""
        function.add(f"store {function.typed(bits)}, ptr {place}{mark}")

    return call


def _streamed(module) -> str:
    if not module.metadata:
        module.metadata.append('!0 = !{!"hloom", !"streamed"}')
    return "!0"


def _pointer(function, word: str) -> str:
    return function.result(f"inttoptr i64 {word} to ptr")


def _move(function, dtype: str, lanes: int, source: str, target: str, offset: str) -> None:
    """One vector from source to target, both at that byte offset. Elements are aligned, vectors need not be."""
    vector = f"<{lanes} x {LLVM[dtype]}>"
    here, there = (function.result(f"getelementptr i8, ptr {base}, i64 {offset}") for base in (source, target))
    value = function.result(f"load {vector}, ptr {here}, align {ITEMSIZES[dtype]}")
    function.add(f"store {vector} {value}, ptr {there}, align {ITEMSIZES[dtype]}")


def _copy(function, dtype: str, count: int, arguments: list[str]) -> None:
    source, target = (_pointer(function, word) for word in arguments)
    done = 0
    while done < count:
        lanes = min(1 << ((count - done).bit_length() - 1), 64)
        _move(function, dtype, lanes, source, target, str(done * ITEMSIZES[dtype]))
        done += lanes


def _copy_first(function, dtype: str, columns: int, arguments: list[str]) -> None:
    source, target, count = arguments
    source, target = _pointer(function, source), _pointer(function, target)
    lanes = 1 << (columns.bit_length() - 1)
    while lanes:
        bit = function.result(f"and i64 {count}, {lanes}")
        then, end = function.label("some"), function.label("rest")
        function.add(f"br i1 {function.result(f'icmp ne i64 {bit}, 0')}, label %{then}, label %{end}")
        function.block(then)
        # The elements before these are those of the larger powers of two.
        first = function.result(f"and i64 {count}, {-2 * lanes}")
        _move(function, dtype, lanes, source, target, function.result(f"mul i64 {first}, {ITEMSIZES[dtype]}"))
        function.next_block(end)
        lanes //= 2


def _zero(function, dtype: str, count: int, arguments: list[str]) -> None:
    (target,) = arguments
    lanes = count & -count
    for x in range(0, count, lanes):
        place = _pointer(function, function.result(f"add i64 {target}, {x * ITEMSIZES[dtype]}"))
        function.add(f"store <{lanes} x {LLVM[dtype]}> zeroinitializer, ptr {place}, align {ITEMSIZES[dtype]}")


_MOVES = {"copy": _copy, "copy_first": _copy_first, "zero": _zero}

# name -> how it is written, of (function, arguments)
CALLS: dict[str, Callable] = {
    "min": _extremum("slt", "olt"), "max": _extremum("sgt", "ogt"), "select": _select, "address": _address,
    "quotient": _quotient, "call_kernel": _call_kernel, "prefetch": _prefetch,
}  # fmt: skip
CALLS |= {kind: _casts(kind) for kind in (*_INTEGERS, *_FLOATS, *PART)}
CALLS |= {f"complex_{kind}": _complex(kind) for kind in _FLOATS} | {f"mul_{kind}": _product(kind) for kind in PART}
for _kind in (*_INTEGERS, *_FLOATS):
    for _other in (*_INTEGERS, *_FLOATS):
        if _kind != _other and _kind[1:] == _other[1:]:
            CALLS[f"bitcast_{_kind}_{_other}"] = _bitcast(_kind, _other)
for _kind, _ir in _FLOATS.items():
    CALLS[f"sum_{_kind}"] = _instruction(_kind, 2, f"fadd reassoc {_ir} {{}}, {{}}")
    CALLS[f"prod_{_kind}"] = _instruction(_kind, 2, f"fmul reassoc {_ir} {{}}, {{}}")
    for _name, _stem in (("max", "maximum"), ("min", "minimum")):
        CALLS[f"{_name}_{_kind}"] = CALLS[f"acc{_name}_{_kind}"] = _llvm_function(_kind, 2, f"llvm.{_stem}")
    for _name in ("sqrt", "floor", "ceil", "trunc", "round", "fabs"):
        _known = {"round": "round_afz", "fabs": "abs"}.get(_name, _name)
        CALLS[f"{_known}_{_kind}"] = _llvm_function(_kind, 1, f"llvm.{_name}")
    CALLS[f"copysign_{_kind}"] = _llvm_function(_kind, 2, "llvm.copysign")
    CALLS[f"fma_{_kind}"] = _llvm_function(_kind, 3, "llvm.fma")
for _kind in _INTEGERS:
    CALLS[f"sum_{_kind}"] = _instruction(_kind, 2, f"add {LLVM[_kind]} {{}}, {{}}")
    CALLS[f"prod_{_kind}"] = _instruction(_kind, 2, f"mul {LLVM[_kind]} {{}}, {{}}")
CALLS |= {f"scratch_{kind}": _scratch(kind) for kind in PART}
for _kind in ("pred", "f16", "bf16", *_INTEGERS, *_FLOATS):
    CALLS[f"scratch_{_kind}"] = _scratch(_kind)
    CALLS[f"stream_{_kind}"] = _store(_kind, streamed=True)
CALLS["accand_pred"] = CALLS["and_pred"] = _instruction("pred", 2, "and i1 {}, {}")
CALLS["accor_pred"] = CALLS["or_pred"] = _instruction("pred", 2, "or i1 {}, {}")
CALLS |= CHECKS
for _kind in ("pred", "f16", "bf16"):
    CALLS[f"load_{_kind}"], CALLS[f"store_{_kind}"] = _load(_kind), _store(_kind)


def hidden_step(function, value: Value) -> Value:
    """An argument that loops step by, as something that LLVM does not know to be one: no step is less."""
    function.module.declare("llvm.smax.i64", "declare i64 @llvm.smax.i64(i64, i64)")
    return Value("s64", function.result(f"call i64 @llvm.smax.i64(i64 {value.text}, i64 {-(1 << 63) + 1})"))
