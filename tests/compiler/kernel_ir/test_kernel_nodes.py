"""Kernel text to typed nodes and back."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloom.compiler.kernel_ir import builder, scopes
from hloom.compiler.kernel_ir.builder import ONE, ZERO, constant, load
from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.names import Names
from hloom.compiler.kernel_ir.nodes import (
    Assign,
    Binary,
    Call,
    Cast,
    Choice,
    Const,
    For,
    If,
    Kernel,
    Load,
    Logic,
    Scratch,
    Store,
    Together,
    Unary,
    Var,
)
from hloom.compiler.kernel_ir.printer import printed
from hloom.compiler.kernel_ir.reader import KernelSyntaxError, expression, read
from hloom.compiler.kernel_ir.types import FLOATS, INTEGERS, TypeMismatch, arithmetic, joined
from hloom.compiler.kernels.codegen.description import Block
from hloom.compiler.targets.cpu import library

PARAMS = ("f32*", "s32*", "pred*", "f16*", "c64*", "s64", "s64")
HEAD = "def k(x, a, p, h, z, lo, hi):\n"


def kernel(*lines: str, params: tuple[str, ...] = PARAMS, parts=()):
    return read(HEAD + "".join(f"    {line}\n" for line in lines), params, library.signature, parts)


def statement(*lines: str):
    """The last statement of a kernel."""
    return kernel(*lines).body[-1]


def test_every_statement():
    text = HEAD + "\n".join(
        f"    {line}"
        for line in [
            "s = scratch_f32(64)", "u, v = x[lo], f32(0.5)", "w = v if u < v else -u", "n = 0", "n += 1",
            "for i in range(lo, hi, 2):", "    x[i] = u * w", "    x[i] += u", "    store_pred(p, i, u < w and n > 0)",
            "    stream_f32(x, i, f32(inf))", "    store_f16(h, i, load_f16(h, i))", "    if load_pred(p, i):",
            "        break", "    elif not n == 3:", "        continue", "    else:", "        n = -n",
            "while n < hi:", "    n = (n + 1) * 2 - (3 - n)", "    prefetch(address(x) + n * 4)",
            "z[0] = complex_f32(z[1].real, -z[1].imag)", "return",
        ]
    )  # fmt: skip
    nodes = read(text, PARAMS, library.signature)
    assert printed(nodes).strip() == text.strip()


def test_types_are_those_of_the_language():
    found = {
        "x[lo] + x[hi]": "f32", "x[lo] * 0.5": "f64", "a[lo] + a[hi]": "s64", "-a[lo]": "s32", "~a[lo]": "s32",
        "a[lo] < hi": "pred", "not a[lo]": "pred", "lo / hi": "f64", "load_pred(p, lo) & load_pred(p, hi)": "pred",
        "load_f16(h, lo)": "f32", "h[lo]": "u16", "z[lo].imag": "f32", "z[lo] + z[hi]": "c64", "exp_f32(x[lo])": "f32",
        "exp_c64(z[lo])": "c64", "min(a[lo], hi)": "s64", "-9223372036854775808": "s64", "18446744073709551615": "u64",
        "u8(lo)": "u8", "bitcast_f32_u32(x[lo])": "u32", "x[lo] if lo < hi else x[hi]": "f32", "address(x)": "s64",
        "select(lo < hi, x[lo], x[hi])": "f32",
    }  # fmt: skip
    for text, kind in found.items():
        made = statement(f"v = {text}")
        assert isinstance(made, Assign) and (made.var.type, str(made.value)) == (kind, text)


def test_a_name_is_one_variable_of_each_block_that_assigns_it():
    first, second = kernel(
        "for i in range(lo):", "    v = x[i]", "    x[i] = v", "for i in range(hi):", "    v = i", "    a[v] = v"
    ).body
    assert isinstance(first, For) and isinstance(second, For)
    (one, _), (other, _) = first.body, second.body
    assert one.var is not other.var and (one.var.type, other.var.type) == ("f32", "s64")
    assert first.var is not second.var and not one.var.varies


def test_a_name_that_is_assigned_again_varies():
    n, loop = kernel("n = s32(0)", "for i in range(hi):", "    n = n + i").body
    assert isinstance(n, Assign) and isinstance(loop, For)
    assert n.var.varies and n.var.type == "s64"  # s32 and s64
    assert loop.body[0].var is n.var


def test_what_is_stored_says_how():
    plain, streamed = statement("x[lo] = 0.5"), statement("stream_f32(x, lo, f32(0.5))")
    narrow, bits = statement("store_f16(h, lo, f32(0.5))"), statement("h[lo] = u16(1)")
    found = [(s.stored, s.streamed) for s in (plain, streamed, narrow, bits) if isinstance(s, Store)]
    assert found == [("f32", False), ("f32", True), ("f16", False), ("u16", False)]


def test_values_that_are_assigned_together():
    made = statement("u, v = 1, 2", "u, v = v, u")
    assert isinstance(made, Together)
    (one, other) = made.parts
    assert one.value is other.var and other.value is one.var


@pytest.mark.parametrize(
    "lines, found, line",
    [
        (["v = w"], "the name w", 2),
        (["v = lo", "v = f32(0.5)"], "v holds s64 and f32", 3),
        (["for i in x:", "    pass"], "a loop over something else than a range", 2),
        (["v = strange_f32(lo)"], "the function strange_f32", 2),
        (["v = lo", "w = lo < hi < v"], "a chain of comparisons", 3),
        (["v = x + 1"], "arithmetic with pointers", 2),
        (["v = u64(lo) + hi"], "u64 with signed integers", 2),
        (["v = load_pred(p, lo) + x[lo]"], "truth values with floats", 2),
        (["v = x[lo] % x[hi]"], "% of floats", 2),
        (["if x[lo]:", "    return"], "the truth of f32", 2),
        (["v = lo and hi"], "and, or of numbers", 2),
        (["v = 0", "return v"], "a result", 3),
        (["x[x[lo]] = 1"], "an index of f32 of *f32", 2),
        (["s = scratch_f32(lo)"], "scratch memory of a computed size", 2),
        (["v = lambda: 0"], "an expression Lambda", 2),
        (["import os"], "a statement Import", 2),
        (["v = x.shape"], ".shape of *f32", 2),
        (["v = -load_pred(p, lo)"], "- of pred", 2),
        (["while lo < hi:", "    pass", "else:", "    pass"], "while ... else", 2),
        (["u, v = lo"], "a tuple", 2),
        (["v = 1 << 70 if lo else 99999999999999999999"], "the constant", 2),
        (["v = prefetch(lo)"], "the result of prefetch", 2),
    ],
)
def test_what_is_not_of_the_language(lines, found, line):
    with pytest.raises(KernelSyntaxError) as error:
        kernel(*lines)
    assert found in error.value.found and error.value.line == line


def test_parameters_without_types():
    with pytest.raises(KernelSyntaxError, match="7 parameters of 1 types"):
        kernel("pass", params=("f32*",))
    with pytest.raises(KernelSyntaxError, match="2 functions"):
        read("def f():\n    pass\ndef g():\n    pass\n", (), library.signature)


# --- random expressions ---

VARIABLES = [Var("s64", "lo"), Var("s64", "hi")]
POINTERS = [Var("*f32", "x"), Var("*s32", "a"), Var("*pred", "p"), Var("*f16", "h")]


def of_types(left, right, op):
    try:
        return Binary(arithmetic(op, left.type, right.type), op, left, right)
    except TypeMismatch:
        return Unary("pred", "not", Binary("pred", "<", VARIABLES[0], VARIABLES[1]))


def compared(left, right, op):
    try:
        joined(left.type, right.type)
    except TypeMismatch:
        return Binary("pred", op, VARIABLES[0], VARIABLES[1])
    return Binary("pred", op, left, right)


def loaded(pointer, index):
    kind = pointer.type[1:]
    return Load({"pred": "pred", "f16": "f32"}.get(kind, kind), pointer, index if index.type == "s64" else VARIABLES[0])


def chosen(test, yes, no):
    test = test if test.type == "pred" else Binary("pred", "<", *VARIABLES)
    return Choice(yes.type, test, yes, yes if no.type != yes.type else no)


def both(op, one, other):
    return Logic(op, tuple([e if e.type == "pred" else Binary("pred", "==", *VARIABLES) for e in (one, other)]))


def signed(op, e):
    if e.type in ("pred", *FLOATS) or isinstance(e, Const):
        return e
    return Unary(e.type, op, e)


numbers = st.one_of(
    st.integers(0, (1 << 63) - 1).map(lambda n: Const("s64", n)),
    st.floats(0, allow_nan=False).filter(lambda n: math.copysign(1, n) > 0).map(lambda n: Const("f64", n)),
    st.booleans().map(lambda b: Const("pred", b)),
    st.sampled_from(VARIABLES),
)
expressions = st.recursive(
    numbers,
    lambda inner: st.one_of(
        st.builds(of_types, inner, inner, st.sampled_from(["+", "-", "*", "/", "//", "%", "&", "|", "^", "<<", ">>"])),
        st.builds(compared, inner, inner, st.sampled_from(["<", "<=", ">", ">=", "==", "!="])),
        st.builds(loaded, st.sampled_from(POINTERS), inner),
        st.builds(chosen, inner, inner, inner),
        st.builds(both, st.sampled_from(["and", "or"]), inner, inner),
        st.builds(signed, st.sampled_from("-~"), inner),
        st.builds(Cast, st.sampled_from([*INTEGERS, *FLOATS]), inner),
        inner.map(lambda e: Call("f64", "sqrt_f64", (Cast("f64", e),))),
    ),
    max_leaves=12,
)


@given(expressions)
def test_an_expression_is_read_as_it_was_written(expression):
    named = {var.name: var for var in (*VARIABLES, *POINTERS)}

    def with_names(e):
        return named[e.name] if isinstance(e, Var) else e.mapped(with_names)

    made = statement(f"v = {str(expression)}")
    assert isinstance(made, Assign)
    assert with_names(made.value) == expression


@pytest.mark.parametrize(
    "text, build",
    [
        ("u * 4 + v", lambda u, v, x: u * 4 + v),
        ("2 - u - (1 - v) * 3", lambda u, v, x: 2 - u - (1 - v) * 3),
        ("u // v % 8", lambda u, v, x: u // v % 8),
        ("((u & 7) ^ (v | 1)) << 2 >> v", lambda u, v, x: ((u & 7) ^ (v | 1)) << 2 >> v),
        ("-u < v", lambda u, v, x: -u < v),
        ("x + u", lambda u, v, x: x + u),
        ("x <= x * x", lambda u, v, x: x <= x * x),
        ("u >= 3", lambda u, v, x: u >= 3),
        ("3 * u > v", lambda u, v, x: 3 * u > v),
    ],
)
def test_arithmetic_of_nodes_is_what_its_text_says(text, build):
    names = Names(by_name)
    u, v, x = names.declare("u", "s64"), names.declare("v", "s64"), names.declare("x", "f32")
    assert build(u, v, x) == expression(text, names)


def test_arithmetic_of_nodes_has_types():
    x, key, z = Var("f32", "x"), Var("u64", "key"), Var("c64", "z")
    for build in (lambda: x & 1, lambda: key // 2, lambda: z * z, lambda: -Var("pred", "p"), lambda: key < 1):
        with pytest.raises(TypeMismatch):
            build()


def test_shared_memory_of_a_gpu():
    kernel = Kernel("k", (), [Scratch(Var("*f32", "box"), 8, shared=True), Scratch(Var("*f32", "own"), 4)])
    assert printed(kernel) == "def k():\n    box = cuda.shared.array(8, f32)\n    own = scratch_f32(4)\n"


def test_branches_are_written_as_elif():
    made = statement("if lo < 1:", "    return", "elif lo < 2:", "    x[0] = 0", "else:", "    x[0] = 1")
    assert isinstance(made, If)
    (other,) = made.other
    assert isinstance(other, If) and len(other.other) == 1


def test_statements_of_a_block():
    root = Block()
    table, lo, hi = (root.names.declare(name, kind) for name, kind in (("x", "*f32"), ("lo", "s64"), ("hi", "s64")))
    near = root.scratch("near", "f32", 4)
    count = root.let("count", ZERO)
    i, inside = root.loop("i", lo, hi, constant(2))
    inside.store(near, ZERO, load(table, i), streamed=True)
    few, many = inside.branches(builder.compared("<", count, constant(3)))
    few.increase(count, ONE)
    many.repeat(builder.compared(">", count, i)).let("count", i)
    inside.branch(builder.compared("==", i, hi)).store(table, i, load(near, ZERO))
    text = """\
def k(x, lo, hi):
    near = scratch_f32(4)
    count = 0
    for i in range(lo, hi, 2):
        stream_f32(near, 0, x[i])
        if count < 3:
            count += 1
        else:
            while count > i:
                count = i
        if i == hi:
            x[i] = near[0]
"""
    assert printed(Kernel("k", (table, lo, hi), root.statements())) == text


def test_names_are_those_of_a_walk():
    for tree in (ast.parse(Path(scopes.__file__).read_text()), ast.parse("x", mode="eval").body, ast.parse("")):
        walked = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        found = scopes.names_in(tree)
        assert len(found) == len(walked) and {*found} == {*walked}
