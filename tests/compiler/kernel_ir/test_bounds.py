"""The verifier of accesses: what it says of kernels by hand, and that it never calls an access proved that goes out."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hloom.compiler.kernel_ir.bounds.verifier import Access, verify
from hloom.compiler.kernel_ir.nodes import Binary, Const, Kernel
from hloom.compiler.kernel_ir.printer import printed
from hloom.compiler.kernel_ir.reader import read
from hloom.compiler.targets.cpu import library
from hloom.compiler.targets.cpu.microkernels.memory import memory_of
from tests.support.kernel_runner import Runner, TooLong

PARAMS = ("f32*", "f32*", "s32*", "s64", "s64", "s64", "s64")
HEAD = "def f(a, o, idx, n, m, lo, hi):\n"


def kernel(body: str, parts: tuple[str, ...] = ()) -> Kernel:
    lines = [f"    {line}" for line in body.strip("\n").splitlines()]
    return read(HEAD + "\n".join(lines) + "\n", PARAMS, library.signature, parts)


def found(body: str, n=10, m=4, items: int = 1, a: int = 10, o: int = 10, idx: int = 10, **more) -> list[Access]:
    ranges = {"n": n, "m": m, "lo": (0, items - 1), "hi": (1, items)}
    return verify(kernel(body), {"a": a, "o": o, "idx": idx}, ranges, blocks=memory_of, **more)


def statuses(body: str, **given) -> list[str]:
    return [access.status for access in found(body, **given)]


PROVED = {
    "a row": "for i in range(lo, hi):\n    for j in range(n):\n        o[i * n + j] = a[j]",
    "a guard": "for i in range(n + 5):\n    if i < n:\n        o[i] = f32(0)",
    "an else": "for i in range(n + 5):\n    if i >= n:\n        pass\n    else:\n        o[i] = f32(0)",
    "a choice": "for i in range(n + 5):\n    v = a[i] if i < n else f32(0)",
    "and": "for i in range(n + 5):\n    if i < n and a[i] > f32(0):\n        o[i] = f32(0)",
    "continue": "for i in range(n + 5):\n    if i >= n:\n        continue\n    o[i] = f32(0)",
    "a clamp": "o[min(max(s64(idx[0]), 0), n - 1)] = f32(0)",
    "a remainder": "for i in range(n * 7):\n    q = i // 7\n    o[q] = a[i - q * 7]",
    "a mask": "for i in range(1000):\n    o[i & 7] = f32(0)",
    "bits of a number": "for i in range(1000):\n    o[i & 9] = f32(0)",
    "a step": "for i in range(0, 8, 4):\n    for j in range(4):\n        o[i + j] = f32(0)",
    "backwards": "for i in range(n - 1, -1, -1):\n    o[i] = f32(0)",
    "a tail": "for i in range(0, n, 4):\n    for j in range(i, min(i + 4, n)):\n        o[j] = f32(0)",
    "a while": "k = 0\nwhile k < n:\n    o[k] = f32(0)\n    k += 1",
    "runs": (
        "k = 0\nwhile k < n:\n    run = min(3, n - k)\n    for x in range(k, k + run):\n        o[x] = f32(0)\n"
        "    k += run"
    ),
    "two counters": "x, y = 0, 0\nfor i in range(n):\n    o[x] = a[y // 3]\n    x += 1\n    y += 3",
    "counters after their loop": (
        "x, y = 0, 0\nwhile x < n:\n    run = min(3, n - x)\n    y += run * 2\n    x += run\no[y - x * 2] = f32(0)"
    ),
    "a wheel": "y = 0\nfor i in range(100):\n    o[y] = f32(0)\n    y += 1\n    if y == n:\n        y = 0",
    "a search": "k = n - 1\nwhile k > 0 and a[k - 1] > f32(0):\n    o[k] = f32(0)\n    k = k - 1",
    "scratch": "s = scratch_f32(16)\nfor i in range(16):\n    s[i] = f32(0)",
    "rows together": (
        "last = hi - 1\nfor i in range(lo, hi, 2):\n    j = min(i + 1, last)\n    o[i] = f32(0)\n    o[j] = f32(0)"
    ),
    "a product": (
        "for i in range(lo, hi):\n    depth = min(m, n - i)\n    for q in range(2):\n        for p in range(depth):\n"
        "            o[q * depth + p] = f32(0)"
    ),
    "never": "if n < 5:\n    o[100] = f32(0)",
    "copies": "for i in range(lo, hi):\n    copy_f32_8(address(a) + i * 4, address(o) + 8)",
}  # fmt: skip


@pytest.mark.parametrize("body", PROVED.values(), ids=PROVED)
def test_proved(body):
    items = 3 if "copy" in body else 1 if "range(n):" in body else 10
    assert set(statuses(body, items=items)) == {"proved"}, found(body, items=items)


OUT = {
    "off by one": ("for i in range(n):\n    o[i + 1] = f32(0)", "o has 10 elements, the index is from 1 to 10"),
    "one too many": ("for i in range(n + 1):\n    o[i] = f32(0)", "o has 10 elements, the index is from 0 to 10"),
    "negative": ("for i in range(n):\n    o[i - 1] = f32(0)", "o has 10 elements, the index is from -1 to 8"),
    "items": ("for i in range(lo, hi):\n    o[i] = a[i + 9]", "a has 10 elements, the index is from 9 to 18"),
    "scratch": ("s = scratch_f32(7)\nfor i in range(0, 8, 4):\n    s[i + 3] = f32(0)", "s has 7 elements"),
    "always": ("for i in range(lo, hi):\n    j = i * m\n    o[j + n] = f32(0)", "the index is from 10 to"),
    "a copy": ("copy_f32_8(address(a) + 12, address(o))", "a has 40 bytes, those accessed are from 12 to 43"),
}


@pytest.mark.parametrize(("body", "reason"), OUT.values(), ids=OUT)
def test_out_of_range(body, reason):
    (access,) = [access for access in found(body, items=10) if access.status == "out of range"]
    assert reason in access.reason


UNPROVED = {
    "a gather": "o[idx[0]] = f32(0)",
    "a while that may not end": "k = 0\nwhile a[k] > f32(0):\n    k += 1",
    "bits of anything": "o[s64(idx[0]) & s64(idx[1])] = f32(0)",
    "an overflow": "k = s64(idx[0]) * 4611686018427387904\nif k >= 0 and k * 4 < n:\n    o[k] = f32(0)",
    "out where data say so": "if idx[0] > 3:\n    o[n] = f32(0)",
}


@pytest.mark.parametrize("body", UNPROVED.values(), ids=UNPROVED)
def test_unproved(body):
    assert "unproved" in statuses(body), found(body)


def test_items_that_nobody_knows():
    """Nothing is certainly outside."""
    body = "for i in range(lo, hi):\n    o[i] = a[i]"
    assert [a.status for a in verify(kernel(body), {"a": 8, "o": 8}, {})] == ["unproved", "unproved"]


def test_what_nobody_knows():
    body = "for i in range(lo, hi):\n    o[i] = a[i]"
    made = verify(kernel(body), {"a": 8}, {"lo": (0, 7), "hi": (1, 8)})
    assert [access.status for access in made] == ["proved", "unproved"]
    assert made[1].reason == "the size of o is not known"


def test_a_size_that_is_an_expression():
    made = kernel("for i in range(lo, hi):\n    for j in range(n):\n        o[i * n + j] = a[j]")
    n, m = made.params[3:5]
    ranges = {"n": (1, 1 << 20), "m": (1, 1 << 20), "lo": (0, 7), "hi": (1, 8)}
    extents = {"a": n, "o": Binary("s64", "*", n, Const("s64", 8))}
    assert [access.status for access in verify(made, extents, ranges)] == ["proved", "proved"]
    wrong = verify(made, extents | {"a": m}, ranges)
    assert [access.status for access in wrong] == ["unproved", "proved"]


def test_lines_are_those_of_the_printed_kernel():
    body = """if n > m:
    o[0] = a[0]
