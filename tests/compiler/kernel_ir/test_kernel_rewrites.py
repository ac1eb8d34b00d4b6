"""Nodes from the builder, rewritten, and checked by the verifier."""

from __future__ import annotations

import pytest

from hloom.compiler.kernel_ir import builder
from hloom.compiler.kernel_ir.builder import ONE, ZERO, cast, compared, constant
from hloom.compiler.kernel_ir.functions import UnknownFunction, by_name, returned
from hloom.compiler.kernel_ir.names import Names
from hloom.compiler.kernel_ir.nodes import (
    Assign,
    Call,
    Const,
    For,
    If,
    Jump,
    Kernel,
    Load,
    Scratch,
    Store,
    Together,
    Unary,
    Var,
    While,
)
from hloom.compiler.kernel_ir.printer import printed
from hloom.compiler.kernel_ir.reader import KernelSyntaxError, expression, read, statements
from hloom.compiler.kernel_ir.rewrite import (
    assigned,
    copied,
    mapped,
    replaced,
    substituted,
    variables_of,
    with_distinct_variables,
    with_own_variables,
)
from hloom.compiler.kernel_ir.rewrite import read as variables_read
from hloom.compiler.kernel_ir.scopes import settle
from hloom.compiler.kernel_ir.types import REGISTER, TypeMismatch
from hloom.compiler.kernel_ir.verify import InvalidKernel, verify
from hloom.compiler.kernels.math import FUNCTIONS
from hloom.compiler.targets.cpu import library

X, A, P, H, Z = (
    Var(f"*{kind}", name) for kind, name in zip(("f32", "s32", "pred", "f16", "c64"), "xaphz", strict=True)
)
LO, HI = Var("s64", "lo"), Var("s64", "hi")
PARAMS = ("f32*", "s32*", "pred*", "f16*", "c64*", "s64", "s64")


def kernel(*body, params=(X, A, P, H, Z, LO, HI)) -> Kernel:
    return Kernel("k", params, list(body))


def text(*lines: str) -> Kernel:
    body = "".join(f"    {line}\n" for line in lines)
    return read(f"def k(x, a, p, h, z, lo, hi):\n{body}", PARAMS, library.signature)


def lines(statements) -> list[str]:
    return [line.removeprefix("    ") for line in printed(kernel(*statements)).splitlines()[1:]]


# --- the builder ---


def test_types_that_the_builder_makes():
    x, i = builder.load(X, LO), builder.load(A, LO)
    made = {
        "f32": builder.operation("+", x, x), "f64": builder.operation("*", x, constant(0.5)),
        "s64": builder.operation("+", i, i), "s32": builder.unary("-", i), "pred": builder.operation("<", i, HI),
        "c64": builder.load(Z, LO), "u16": builder.element(H, LO), "u8": builder.element(P, LO),
        "u64": constant(1 << 63),
    }  # fmt: skip
    assert {kind: e.type for kind, e in made.items()} == {kind: kind for kind in made}
    assert builder.load(H, LO).type == "f32" and builder.load(P, LO).type == "pred"
    assert builder.unary("-", constant(1 << 63)) == constant(-(1 << 63))
    assert builder.call("exp_f32", (x,), library.signature).type == "f32"
    assert str(builder.call("f64", (x,), library.signature)) == "f64(x[lo])"
    assert lines([builder.store(H, LO, x), builder.store(X, LO, x, True)]) == [
        "store_f16(h, lo, x[lo])",
        "stream_f32(x, lo, x[lo])",
    ]


