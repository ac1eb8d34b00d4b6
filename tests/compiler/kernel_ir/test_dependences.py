"""The dependence test against the enumeration of all iterations."""

from __future__ import annotations

from collections import defaultdict

import pytest

from hloom.compiler.kernel_ir.affine.dependences import ANY, EARLIER, LATER, SAME, Nest
from hloom.compiler.kernel_ir.builder import constant, operation
from hloom.compiler.kernel_ir.nodes import Assign, Choice, Const, For, If, Load, Store, Unary, Var
from tests.support.loop_nests import LO, Nests

SEEDS = 150


def value_of(expression, values):
    match expression:
        case Const():
            return expression.value
        case Var():
            return values[expression]
        case Unary(op="-"):
            return -value_of(expression.operand, values)
    left, right = value_of(expression.left, values), value_of(expression.right, values)
    return {"+": left + right, "-": left - right, "*": left * right}[expression.op]


def iterations(access, values):
    """(the number of the iteration of each loop around an access, its index) for all of its iterations."""

    def enter(k, values, numbers):
        if k == len(access.loops):
            yield numbers, value_of(access.index, values)
            return
        loop = access.loops[k]
        bounds = [value_of(bound, values) for bound in (loop.start, loop.stop, loop.step)]
        for number, at in enumerate(range(*bounds)):
            yield from enter(k + 1, {**values, loop.var: at}, (*numbers, number))

    return list(enter(0, values, ()))


def common_of(first, second):
    count = 0
    for one, other in zip(first.loops, second.loops, strict=False):
        if one is not other:
            break
        count += 1
    return count


def sign(distance):
    return SAME if distance == 0 else LATER if distance > 0 else EARLIER


def compare(seed: int) -> tuple[int, int]:
    """(direction vectors that exist, that are claimed) of a random nest."""
    made = Nests(seed)
    loop = made.loop([], made.rng.randrange(1, 3))
    known = made.rng.random() < 0.7
    ranges = {var: size if known else (1, 1 << 20) for var, size in made.sizes.items()}
    nest = Nest([loop], made.arrays, ranges)
    true = claimed = 0
    all_iterations = {access: iterations(access, made.sizes) for access in nest.accesses}
    for first, second in nest.pairs():
        depth = common_of(first, second)
        by_index = defaultdict(list)
        for numbers, index in all_iterations[second]:
            by_index[index].append(numbers)
        found = defaultdict(set)
        for numbers, index in all_iterations[first]:
            for other in by_index[index]:
                distance = tuple([b - a for a, b in zip(numbers[:depth], other[:depth], strict=True)])
                found[tuple(map(sign, distance))].add(distance)
        vectors = nest.directions(first, second)
        assert found.keys() <= set(vectors), (seed, str(first.index), str(second.index))
        distances = nest.distances(first, second)
        for one in (d for several in found.values() for d in several):
            assert distances is not None
            assert all(low <= part <= high for part, (low, high) in zip(one, distances, strict=True)), seed
        if known:
            true, claimed = true + len(found), claimed + len(vectors)
    return true, claimed


def test_independence_is_never_claimed_wrongly():
    counts = [compare(seed) for seed in range(SEEDS)]
    true, claimed = (sum(column) for column in zip(*counts, strict=True))
    print(f"{true} direction vectors exist, {claimed} are claimed")
    assert claimed <= 1.2 * true


# --- single cases ---

X, Y, N, M = Var("*f64", "x"), Var("*f64", "y"), Var("s64", "n"), Var("s64", "m")
I, J = Var("s64", "i"), Var("s64", "j")


def plus(*terms):
    made = terms[0] if not isinstance(terms[0], int) else constant(terms[0])
    for term in terms[1:]:
        made = operation("+", made, constant(term) if isinstance(term, int) else term)
    return made


def times(left, right):
    return operation("*", left if not isinstance(left, int) else constant(left), right)


def matrix_nest(*body, sizes=(LO, N)):
    inner = For(J, constant(1), plus(M, -1), constant(1), list(body))
    return For(I, constant(1), plus(N, -1), constant(1), [inner])


def at(row, column, size=M):
    return plus(times(plus(I, row), size), J, column)


def update(index, *loads):
    return Store(X, index, plus(*[Load("f64", X, load) for load in loads]), "f64")


def vectors(nest, first, second):
    names = {SAME: "=", LATER: "<", EARLIER: ">", ANY: "*"}
    return {"".join(names[one] for one in vector) for vector in nest.directions(first, second)}


