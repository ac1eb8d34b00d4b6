"""How often nested loops run, counted without running them."""

from __future__ import annotations

import random

from hloom.compiler.kernel_ir.nodes import Binary, Call, Const, Expr, For, Load, Var
from hloom.kernels.derivatives.executions import executions


def _value(e: Expr, known: dict[Var, int]) -> int:
    match e:
        case Const(value=int(number)):
            return number
        case Var():
            return known[e]
        case Binary(op=op, left=left, right=right):
            a, b = _value(left, known), _value(right, known)
            return {"+": a + b, "-": a - b, "*": a * b}[op] if op != "//" else a // b
        case Call(function=name, arguments=(left, right)):
            return {"min": min, "max": max}[name](_value(left, known), _value(right, known))
    raise AssertionError


def _run(loops: list[For], known: dict[Var, int]) -> int:
    first, *rest = loops
    indices = range(*[_value(e, known) for e in (first.start, first.stop, first.step)])
    return sum(_run(rest, known | {first.var: k}) if rest else 1 for k in indices)


def _bound(rng: random.Random, variables: list[Var]) -> Expr:
    number = Const("s64", rng.randrange(-2, 8))
    if not variables or rng.random() < 0.2:
        return number
    var = rng.choice(variables)
    kind = rng.choice(["var", "+", "-", "*", "//", "min", "max"])
    if kind == "var":
        return var
    if kind in ("min", "max"):
        return Call("s64", kind, (Binary("s64", "+", var, Const("s64", 1)), number))
    if kind == "//":
        return Binary("s64", "//", var, Const("s64", 2))
    return Binary("s64", kind, var, number)


def test_random_nests():
    rng, found = random.Random(0), set()
    for _ in range(300):
        size = Var("s64", "n")
        variables, loops = [size], []
        for depth in range(rng.randrange(1, 4)):
            step = Const("s64", rng.choice([1, 1, 2, -1, -3]))
            loops.append(For(Var("s64", f"i{depth}"), _bound(rng, variables), _bound(rng, variables), step, []))
            variables.append(loops[-1].var)
        count = executions(loops, {size: 6}, {})
        assert count == _run(loops, {size: 6})
        found.add(count)
    assert len(found) > 20


def test_bounds_that_depend_on_data_are_not_counted():
    data, k = Var("*s64", "data"), Var("s64", "k")
    zero, one = Const("s64", 0), Const("s64", 1)
    loop = For(k, zero, Load("s64", data, zero), one, [])
    assert executions([loop], {}, {}) is None
    long = For(Var("s64", "i"), zero, Const("s64", 1 << 40), one, [])
    assert executions([long, For(k, zero, long.var, one, [])], {}, {}) is None


def test_variables_with_definitions():
    i, last = Var("s64", "i"), Var("s64", "last")
    zero, one = Const("s64", 0), Const("s64", 1)
    loops = [For(i, zero, Const("s64", 5), one, []), For(Var("s64", "j"), zero, last, one, [])]
    assert executions(loops, {}, {last: Binary("s64", "+", i, one)}) == 15
