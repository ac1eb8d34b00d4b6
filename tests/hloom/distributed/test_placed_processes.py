"""Parts of a program on devices of other processes: cut edges are messages, with the bits of one process."""

from pathlib import Path

import pytest
from test_launch import launched, lines

pytest.importorskip("mpi4py", reason="programs in several processes: pip install 'hloom[cluster]'")

SETUP = """
import hashlib
import hloom.numpy as hnp
from hloom import lax
from hloom.jax.experimental import multihost_utils

DEVICES = [d.global_name for d in hl.devices()]
FIRST, SECOND, LAST = DEVICES[0], DEVICES[1], DEVICES[-1]
rng = np.random.default_rng(0)
X = rng.normal(size=(32, 64)).astype(np.float32)
WEIGHTS = [rng.normal(size=(64, 64)).astype(np.float32) / 10 for _ in range(3)]
digest = hashlib.sha256()


def note(*arrays):
    for x in multihost_utils.process_allgather(arrays, tiled=True):
        assert np.isfinite(x).all()
        digest.update(x.tobytes())
"""

SAME_BITS = """
def layers(weights, x):
    for k, w in enumerate(weights):
        with hl.device(DEVICES[k % len(DEVICES)]):
            x = hnp.tanh(x @ w)
    return hnp.sum(x**2)


@hl.jit
def step(weights, x):
    value, gradients = hl.value_and_grad(layers)(weights, x)
    return [w - g / 100 for w, g in zip(weights, gradients)], value


weights = WEIGHTS
for _ in range(3):
    weights, value = step(weights, X)
note(*weights, value)


@hl.jit
def counted(x, n):
    def body(i, state):
        a, b = state
        with hl.device(SECOND):
            a = hnp.tanh(a @ WEIGHTS[0]) + b
        with hl.device(FIRST):
            return a, b / 2 + hnp.sum(a) / 1000
    return lax.fori_loop(0, n, body, (x, hnp.float32(0)))


for n in (0, 1, 2, 50):
    note(*counted(X, n))


@hl.jit
def decided(x):
    def body(state):
        a, b = state
        with hl.device(LAST):
            a = a * 1.5 + 1
        with hl.device(FIRST):
            return a, b + hnp.max(a)
    return lax.while_loop(lambda state: hnp.sum(state[0]) < 1e6, body, (abs(x), hnp.float32(0)))


note(*decided(X))


@hl.jit
def branches(x, p):
    def one(x):
        with hl.device(SECOND):
            y = hnp.sin(x)
        with hl.device(FIRST):
            return y @ x.T

    def other(x):
        with hl.device(FIRST):
            y = hnp.cos(x)
        with hl.device(SECOND):
            return y @ x.T

    def body(carry, i):
        carry = lax.cond(i % 2 == p, one, other, x * carry)[0, 0]
        return carry, carry
    return lax.scan(body, hnp.float32(1), hnp.arange(6))


note(*branches(X, 0), *branches(X, 1))


def scanned(x):
    def body(carry, w):
        with hl.device(SECOND):
            carry = hnp.tanh(carry @ w)
        with hl.device(FIRST):
            return carry * 1.1, None
    return hnp.sum(lax.scan(body, x, np.stack(WEIGHTS))[0])


note(hl.jit(hl.grad(scanned))(X))
print(digest.hexdigest())
"""


def test_the_same_bits_as_in_one_process(tmp_path):
    found = set()
    for processes, devices in ((1, 2), (2, 1)):
        options = ["--devices-per-process", str(devices)]
        done = launched(tmp_path, SETUP + SAME_BITS, processes=processes, options=options)
        assert done.returncode == 0, done.stderr
        for process in range(processes):
            (line,) = lines(done.stdout, process)
            found.add(line)
    assert len(found) == 1, found


RANDOM = """
import random

sys.path.insert(0, sys.argv[1])
from loop_programs import LoopPrograms, arguments
from random_devices import choose
from hloom.arrays.sharded import RemoteData
from hloom.backends.multi_device import MultiDeviceBackend
from hloom.ir.interpret import run
from hloom.platforms.backend import CompileOptions

names, here = tuple(d.global_name for d in hl.devices()), 0
for seed in range(30):
    module = LoopPrograms(seed).module()
    given = arguments(module, seed)
    want = run(module, given)
    want = want if isinstance(want, tuple) else (want,)
    choose(module.entry, random.Random(seed), (0.1, 0.3, 0.9)[seed % 3], names)
    compiled = MultiDeviceBackend().compile(module, CompileOptions(names[0]))
    for got, expected in zip([*compiled(given), *compiled(given)], [*want, *want], strict=True):
        if not isinstance(got, RemoteData):
            here += 1
            np.testing.assert_array_equal(got, expected, err_msg=f"seed {seed}")
assert here
"""


