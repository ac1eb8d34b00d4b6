"""Random bits: the generators against their authors' vectors, rng-bit-generator against XLA, eager and compiled."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import AttributeValueError, DTypeError, ShapeError
from hloom.ir.ops import OPS
from hloom.ir.ops.elementwise.random import philox4x32, split_dimension
from hloom.ir.types import Shape, TupleShape
from hloom.tracing.trace import bind

# Known answers of the Random123 library, threefry2x32 with 20 rounds: key, counter, result.
THREEFRY = [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("key, counter, result", THREEFRY)
def test_threefry_gives_the_known_answers(key, counter, result, compiled):
    words = [hnp.asarray(np.array([w], np.uint32)) for w in (*key, *counter)]

    def both(*words):
        return bind("threefry2x32-first", *words), bind("threefry2x32-second", *words)

    found = (hl.jit(both) if compiled else both)(*words)
    assert tuple(int(w[0]) for w in found) == result


def test_philox_gives_the_known_answer():
    low, high = (int(v[0]) for v in philox4x32(*(np.zeros(1, np.uint64) for _ in range(3))))
    words = [low & 0xFFFFFFFF, low >> 32, high & 0xFFFFFFFF, high >> 32]
    assert words == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def generate(key, dims, dtype, algorithm):
    shape = TupleShape([Shape("u64", key.shape), Shape(dtype, dims)])
    return tuple(bind("rng-bit-generator", key, shape=shape, algorithm=algorithm))


STATES = [
    ("rng_three_fry", [0x123456789ABCDEF0, 0x123456789ABCDF3D]),
    ("rng_three_fry", [5, 2**64 - 3]),
    ("rng_philox", [0x123456789ABCDEF0, 0x123456789ABCDF3D]),
    ("rng_philox", [1, 2**64 - 2, 7]),
    ("rng_default", [1, 2**64 - 2, 2**64 - 1]),
]


@pytest.mark.parametrize("algorithm, state", STATES)
@pytest.mark.parametrize("dtype", ["u8", "u16", "u32", "u64"])
def test_bits_are_those_of_xla(algorithm, state, dtype):
    jaxlib = pytest.importorskip("jaxlib")
    jax = pytest.importorskip("jax")
    from jax._src.lib import xla_client

    device = jax.devices("cpu")[0]
    key = np.array(state, np.uint64)
    dims = (5, 6, 3) if dtype in ("u8", "u64") else (3, 5)
    layout = ",".join(str(k) for k in reversed(range(len(dims))))
    text = (
        f"HloModule m\nENTRY e {{ k = u64[{len(state)}]{{0}} parameter(0)\n ROOT r = (u64[{len(state)}]{{0}}, "
        f"{dtype}[{','.join(map(str, dims))}]{{{layout}}}) rng-bit-generator(k), algorithm={algorithm}\n}}"
    )
    module = jaxlib._hlo.hlo_module_from_text(text)
    computation = jaxlib._hlo.XlaComputation(module.as_serialized_hlo_module_proto())
    program = device.client.compile_and_load(
        xla_client._xla.mlir.xla_computation_to_mlir_module(computation),
        xla_client.DeviceList((device,)),
        xla_client.CompileOptions(),
    )
    with jax.enable_x64(True):
        want = [np.asarray(v) for v in program.execute([jax.device_put(key, device)])]
    for run in (generate, hl.jit(generate, static_argnums=(1, 2, 3))):
        found = run(hnp.asarray(key), dims, dtype, algorithm)
        for a, b in zip(found, want, strict=True):
            np.testing.assert_array_equal(np.asarray(a), b)


def test_many_problems_are_each_one_problem():
    keys = np.arange(6, dtype=np.uint64).reshape(3, 2) * np.uint64(2**40 + 3)
    for algorithm in ("rng_three_fry", "rng_philox"):
        states, bits = hl.vmap(lambda k, a=algorithm: generate(k, (2, 5), "u32", a))(hnp.asarray(keys))
        for k in range(3):
            state, own = generate(hnp.asarray(keys[k]), (2, 5), "u32", algorithm)
            np.testing.assert_array_equal(np.asarray(states)[k], np.asarray(state))
            np.testing.assert_array_equal(np.asarray(bits)[k], np.asarray(own))


def test_the_state_goes_on():
    state, first = lax.rng_bit_generator(hnp.asarray([1, 2, 3, 4], "uint32"), (6,), algorithm=lax.RandomAlgorithm(1))
    _, both = lax.rng_bit_generator(hnp.asarray([1, 2, 3, 4], "uint32"), (12,), algorithm=lax.RandomAlgorithm(1))
    _, second = lax.rng_bit_generator(state, (6,), algorithm=lax.RandomAlgorithm.RNG_THREE_FRY)
    np.testing.assert_array_equal(np.concatenate([first, second]), np.asarray(both))


def test_words_lie_along_the_first_even_dimension():
    assert [split_dimension(d) for d in ((3, 4, 6), (3, 5), (5, 3), (7, 7), (2,))] == [1, 1, 0, 0, 0]


def test_wrong_states_are_errors():
    infer = OPS["rng-bit-generator"].infer
    state = Shape("u64", (2,))
    with pytest.raises(AttributeValueError, match="no such algorithm"):
        infer([state], {"algorithm": "rng_mersenne"}, TupleShape([state, Shape("u32", (2,))]))
    with pytest.raises(ShapeError, match="takes a state"):
        infer([Shape("u64", (3,))], {"algorithm": "rng_three_fry"}, TupleShape([state, Shape("u32", (2,))]))
    with pytest.raises(DTypeError, match="makes u8"):
        infer([state], {}, TupleShape([state, Shape("f32", (2,))]))
    with pytest.raises(ShapeError, match="takes a key of shape"):
        lax.rng_bit_generator(hnp.zeros((3,), "uint32"), (2,))