@pytest.mark.parametrize(
    "build, found",
    [
        (lambda: builder.operation("+", X, LO), "arithmetic with pointers"),
        (lambda: builder.load(X, builder.load(X, LO)), "an index of f32 of *f32"),
        (lambda: builder.load(LO, LO), "an index of s64 of s64"),
        (lambda: builder.both("and", (LO, HI)), "and, or of numbers"),
        (lambda: builder.truth(builder.load(X, LO)), "the truth of f32"),
        (lambda: builder.part(LO, "real"), ".real of s64"),
        (lambda: builder.cast("f32", X), "f32 of a pointer"),
        (lambda: builder.assign(Var("f32", "v"), LO), "v holds f32 and s64"),
        (lambda: builder.assign(Var("s32", "v"), LO), "v holds s32 and s64"),
        (lambda: constant(1 << 64), "the constant"),
        (lambda: builder.chosen(LO, builder.load(Z, LO), LO), "complex with other numbers"),
    ],
)
def test_what_the_builder_refuses(build, found):
    with pytest.raises(TypeMismatch) as error:
        build()
    assert found in str(error.value)


def test_functions_that_are_none():
    for name in ("strange_f32", "prefetch"):
        with pytest.raises(UnknownFunction, match=name):
            builder.call(name, (LO,), library.signature)


def test_names_of_functions_say_what_they_return():
    """Those that ops and nests call; inner functions of the library may have other names."""
    stems = {"pack", "threefry_rounds", "threefry2x32_packed", "pair", "hull", "quarter", "log", "exp", "expm1"}
    for name, function in FUNCTIONS.items():
        stem, _, _ = name.rpartition("_")
        inner = stem in stems or stem.endswith(("_parts", "_root", "_rest", "_sum", "_times", "_quotient"))
        if (
            function.result in ("", "*")
            or function.result.endswith("*")
            or (inner and function.result in ("c128", "u64"))
        ):
            continue
        found = returned(name, function.parameters, by_name)
        assert found == REGISTER.get(function.result, function.result), name


# --- text among nodes ---


def test_text_is_read_with_the_names_around_it():
    names = Names(library.signature)
    x, lo = names.declare("x", "*f32"), names.declare("lo", "s64")
    first, second = statements("v = x[lo] * f32(2.0)\nx[lo] = v", names)
    assert isinstance(first, Assign) and isinstance(second, Store)
    assert second.value is first.var is names["v"] and second.pointer is x and second.index is lo
    assert expression("v + x[lo]", names).type == "f32"
    (loop,) = statements("for i in range(lo):\n    v = x[i]", names)
    assert isinstance(loop, For) and loop.body[0].var is names["v"] and loop.var is names["i"]


def test_names_that_hold_two_types():
    names = Names(library.signature)
    names.declare("n", "s64")
    assert names.declare("n", "s32") is names["n"]
    with pytest.raises(TypeMismatch, match="n holds s64 and f32"):
        names.declare("n", "f32")
    with pytest.raises(KernelSyntaxError, match="n holds s64 and f64"):
        statements("n = 0.5", names)
    with pytest.raises(KernelSyntaxError, match="the name w"):
        expression("w + 1", names)
    with pytest.raises(KeyError):
        names["w"]


def test_a_part_has_names_of_its_own():
    names = Names(library.signature)
    n = names.index("n")
    one, two = names.part(), names.part()
    first, second = one.let("v", cast("f32", n)), two.let("v", compared("<", one["n"], two.index("n")))
    assert (first.var.type, second.var.type) == ("f32", "pred")
    assert one["v"] is first.var and second.value == compared("<", n, n)
    with pytest.raises(KeyError):
        names["v"]
    with pytest.raises(TypeMismatch, match="n holds s64 and f32"):
        one.declare("n", "f32")
    assert one.let("n", ONE).var is n


# --- rewrites ---


def test_variables_are_substituted():
    e = builder.operation("*", builder.operation("+", LO, ONE), HI)
    assert str(substituted(e, {LO: builder.operation("-", HI, ONE)})) == "(hi - 1 + 1) * hi"
    assert substituted(e, {X: A}) is e
    assert str(replaced(e, lambda part: ZERO if part == ONE else None)) == "(lo + 0) * hi"