elif n > 2:
    o[1] = a[1]
else:
    o[2] = a[2]
for i in range(n):
    if i > 3:
        pass
    o[i] = a[i]"""
    lines = printed(kernel(body)).splitlines()
    for access in found(body, n=(0, 9)):
        assert access.text in lines[access.line - 1]


def test_calls_of_parts_are_followed():
    part = read("def g(p, k, lo, hi):\n    p[k] = f32(0)\n", ("f32*", "s64", "s64", "s64"), library.signature)
    made = kernel("for i in range(n):\n    g(o, i, 0, 1)", ("g",))
    ranges = {"n": 10, "m": 0, "lo": 0, "hi": 1}
    assert [a.status for a in verify(made, {"o": 10}, ranges, parts={"g": part})] == ["proved"]
    assert [a.status for a in verify(made, {"o": 9}, ranges, parts={"g": part})] == ["out of range"]


# --- against brute force

NAMES = ("n", "m", "u", "v", "w")
ARRAYS = {"a": 7, "o": 9, "idx": 5}


@st.composite
def expression(draw, names, depth=2) -> str:
    kind = draw(st.integers(0, 13)) if depth else draw(st.integers(0, 2))
    if kind <= 1:
        return draw(st.sampled_from(names))
    if kind == 2:
        return str(draw(st.integers(-3, 9)))
    left, right = draw(expression(names, depth - 1)), draw(expression(names, depth - 1))
    match kind:
        case 3 | 4 | 5:
            return f"({left} {draw(st.sampled_from('+-*'))} {right})"
        case 6:
            return f"({left} {draw(st.sampled_from(['//', '%']))} {draw(st.sampled_from([1, 2, 3, 4, 5]))})"
        case 7:
            return f"{draw(st.sampled_from(['min', 'max']))}({left}, {right})"
        case 8:
            return f"quotient({left}, {draw(st.integers(1, 4))})"
        case 9:
            return f"({left} & {draw(st.sampled_from([3, 7, -4, 5]))})"
        case 10:
            return f"({left} if {draw(condition(names, depth - 1))} else {right})"
        case 11:
            return f"s64(s8({left}))"
        case 12:
            return f"s64(idx[{left}])"
        case _:
            return f"({left} * ({draw(condition(names, 0))}))"


@st.composite
def condition(draw, names, depth=1) -> str:
    left, right = draw(expression(names, depth)), draw(expression(names, depth))
    made = f"{left} {draw(st.sampled_from(['<', '<=', '>', '>=', '==', '!=']))} {right}"
    if depth and draw(st.booleans()):
        return f"{made} {draw(st.sampled_from(['and', 'or']))} {draw(condition(names, depth - 1))}"
    return f"not {made}" if draw(st.integers(0, 5)) == 0 else made


@st.composite
def block(draw, names, depth, loops=0) -> list[str]:
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.integers(0, 11 if depth else 5))
        match kind:
            case 0 | 1:
                lines.append(f"{draw(st.sampled_from(['u', 'v', 'w']))} = {draw(expression(names))}")
            case 2:
                lines.append(f"{draw(st.sampled_from(['u', 'v', 'w']))} += {draw(expression(names, 1))}")
            case 3 | 4:
                lines.append(f"o[{draw(expression(names))}] = a[{draw(expression(names, 1))}]")
            case 5 if loops:
                how = draw(st.sampled_from(["break", "continue"]))
                lines += [f"if {draw(condition(names))}:", f"    {how}"]
            case 6 | 7:
                lines += [f"if {draw(condition(names))}:", *indented(draw(block(names, depth - 1, loops)))]
                if draw(st.booleans()):
                    lines += ["else:", *indented(draw(block(names, depth - 1, loops)))]
            case 8:
                lines += [f"while {draw(condition(names))}:", *indented(draw(block(names, depth - 1, loops + 1)))]
            case 9 | 10 | 11:
                var = f"i{depth}"
                bounds = [draw(expression(names, 1)) for _ in range(draw(st.integers(1, 2)))]
                if len(bounds) == 2 and draw(st.booleans()):
                    bounds.append(str(draw(st.sampled_from([2, 3, -1, -2]))))
                body = draw(block((*names, var), depth - 1, loops + 1))
                lines += [f"for {var} in range({', '.join(bounds)}):", *indented(body)]
    return lines or ["pass"]


def indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_is_proved_is_never_outside(data):
    n, m = (tuple(sorted(data.draw(st.tuples(st.integers(-2, 8), st.integers(-2, 8))))) for _ in range(2))
    starts = [f"{name} = {data.draw(st.integers(-1, 4))}" for name in ("u", "v", "w")]
    items = data.draw(st.integers(1, 3))
    body = data.draw(block((*NAMES, "item"), 3))
    text = "\n".join([*starts, "for item in range(lo, hi):", *indented(body)])
    made = kernel(text)
    ranges = {"n": n, "m": m, "lo": (0, items - 1), "hi": (1, items)}
    accesses = verify(made, ARRAYS, ranges)
    proved = {access.number for access in accesses if access.status == "proved"}
    certain = {access.number for access in accesses if access.status == "out of range"}
    random = data.draw(st.randoms(use_true_random=False))
    for numbers in itertools.product({*n}, {*m}):
        outside: set[int] = set()
        complete = True
        for item in range(items):
            runner = Runner(made, ARRAYS, lambda: random.randint(-4, 12))
            try:
                runner.run(n=numbers[0], m=numbers[1], lo=item, hi=item + 1)
            except TooLong:
                complete = False
            outside |= runner.outside
        assert not outside & proved, (text, numbers, [a for a in accesses if a.number in outside & proved])
        if complete:
            assert certain <= outside, (text, numbers, [a for a in accesses if a.number in certain - outside])
