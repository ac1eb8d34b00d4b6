"""What `HLOOM_DEBUG=1` prints of a function that is compiled again: the arguments that changed, from what to what."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import nn, optim

pytestmark = pytest.mark.quick

ONE, TWO, THREE = (np.ones(n, np.float32) for n in (1, 2, 3))
LAYER = nn.Linear(1, 2, key=hl.random.key(0))


def first(*arguments, **named):
    return hnp.sum(hl.tree.leaves((arguments, named))[0])


def with_default(x, y=1):
    return hnp.sum(x) * y


def of_two(params, batch):
    return first(params, batch)


def with_statics(n, mode, x, scale=1.0):
    return x * n


# (function, statics, first call, second call, what is said)
CASES = [
    (with_default, (), ((ONE,), {}), ((TWO,), {}), "argument x: f32[1] → f32[2]"),
    (with_default, (), ((ONE,), {}), ((ONE.astype("f8"),), {}), "argument x: f32[1] → f64[1]"),
    (with_default, (), ((ONE,), {}), ((ONE, 2), {}), "argument y: new, s32[] (a Python number)"),
    (with_default, (), ((ONE, 2), {}), ((ONE, np.int32(2)), {}), "argument y: s32[] (a Python number) → s32[]"),
    (with_default, (), ((ONE, 2), {}), ((ONE,), {}), "argument y: s32[] (a Python number) → missing"),
    (with_default, (), ((ONE,), {}), ((), {"x": ONE}), "tree structure of the arguments"),
    (of_two, (), (({"w": [ONE, TWO]}, ONE), {}), (({"w": [ONE, THREE]}, ONE), {}),
     "argument params['w'][1]: f32[2] → f32[3], at"),
    (of_two, (), ((LAYER, ONE), {}), ((LAYER.replace(bias=THREE), ONE), {}), "argument params.bias: f32[2] → f32[3]"),
    (of_two, (), ((optim.adam(1.0).init(ONE), ONE), {}), ((optim.adam(1.0).init(TWO), ONE), {}),
     "argument params.states[0].mu: f32[1] → f32[2]; argument params.states[0].nu: f32[1] → f32[2]"),
    (first, (), ((ONE, TWO), {}), ((ONE, THREE, TWO), {}), "arguments[1]: f32[2] → f32[3]; argument arguments[2]: new"),
    (first, (), ((ONE,), {"k": ONE}), ((ONE,), {"k": TWO}), "argument k: f32[1] → f32[2]"),
    (first, (), ((ONE,) * 7, {}), ((TWO,) * 7, {}), "; 4 more, at"),
    (with_statics, (0, 1), ((2, "a", ONE), {}), ((2, "b", ONE), {}), "static argument mode: 'a' → 'b', at"),
    (with_statics, (0, 1), ((2, "a", ONE), {}), ((2, "a", TWO), {}), "argument x: f32[1] → f32[2], at"),
    (with_statics, (0, 1, 3), ((2, "a", ONE, 0.5), {}), ((2, "a", ONE, 0.25), {}), "scale: 0.5 → 0.25, at"),
]  # fmt: skip


@pytest.mark.parametrize("function,statics,before,after,says", CASES, ids=map(str, range(len(CASES))))
def test_what_changed_in_the_arguments(function, statics, before, after, says, capsys):
    f = hl.jit(function, static_argnums=statics)
    with hl.config(debug=1):
        f(*before[0], **before[1])
        f(*after[0], **after[1])
        line = inspect.currentframe().f_lineno - 1
    text = capsys.readouterr().err
    assert f"{function.__name__} is compiled again (2): " in text and says in text, text
    assert f", at {__file__}:{line}" in text


def test_what_changed_around_a_call(capsys):
    f = hl.jit(lambda x: x + 1)
    with hl.config(debug=1):
        f(ONE)
        with hl.config(debug_checks=True):
            f(ONE)
        with hl.device("cpu:0"):
            f(ONE)
        f(hl.device_put(TWO, "cpu:0"))
    text = capsys.readouterr().err
    assert "(2): hl.config.debug_checks: False → True, at" in text
    assert "(3): the device scope: new, cpu:0, at" in text
    assert "(4): argument x: f32[1] → f32[2] on cpu:0, at" in text


def test_the_nearest_version_is_compared(capsys):
    f = hl.jit(lambda x, y: x.sum() + y.sum())
    with hl.config(debug=1):
        f(ONE, ONE)
        f(TWO, TWO)
        capsys.readouterr()
        f(ONE, THREE)
    assert "(3): argument y: f32[1] → f32[3], at" in capsys.readouterr().err
