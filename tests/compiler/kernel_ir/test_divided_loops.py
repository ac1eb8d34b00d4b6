"""Loops whose slow functions are computed apart: random bodies, to the bit, and which loops are left alone."""

from __future__ import annotations

import random

import numpy as np
import pytest

from hloom.compiler.kernel_ir.bounds.verifier import verify as proofs
from hloom.compiler.kernel_ir.interpreter import run
from hloom.compiler.kernel_ir.nodes import Kernel
from hloom.compiler.kernel_ir.printer import printed
from hloom.compiler.kernel_ir.reader import read
from hloom.compiler.kernel_ir.scopes import settle
from hloom.compiler.kernel_ir.transforms.optimize import transformed
from hloom.compiler.kernel_ir.verify import verify
from hloom.compiler.targets.cpu import library

FUNCTIONS = {
    "min": min, "max": max, "exp_f64": np.exp, "log_f64": np.log, "sin_f64": np.sin, "tanh_f64": np.tanh,
    "pow_f64": np.power, "abs_f64": np.abs,
}  # fmt: skip

PARAMS = ("f64*", "f64*", "f64*", "s64", "s64", "s64")
HEAD = "def f(x, y, o, n, lo, hi):\n    for item in range(lo, hi):\n        a = 1.0\n        b = 0.5\n        c = 0.0\n"
END = "        o[0] = a\n        o[1] = b\n        o[2] = c\n"


def kernel(lines: list[str]) -> Kernel:
    body = "        for i in range(1, n):\n" + "".join(f"            {line}\n" for line in lines)
    return read(HEAD + body + END, PARAMS, library.signature)


def divided(lines: list[str], n: int) -> tuple[Kernel, Kernel]:
    given = kernel(lines)
    made = transformed(given, {"n": n, "lo": (0, 1), "hi": (1, 1)})
    settle(made)
    verify(made, library.signature)
    assert printed(read(printed(made), PARAMS, library.signature)) == printed(made)
    return given, made


def interpreted(one: Kernel, given: list) -> list[np.ndarray]:
    arguments = [a.copy() if isinstance(a, np.ndarray) else a for a in given]
    with np.errstate(all="ignore"):
        run(one, arguments, FUNCTIONS.__getitem__)
    return arguments[:3]


def assert_same(given: Kernel, made: Kernel, n: int) -> None:
    rng = np.random.default_rng(n)
    arguments = [rng.random(n + 2) + 0.5, rng.random(n + 2) + 0.5, np.zeros(n + 4), n, 0, 1]
    for wanted, found in zip(interpreted(given, arguments), interpreted(made, arguments), strict=True):
        assert wanted.tobytes() == found.tobytes(), f"{n}\n{printed(given)}\n{printed(made)}"


DIVIDED = {
    "what is handed on is read and then changed": ["c = c + log_f64(b) + x[i] / b", "b = 0.1 + 0.5 * b"],
    "changed twice, kept twice": ["b = b * 0.5", "c = c + exp_f64(b)", "b = b + x[i]", "a = a + c * b"],
    "a branch behind": ["v = y[i] + log_f64(x[i])", "if v > a:\n                a = v\n                b = x[i]"],
    "an element behind": ["c = c * 0.5 + sin_f64(x[i])", "o[i] = c"],
    "a sum in a branch": ["v = exp_f64(x[i])", "if v > 2.0:\n                o[i] = v\n                b = b + v"],
    "two functions": ["v = x[i] * y[i]", "a = a + tanh_f64(v)", "b = b * log_f64(v)"],
    "the function of a function": ["a = a * 0.5 + exp_f64(log_f64(x[i]) * 2.0)"],
    "the loop's variable": ["c = c + pow_f64(1.5, f64(i)) / (1.0 + x[i])"],
}
LEFT = {
    "it waits for the function": ["a = 0.5 * exp_f64(-a) + x[i]"],
    "it waits for it in a roundabout way": ["c = c + exp_f64(b)", "b = c * 0.01"],
    "through memory": ["o[i] = exp_f64(o[i - 1] - 1.0)", "c = c + o[i]"],
    "it waits for nothing": ["o[i] = exp_f64(x[i])"],
    "nothing is slow": ["c = c * 0.5 + x[i]"],
    "a jump": ["v = exp_f64(x[i])", "if v > 3.0:\n                return", "c = c * 0.5 + v"],
}


@pytest.mark.parametrize("name", DIVIDED)
def test_divided(name):
    for n in (1, 2, 9, 128, 129, 130, 300):
        given, made = divided(DIVIDED[name], n)
        assert ("scratch" in printed(made)) is (n > 8), printed(made)
        assert_same(given, made, n)


@pytest.mark.parametrize("name", LEFT)
def test_left_alone(name):
    given, made = divided(LEFT[name], 300)
    assert "scratch" not in printed(made)
    assert_same(given, made, 300)


def test_accesses_stay_proved():
    for lines in DIVIDED.values():
        _, made = divided(lines, 300)
        found = proofs(made, {"x": 302, "y": 302, "o": 304}, {"n": 300, "lo": 0, "hi": 1})
        assert {a.status for a in found} == {"proved"}


def random_lines(seed: int) -> list[str]:
    rng = random.Random(seed)
    numbers = ["a", "b", "c"]

    def value(depth: int = 0) -> str:
        one = rng.random()
        if depth > 2 or one < 0.35:
            return rng.choice([*numbers, "x[i]", "y[i]", "o[i]", "o[i - 1]", "o[i + 1]", "f64(i)", "0.25"])
        if one < 0.55:
            return rng.choice(["exp_f64(-abs_f64({}))", "log_f64(1.0 + abs_f64({}))", "sin_f64({})"]).format(
                value(depth + 1)
            )
        op = rng.choice(["+", "-", "*"])
        return f"({value(depth + 1)} {op} {value(depth + 1)})"

    lines = []
    for k in range(rng.randrange(2, 6)):
        one = rng.random()
        if one < 0.35:
            lines.append(f"v{k} = {value()}")
            numbers.append(f"v{k}")
        elif one < 0.7:
            target = rng.choice("abc")
            lines.append(f"{target} = sin_f64({value()})" if rng.random() < 0.2 else f"{target} = {value()} * 0.5")
        elif one < 0.85:
            lines.append(f"o[i{rng.choice(['', ' + 1', ' - 1'])}] = {value()} * 0.25")
        else:
            lines.append(f"if {value()} > 0.5:\n                {rng.choice('abc')} = {value()} * 0.5")
    return lines


def test_random_bodies():
    found = 0
    for seed in range(400):
        lines = random_lines(seed)
        n = random.Random(seed).choice([9, 40, 131])
        given, made = divided(lines, n)
        found += "scratch" in printed(made)
        assert_same(given, made, n)
    assert found > 100
