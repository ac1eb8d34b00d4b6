"""First iterations by themselves: the same elements, loops without branches, and which loops stay whole."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.compiler.kernel_ir.functions import by_name
from hloom.compiler.kernel_ir.nodes import For, If, Kernel
from hloom.compiler.kernel_ir.printer import printed
from hloom.compiler.kernel_ir.reader import read
from hloom.compiler.kernel_ir.scopes import settle
from hloom.compiler.kernel_ir.transforms.nests import Around
from hloom.compiler.kernel_ir.transforms.optimize import transformed
from hloom.compiler.kernel_ir.transforms.peel import peeled
from hloom.compiler.kernel_ir.verify import verify
from hloom.ir.records import replace
from tests.support.loop_nests import interpreted

PARAMS = ("f64*", "f64*", "s64", "s64", "s64", "s64")
HEAD = "def f(x, o, n, m, lo, hi):\n    for item in range(lo, hi):\n        s = 1.0\n"
END = "        o[n * m] = s\n"
PEELED = {
    "the first column": """
        for i in range(n):
            for j in range(m):
                if j == 0:
                    o[i * m + j] = x[i * m + j]
                else:
                    o[i * m + j] = o[i * m + j - 1] * 0.5 + x[i * m + j]
""",
    "row, column and corner": """
        for i in range(n):
            for j in range(m):
                if i == 0 and j == 0:
                    o[0] = x[0]
                elif i == 0:
                    o[j] = o[j - 1] + x[j]
                elif j == 0:
                    o[i * m] = o[(i - 1) * m] - x[i * m]
                else:
                    o[i * m + j] = o[(i - 1) * m + j] * o[i * m + j - 1] + x[i * m + j]
""",
    "a number handed on": """
        for k in range(1, n * m):
            v = x[k]
            if k != 1:
                v = v + o[k - 1]
                s = s * 0.5 + v
            o[k] = v
""",
    "greater than the first": """
        for k in range(n * m):
            if k > 0 or k <= 0 and n == 77:
                o[k] = x[k] + s
            s = s * 0.25 + x[k]
""",
}
WHOLE = {
    "an element decides": """
        for k in range(n * m):
            if k == 0:
                o[k] = x[k]
            elif x[k] > 0.5:
                o[k] = x[k] * 2.0
""",
    "another iteration": """
        for k in range(n * m):
            if k == 3:
                o[k] = x[k]
""",
    "it is left": """
        for k in range(n * m):
            if k == 0:
                s = 3.0
            else:
                break
""",
}


def kernel(text: str) -> Kernel:
    return read(HEAD + text.strip("\n") + "\n" + END, PARAMS, by_name)


def branches(made: Kernel) -> int:
    return sum(isinstance(s, If) for one in made.walk() if isinstance(one, For) for s in one.body)


def assert_same(given: Kernel, made: Kernel, n: int, m: int) -> None:
    settle(made)
    verify(made, by_name)
    rng = np.random.default_rng(n)
    arguments = [rng.random(n * m + 1), rng.random(n * m + 1), n, m, 0, 1]
    for wanted, found in zip(interpreted(given, arguments), interpreted(made, arguments), strict=True):
        assert wanted.tobytes() == found.tobytes(), f"{n}, {m}\n{printed(made)}"


@pytest.mark.parametrize("name", PEELED)
def test_first_iterations_apart(name):
    given = kernel(PEELED[name])
    for n, m in ((0, 0), (1, 1), (1, 5), (5, 1), (2, 3), (21, 13)):
        ranges = {"n": n, "m": m, "lo": (0, 1), "hi": (1, 1)}
        made = replace(given, body=peeled(Around(given, ranges), given.body))
        inner = printed(made).rpartition("for ")[2]
        assert "if " not in inner, printed(made)
        assert_same(given, made, n, m)
        assert_same(given, transformed(given, ranges), n, m)


@pytest.mark.parametrize("name", WHOLE)
def test_loops_that_stay_whole(name):
    given = kernel(WHOLE[name])
    made = peeled(Around(given, {"n": 3, "m": 4}), given.body)
    assert all(one is other for one, other in zip(made, given.body, strict=True))
    assert branches(given) > 0
