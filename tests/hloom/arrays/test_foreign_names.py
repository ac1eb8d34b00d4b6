"""Names that arrays have in other libraries, and formats of arrays and traced values: what takes their place."""

from __future__ import annotations

import copy
import re

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.arrays.arguments import ARGUMENTS, nearest_argument
from hloom.errors import ArgumentError, ForeignAttributeError, TracerConversionError
from hloom.numpy.foreign import OF_ARRAYS

pytestmark = pytest.mark.quick

X = hnp.ones((2, 3))
NAMES = ["numpy", "cuda", "detach", "permute", "unsqueeze", "float", "exp", "add_", "backward", "masked_fill", "values"]


@pytest.mark.parametrize("name", NAMES)
def test_arrays_say_what_to_write_instead(name):
    with pytest.raises(ForeignAttributeError) as caught:
        getattr(X, name)()
    error = caught.value
    assert f"'{name}' of Array f32[2,3]" in error.asked and error.found and error.repair == OF_ARRAYS[name]
    assert error.source.file == __file__
    with pytest.raises(ForeignAttributeError, match="Tracer f32"):
        hl.jit(lambda x: getattr(x, name)())(X)


def test_a_traced_value_is_not_told_to_become_numpy():
    with pytest.raises(ForeignAttributeError, match=r"hl\.debug\.print"):
        hl.jit(lambda x: x.numpy())(X)


def test_nothing_else_changes():
    """Libraries ask arrays what they have."""
    for name in OF_ARRAYS:
        assert hasattr(X, name) == (name in ("clone", "flat", "tobytes")) == (name in dir(X)), name
    assert getattr(X, "numpy", 5) == 5 and not hasattr(type(X), "numpy")
    with pytest.raises(AttributeError, match="'Array' object has no attribute 'nonsense'"):
        _ = X.nonsense
    np.testing.assert_array_equal(np.asarray(copy.deepcopy(X)), np.ones((2, 3)))


def test_every_repair_is_one_that_exists():
    for name, text in OF_ARRAYS.items():
        for package, functions in (("hnp", hnp), ("lax", lax), ("nn", hl.nn), ("hl", hl)):
            for part in text.split(f"{package}.")[1:]:
                found = functions
                for word in part.split("(")[0].split(" ")[0].split("."):
                    found = getattr(found, word)
                assert callable(found), (name, text)
        for word in re.findall(r"\bx\.(\w+)", text):
            assert hasattr(X, word), (name, text)


def test_names_of_arguments():
    assert nearest_argument("dim", ["a", "axis", "keepdims"]) == "axis"
    assert nearest_argument("betas", ["b1", "b2"]) == "b1, b2" and nearest_argument("betas", ["b1"]) == ""
    assert nearest_argument("bias", ["use_bias", "dtype"]) == "use_bias"
    assert nearest_argument("keepdim", ["keepdims"]) == "keepdims" and nearest_argument("zzz", ["axis"]) == ""
    assert all(meant for meant in ARGUMENTS.values())


def test_a_traced_number_has_no_format():
    for function in (lambda x: f"{x:.3f}", lambda x: f"{x.sum():>10}", lambda x: f"{x:d}"):
        with pytest.raises(TracerConversionError) as caught:
            hl.jit(function)(X)
        assert caught.value.source.file == __file__ and caught.value.repair
    with pytest.raises(TracerConversionError, match=r"hl\.debug\.print\('\{x:\.3f\}', x=x\)"):
        hl.jit(lambda x: f"{x:.3f}")(1.5)
    with pytest.raises(TracerConversionError, match=r"round\(\) of a traced value"):
        hl.jit(lambda x: round(x))(1.5)
    said = []
    hl.jit(lambda x: said.append(f"{x} {x!r}") or round(x, 1))(1.5)
    assert said == ["Tracer(f32[] in 'lambda') Tracer(f32[] in 'lambda')"]
    hl.grad(lambda x: said.append(f"{x:.3f} {round(x)}") or x)(1.75)  # its value is known
    assert said[1] == "1.750 2"
    with pytest.raises(ArgumentError, match="6 elements"):
        hl.grad(lambda x: f"{x:.3f}")(X)


def test_formats_of_arrays():
    assert f"{X[0, 0]:.2f} {X[0]:>12} {hnp.asarray(3):04d}" == "1.00   [1. 1. 1.] 0003"
    with pytest.raises(ArgumentError, match=r"(?s)formatted by '\.2f'.*f32\[2,3\], which has 6 elements") as caught:
        f"{X:.2f}"
    assert caught.value.source.file == __file__