def test_statements_are_mapped():
    nodes = text(
        "for i in range(lo, hi):", "    stream_f32(x, i, f32(0.5))", "    a[i] = 1", "if lo < hi:", "    return"
    )

    def plain(s):
        match s:
            case Store(streamed=True):
                return Store(s.pointer, s.index, s.value, s.stored)
            case Store():
                return []
            case Jump():
                return [s, s]
        return None

    made = mapped(nodes.body, plain)
    assert lines(made) == ["for i in range(lo, hi):", "    x[i] = f32(0.5)", "if lo < hi:", "    return", "    return"]
    assert "stream_f32" in printed(nodes)  # what was given stays
    assert mapped(nodes.body, lambda s: None) == nodes.body


def test_a_copy_has_variables_of_its_own():
    nodes = text(
        "s = scratch_f32(8)", "for i in range(lo, hi):", "    v, w = x[i], x[lo]", "    s[0] = v", "    while v < w:",
        "        v = v + w", "    x[i] = v",
    )  # fmt: skip
    made = copied(nodes.body, lambda name: f"{name}_1")
    assert lines(made) == [
        "s_1 = scratch_f32(8)", "for i_1 in range(lo, hi):", "    v_1, w_1 = x[i_1], x[lo]", "    s_1[0] = v_1",
        "    while v_1 < w_1:", "        v_1 = v_1 + w_1", "    x[i_1] = v_1",
    ]  # fmt: skip
    assert not assigned(made).keys() & assigned(nodes.body).keys()
    assert [var.name for var in assigned(nodes.body)] == ["s", "i", "v", "w"]
    assert not {*variables_read(made)} & assigned(nodes.body).keys()
    assert variables_of(made) == {*variables_read(made)}
    verify(Kernel("k", nodes.params, made), library.signature)
    (one,) = copied([Assign(Var("s64", "n"), LO)], lambda name: f"{name}_2", [LO])
    assert lines([one]) == ["n_2 = lo_2"]


# --- which variables vary ---


@pytest.mark.parametrize(
    "body",
    [
        ["n = 0", "for i in range(lo):", "    n = n + i"],
        ["for i in range(lo):", "    v = x[i]", "    x[i] = v", "for i in range(lo):", "    v = x[i]"],
        ["for i in range(lo):", "    v = x[i]", "x[lo] = v"],
        ["if lo < hi:", "    v = x[lo]", "else:", "    v = x[hi]", "x[0] = v"],
        ["u, v = x[lo], x[hi]", "u, v = v, u", "x[0] = u"],
        ["i = 0", "for i in range(lo):", "    x[i] = f32(i)"],
        ["n = lo", "n += 1", "x[n] += f32(0.5)"],
        ["s = scratch_f32(8)", "while lo < hi:", "    w = lo", "    if w == 3:", "        break", "s[0] = x[0]"],
    ],
    ids=str,
)
def test_settled_nodes_are_those_that_are_read(body):
    nodes = text(*body)
    found = {var: var.varies for var in assigned(nodes.body)}
    for var in found:
        var.varies = False
    settle(nodes)
    assert {var: var.varies for var in assigned(nodes.body)} == found


# --- the verifier ---

V, W = Var("f32", "v"), Var("f32", "w")
VARYING = Var("f32", "v", True)
STORE = Store(X, LO, constant(1.0), "f32")