@pytest.mark.parametrize("ranges", [{N: 30, M: 40}, {N: (3, 1 << 20), M: (3, 1 << 20)}], ids=["known", "open"])
def test_rows_of_a_matrix_are_told_apart(ranges):
    # The row and the column are found again in one index, of sizes that are known, and of any.
    loop = matrix_nest(update(at(0, 0), at(-1, 0), at(0, -1), at(1, 1)))
    nest = Nest([loop], [X], ranges)
    above, left, below, store = nest.accesses
    assert vectors(nest, store, above) == {"<="}
    assert vectors(nest, store, left) == {"=<"}
    assert vectors(nest, below, store) == {"<<"}
    assert vectors(nest, store, below) == {">>"}
    assert vectors(nest, store, store) == {"=="}
    assert nest.distances(store, above)[:2] == [(1, 1), (0, 0)] or ranges[N] != 30
    inner = loop.body[0]
    assert nest.carries(loop, store, above) and not nest.carries(inner, store, above)
    assert nest.carries(inner, store, left) and not nest.carries(loop, store, left)


def test_columns_that_may_be_out_of_their_row():
    loop = matrix_nest(update(at(0, 0), plus(times(I, M), times(2, J))))
    nest = Nest([loop], [X], {N: 30, M: 40})
    load, store = nest.accesses
    assert {"<>", "=<"} <= vectors(nest, load, store) | vectors(nest, store, load)


def test_triangles():
    # x[i, k] is read where k < j, x[i, j] is written: never in one iteration of j.
    K = Var("s64", "k")
    copy = Store(X, plus(times(I, N), J), Load("f64", X, plus(times(I, N), K)), "f64")
    inner = For(K, constant(0), J, constant(1), [copy])
    loop = For(I, constant(0), N, constant(1), [For(J, constant(0), I, constant(1), [inner])])
    for size in (30, (1, 1 << 20)):
        nest = Nest([loop], [X], {N: size})
        load, store = nest.accesses
        assert not nest.may_meet(load, store, [SAME, SAME])
        assert nest.may_meet(store, load, [SAME, LATER])
        assert not nest.may_meet(load, store, [SAME, LATER])


def test_greatest_common_divisor():
    loop = For(I, constant(0), N, constant(1), [update(times(4, I), plus(times(2, I), 1))])
    nest = Nest([loop], [X], {N: (0, 1 << 40)})
    load, store = nest.accesses
    assert not nest.may_meet(load, store, []) and not nest.may_meet(store, load, [])


def test_what_is_not_known_may_meet():
    T, index = Var("s64", "t", True), Var("*s64", "index")
    given = Load("s64", index, I)
    unknown = [
        [update(given, plus(I, 1))],
        [Assign(T, plus(I, 1)), If(operation("<", I, constant(3)), [Assign(T, constant(0))]), update(T, I)],
        [Store(Var("*f64", "pointer"), I, Load("f64", X, plus(I, 1)), "f64")],
        [Store(X, times(I, I), Load("f64", X, plus(N, I)), "f64")],
        [Store(X, Choice("s64", operation("<", I, N), I, constant(7)), Load("f64", X, plus(I, 1)), "f64")],
    ]
    for body in unknown:
        nest = Nest([For(I, constant(0), N, constant(1), body)], [X, index], {N: (0, 1 << 40)})
        store = next(a for a in nest.accesses if a.written)
        load = next(a for a in nest.accesses if a.pointer is X and not a.written)
        assert nest.may_meet(load, store, [LATER]) or nest.may_meet(store, load, [LATER])


def test_a_variable_that_changes_is_no_definition():
    # Of t the value before its change is in one index, the one after it in the other.
    T, U = Var("s64", "t", True), Var("s64", "u")
    body = [Assign(U, T), Assign(T, plus(T, 1)), update(operation("-", T, U), constant(0), constant(1))]
    nest = Nest([For(I, constant(0), N, constant(1), body)], [X], {N: 5})
    _, load, store = nest.accesses
    assert nest.may_meet(store, load, [LATER])


def test_arrays_do_not_overlap():
    loop = For(I, constant(0), N, constant(1), [Store(Y, I, Load("f64", X, plus(I, 1)), "f64")])
    nest = Nest([loop], [X, Y], {N: 5})
    load, store = nest.accesses
    assert not nest.may_meet(load, store, [ANY])
    assert Nest([loop], [X], {N: 5}).of_one_array(load, store)  # where one of them is not known to be an array
