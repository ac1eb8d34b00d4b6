"""Normal and exponential numbers of NumPy's generators: the tables entry by entry, the bits, the state afterwards."""

from __future__ import annotations

import ctypes
import importlib
import math
import threading

import numpy as np
import pytest

import hloom as hl
from hloom.errors import ShapeError, UnsupportedError

njit = hl.njit  # before the import of a module of the package of this name
ziggurat = importlib.import_module("hloom.njit.generators.ziggurat")

_KINDS = (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_double)
_U64, _U32, _F64 = (ctypes.CFUNCTYPE(kind, ctypes.c_void_p) for kind in _KINDS)


class _Functions(ctypes.Structure):
    """NumPy's bitgen_t."""

    _fields_ = (
        ("state", ctypes.c_void_p), ("next_uint64", _U64), ("next_uint32", _U32), ("next_double", _F64),
        ("next_raw", _U64),
    )  # fmt: skip


class Chosen:
    """A bit generator that gives chosen numbers."""

    def __init__(self):
        self.words, self.doubles, self.taken = [], [], ""
        self.functions = _Functions(
            None, _U64(self._word), _U32(lambda _: 0), _F64(self._double), _U64(self._word)
        )  # fmt: skip
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self.capsule = make(ctypes.addressof(self.functions), b"BitGenerator", None)
        self.lock = threading.Lock()

    def _word(self, _):
        self.taken += "w"
        return self.words.pop(0)

    def _double(self, _):
        self.taken += "d"
        return self.doubles.pop(0)


class Asked:
    """What NumPy's generator does with chosen bits. bits: of a place in a layer."""

    def __init__(self, name: str):
        self.chosen, self.bits = Chosen(), 52 if name == "standard_normal" else 53
        self.draw = getattr(np.random.Generator(self.chosen), name)

    def word(self, layer: int, place: int) -> int:
        return place << 9 | layer if self.bits == 52 else place << 11 | layer << 3

    def __call__(self, layer: int, place: int, *doubles: float) -> tuple[float, str]:
        """(the number, what it took) of a place in a layer; further places are accepted."""
        self.chosen.words = [self.word(layer, place), *[self.word(2, 0)] * 2]
        self.chosen.doubles, self.chosen.taken = [*doubles, 0.0, 0.0, 0.0], ""
        return self.draw(), self.chosen.taken