@pytest.mark.parametrize(
    "body, found",
    [
        ([Store(X, LO, V, "f32")], "v is read where it has no value"),
        ([For(Var("s64", "i"), LO, HI, ONE, [Assign(V, builder.load(X, LO))]), Store(X, LO, V, "f32")], "no value"),
        ([For(Var("s64", "i"), LO, HI, ONE, [Assign(VARYING, builder.load(X, LO))]), Store(X, LO, VARYING, "f32")],
         "v is read where it may have no value"),
        ([If(constant(True), [Assign(VARYING, builder.load(X, LO))]), Store(X, LO, VARYING, "f32")],
         "v is read where it may have no value"),
        ([Assign(V, builder.load(X, LO)), Assign(V, builder.load(X, HI))], "v is assigned again, and does not vary"),
        ([Assign(V, builder.load(X, LO)), Assign(Var("f32", "v"), builder.load(X, LO))], "two variables v"),
        ([Assign(V, LO)], "v holds f32 and s64"),
        ([Assign(V, Load("f64", X, LO))], "x[lo] is f32, not f64"),
        ([Assign(V, Unary("f32", "-", LO))], "-lo is s64, not f32"),
        ([Assign(V, Call("f32", "exp_f64", (LO,)))], "exp_f64(lo) is f64, not f32"),
        ([Assign(V, Call("f32", "strange", (LO,)))], "the function strange"),
        ([Assign(V, Call("f32", "part", (LO,)))], "part, which has no result"),
        ([Assign(V, Const("f32", 0.5))], "0.5 is f64, not f32"),
        ([Store(X, LO, constant(1.0), "f64")], "a store of f64 to *f32"),
        ([Store(X, builder.load(X, LO), constant(1.0), "f32")], "a store at f32 of *f32"),
        ([Store(X, LO, A, "f32")], "a store of the pointer a"),
        ([For(V, LO, HI, ONE, [])], "the loop variable v of f32"),
        ([For(Var("s64", "i"), LO, constant(0.5), ONE, [])], "the bound 0.5 of f64"),
        ([While(constant(0.5), [])], "the truth of f64"),
        ([Jump("break")], "break outside of a loop"),
        ([STORE, STORE], "a statement at two places"),
        ([Together([Assign(V, LO)])], "v holds f32 and s64"),
    ],
)  # fmt: skip
def test_what_is_no_kernel(body, found):
    with pytest.raises(InvalidKernel) as error:
        verify(kernel(*body), library.signature, ["part"])
    assert str(error.value).startswith("k: ") and found in str(error.value)


def test_values_on_every_way():
    """A side of a branch that leaves the loop need give no values."""
    i = Var("s64", "i")
    read_after = [Store(X, i, VARYING, "f32")]
    verify(
        kernel(
            For(
                i,
                LO,
                HI,
                ONE,
                [If(constant(True), [Jump("continue")], [Assign(VARYING, builder.load(X, i))]), *read_after],
            )
        ),
        library.signature,
    )
    verify(
        kernel(
            For(
                i,
                LO,
                HI,
                ONE,
                [If(constant(True), [Assign(VARYING, builder.load(X, i))], [Jump("break")]), *read_after],
            )
        ),
        library.signature,
    )
    with pytest.raises(InvalidKernel, match="two parameters x"):
        verify(kernel(params=(X, Var("s64", "x"))), library.signature)
    assert isinstance(Scratch(X, 8), Scratch)


def test_a_copy_shares_no_variables():
    count = Var("s64", "count")
    first = kernel(Assign(count, ZERO), Store(A, count, cast("s32", count), "s32"))
    second = kernel(Assign(count, ZERO), For(LO, ZERO, HI, ONE, [Assign(count, ONE, False)]))
    copies = [with_own_variables(each) for each in (first, second)]
    for each, copy in zip((first, second), copies, strict=True):
        assert printed(copy) == printed(each)
        settle(copy)
    (one,), (other, _) = (list(assigned(copy.body)) for copy in copies)
    assert (one.varies, other.varies, count.varies) == (False, True, False)
    assert not {*copies[0].params} & {*copies[1].params, *first.params}


def test_variables_of_one_name_and_two_types_are_two():
    """An operand of a product and its epilogue are written apart: each begins with v0."""
    item, number, flag = Var("s64", "i"), Var("f32", "v0"), Var("pred", "v0")
    out = Var("*f32", "out")
    body = [
        Assign(number, cast("f32", item)),
        Store(out, item, number, "f32"),
        Assign(flag, compared("<", item, ONE)),
        If(flag, [Store(out, item, number, "f32")]),
    ]
    made = with_distinct_variables(Kernel("k", (out, item), body))
    assert {(var.name, var.type) for var in assigned(made.body)} == {("v0", "f32"), ("v0_1", "pred")}
    assert "if v0_1:" in printed(made)
    same = Kernel("k", (out, item), body[:2])
    assert with_distinct_variables(same) is same