def test_random_programs_on_random_devices(tmp_path):
    support = Path(__file__).parents[2] / "support"
    options = ["--devices-per-process", "2"]
    done = launched(tmp_path, RANDOM, str(support), processes=2, options=options)
    assert done.returncode == 0, done.stderr


WHERE = """
def shown(call):
    try:
        print(call())
    except hl.errors.HloomError as error:
        print(type(error).__name__, str(error).splitlines()[0])


def placed(x):
    with hl.device(SECOND):
        return hnp.sum(x + 1)


@hl.jit
def both(x):
    y = x * 2
    with hl.device(SECOND):
        y = hnp.sin(y)
    with hl.device(FIRST):
        return y + 1, y


def eager():
    with hl.device(DEVICES[1 - me]):
        return hnp.ones(3) + 1


x = hl.device_put(np.arange(4.0), SECOND)
print(x.is_fully_addressable, len(x.addressable_shards), x.devices())
shown(lambda: np.asarray(x).tolist())
shown(lambda: float(hnp.sum(x)))
shown(eager)
y = hl.jit(lambda a: a * 2, donate_argnums=0)(x)
print(x.is_deleted(), y)
print(multihost_utils.process_allgather(hl.device_put(y, FIRST)).tolist())
print(multihost_utils.process_allgather(hl.jit(hl.grad(placed))(np.ones(2))).tolist())
hl.config.log_device_placement = True
big = np.ones(3_000_000, np.float32)
first, second = both(big)
assert (second if me else first).shape == big.shape
"""


def test_results_are_where_they_were_computed(tmp_path):
    done = launched(tmp_path, SETUP + WHERE, processes=2)
    assert done.returncode == 0, done.stderr
    name = "/job:worker/task:{}/cpu:0"
    away = name.format(1)
    assert lines(done.stdout, 0) == [
        f"False 0 {{Device({away})}}",
        f"ArgumentError the elements of f64[4] on {away}",
        f"ArgumentError the elements of f64[4] on {away}",
        f"DeviceError an eager operation (add) on {away}",
        f"True Array(f64[4] on {away}, a device of another process)",
        "[0.0, 2.0, 4.0, 6.0]",
        "[1.0, 1.0]",
    ]
    assert lines(done.stdout, 1) == [
        "True 1 {Device(cpu:0)}",
        "[0.0, 1.0, 2.0, 3.0]",
        "6.0",
        f"DeviceError an eager operation (add) on {name.format(0)}",
        "True [0. 2. 4. 6.]",
        "[0.0, 2.0, 4.0, 6.0]",
        "[1.0, 1.0]",
    ]
    for process in range(2):
        assert any(f"(sine) {away}" in line for line in lines(done.stderr, process)), done.stderr


def test_a_process_that_does_not_call_is_named_with_the_line(tmp_path):
    body = """
hl.config.distributed_timeout = 1.0


@hl.jit
def both(x):
    with hl.device(SECOND):
        y = hnp.sin(x)
    with hl.device(FIRST):
        return y + 1


both(X)
if me == 1:
    time.sleep(60)
both(X)
"""
    done = launched(tmp_path, SETUP + body, processes=2)
    assert done.returncode == 1
    text = "\n".join(lines(done.stderr, 0))
    assert "f32[32,64] from /job:worker/task:1/cpu:0 to /job:worker/task:0/cpu:0" in text
    assert "nothing came from process 1 within the time that hl.config.distributed_timeout allows" in text
    assert "y = hnp.sin(x)" in text


def test_calls_in_another_order_are_found(tmp_path):
    body = """
hl.config.distributed_timeout = 2.0 + 30 * me  # process 0 gives up first: it has a message of another program


def made(name, f):
    def both(x):
        with hl.device(SECOND):
            y = f(x)
        with hl.device(FIRST):
            z = y @ y.T
        with hl.device(SECOND):
            return hnp.tanh(z)
    both.__name__ = name
    return hl.jit(both)


sine, cosine = made("sine", hnp.sin), made("cosine", hnp.cos)
sine(X), cosine(X)
for f in (sine, cosine) if me else (cosine, sine):
    f(X)
"""
    done = launched(tmp_path, SETUP + body, processes=2)
    assert done.returncode == 1
    assert "; it is at 'sine'" in "\n".join(lines(done.stderr, 0)), done.stderr
