"""eval_shape and ShapeDtypeStruct."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import ArgumentError, DTypeError, TracerBoolError
from hloom.ir.ops.programs.structure import CUSTOM_CALLS
from hloom.tracing.trace import bind

pytestmark = pytest.mark.quick


def test_eval_shape():
    struct = hl.ShapeDtypeStruct((2, 3), "bf16")
    assert (struct.shape, struct.dtype.name, struct.ndim, struct.size) == ((2, 3), "bfloat16", 2, 6)
    found = hl.eval_shape(
        lambda x, y, *, n: {"z": x @ y, "w": (x.sum() * n, None)}, struct, hl.ShapeDtypeStruct((3, 4), "bf16"), n=2
    )
    assert found["z"] == hl.ShapeDtypeStruct((2, 4), "bf16")
    assert found["w"][0] == hl.ShapeDtypeStruct((), "bf16") and found["w"][1] is None
    found = hl.eval_shape(hl.grad(lambda x: hnp.sum(x * x)), hl.ShapeDtypeStruct((10**6, 10**6), "f32"))
    assert found.shape == (10**6, 10**6)
    assert hl.eval_shape(lambda x: x, 1.0) == hl.ShapeDtypeStruct((), "f32", weak=True)
    assert len({struct, hl.ShapeDtypeStruct([2, 3], np.dtype("float32")), hl.ShapeDtypeStruct((2, 3), "bf16")}) == 2


def test_eval_shape_computes_nothing(monkeypatch):
    monkeypatch.setitem(CUSTOM_CALLS, "never", lambda a: pytest.fail("computed"))
    found = hl.eval_shape(
        lambda x: bind("custom-call", x, shape=x._shape, custom_call_target="never"), np.ones(3, np.float32)
    )
    assert found.shape == (3,)


def test_eval_shape_errors():
    with pytest.raises(TracerBoolError):
        hl.eval_shape(lambda x: x if x > 0 else -x, 1.0)
    with pytest.raises(ArgumentError, match="str"):
        hl.eval_shape(hnp.sum, "text")
    with pytest.raises(ArgumentError, match="3"):
        hl.ShapeDtypeStruct(3, "f32")
    with pytest.raises(ArgumentError, match="-1"):
        hl.ShapeDtypeStruct((-1,), "f32")
    with pytest.raises(DTypeError):
        hl.ShapeDtypeStruct((1,), "float33")