def last(holds, low: int, high: int) -> int:
    """The last integer for which something holds, which does for low and not for high."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def threshold(holds) -> int:
    """The last number from 0 to 1 for which something holds, as its bits."""
    return last(lambda k: holds(np.int64(k).view(np.float64).item()), 0, np.float64(1).view(np.int64).item())


CASES = {
    "standard_normal": (ziggurat.NORMAL, lambda x: math.exp(-0.5 * x * x), ziggurat.NORMAL_EDGE),
    "standard_exponential": (ziggurat.EXPONENTIAL, lambda x: math.exp(-x), ziggurat.EXPONENTIAL_EDGE),
}


@pytest.mark.parametrize("name", CASES)
def test_widths_and_the_places_inside_are_numpys(name):
    layers, _, edge = CASES[name]
    asked = Asked(name)
    for layer in range(256):
        width, _ = asked(layer, 1, *[0.0, 0.5] if layer == 0 and name == "standard_normal" else [0.0])
        assert width == layers.widths[layer] or layer == 1  # of layer 1 no place is inside
        inside = int(layers.inside[layer])
        assert layer == 1 or asked(layer, inside - 1)[1] == "w"
        assert asked(layer, inside, 0.5, 0.999)[1] != "w"
    assert asked(1, 1, 0.0)[0] == layers.widths[1]
    beyond = asked(0, int(layers.inside[0]), 0.0, 0.5)[0]
    assert abs(beyond) == edge


@pytest.mark.parametrize("name", CASES)
def test_heights_are_numpys(name):
    """The number from which a place is refused is the height's, to a thousandth of its last place."""
    layers, density, _ = CASES[name]
    asked = Asked(name)

    def accepts(layer: int, place: int, height: float) -> bool:
        low = layers.heights[layer]
        return (layers.heights[layer - 1] - low) * height + low < density(place * layers.widths[layer])

    for layer in range(1, 256):
        for place in (2**asked.bits - 1 - 5, (2**asked.bits + int(layers.inside[layer])) // 2):
            numpys = threshold(lambda d: asked(layer, place, d)[1] == "wd")  # noqa: B023
            ours = threshold(lambda d: accepts(layer, place, d))  # noqa: B023
            assert numpys == ours, layer


def test_the_layers_end_at_the_mode():
    for layers, mode in ((ziggurat.NORMAL, 2.0**52), (ziggurat.EXPONENTIAL, 2.0**53)):
        x, y = layers.widths.values * mode, layers.heights.values
        areas = x[2:] * (y[1:-1] - y[2:])
        np.testing.assert_allclose(areas, areas[0], rtol=1e-11)
        np.testing.assert_allclose(x[1] * (1 - y[1]), areas[0], rtol=1e-11)


@njit
def arrays(rng, n):
    return (
        rng.standard_normal(n), rng.standard_exponential(size=n), rng.normal(3.0, 0.25, (n, 2)),
        rng.exponential(2.5, (2, n)), rng.standard_normal((n, 1)), rng.integers(9), rng.normal(size=n),
        rng.normal(-1.0),
    )  # fmt: skip


@njit
def singles(rng):
    return rng.standard_normal(), rng.standard_exponential(), rng.normal(1.5, 2.0), rng.exponential(0.125), rng.random()


@njit
def walk(rng, steps, width):
    """Draws in a loop, of which the parameters are computed."""
    at, time = np.zeros(steps), 0.0
    for k in range(1, steps):
        at[k] = at[k - 1] + rng.normal(0.0, width * (1 + k % 3))
        time += rng.exponential(width) if at[k] > 0 else rng.standard_exponential()
    return at, time, rng.standard_normal(3)


@njit
def scaled(rng, width):
    return rng.normal(0.0, width) + rng.exponential(width)


def check(compiled, *args, seeds=range(5)):
    for seed in seeds:
        mine, numpys = np.random.default_rng(seed), np.random.default_rng(seed)
        for _ in range(2):
            found = hl.tree.leaves(compiled(mine, *args))
            wanted = hl.tree.leaves(compiled.__wrapped__(numpys, *args))
            for a, b in zip(found, wanted, strict=True):
                assert np.asarray(a).dtype == np.asarray(b).dtype
                np.testing.assert_array_equal(np.asarray(a), b)
            assert mine.bit_generator.state == numpys.bit_generator.state


def test_numbers_and_arrays():
    check(singles)
    for n in (0, 1, 1000):
        check(arrays, n)


def test_draws_in_loops():
    check(walk, 3000, 0.5)


@njit
def many_normals(rng):
    return rng.standard_normal(2_000_000)


@njit
def many_exponentials(rng):
    return rng.standard_exponential(2_000_000)


@pytest.mark.parametrize("draw", [many_normals, many_exponentials])
def test_two_million_draws(draw):
    """Some 500 normal numbers of these are of the tail, and 900 exponential ones."""
    mine, numpys = np.random.default_rng(7), np.random.default_rng(7)
    np.testing.assert_array_equal(np.asarray(draw(mine)), draw.__wrapped__(numpys))
    assert mine.bit_generator.state == numpys.bit_generator.state


@pytest.mark.parametrize("width", [-1.0, -0.0])
def test_a_negative_scale(width):
    with pytest.raises(ShapeError, match="the sign of normal's scale is -1"):
        scaled(np.random.default_rng(0), width)
    with pytest.raises(ValueError, match="scale < 0"):
        njit(lambda rng: rng.exponential(-2.0))(np.random.default_rng(0))


def test_refused_by_name():
    for draw, text in [
        (lambda rng: rng.standard_normal(3, np.float32), "standard_normal of float32"),
        (lambda rng: rng.standard_exponential(3, method="inv"), "method 'inv'"),
        (lambda rng: rng.gamma(2.0), "a generator's gamma"),
    ]:
        with pytest.raises(UnsupportedError, match=text):
            njit(draw)(np.random.default_rng(0))
