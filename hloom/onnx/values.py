"""Types of the values that nodes compute: of ONNX, and in messages."""

from __future__ import annotations

import numpy as np

from hloom.ir.types import HLO_NAME
from hloom.onnx.reader import package


def described(value) -> str:
    """A value in messages: f32[2,3]."""
    if isinstance(value, list):
        return f"[{', '.join(map(described, value[:3]))}{', …' * (len(value) > 3)}]"
    if value is None:
        return "none"
    if isinstance(value, dict):
        return f"a map of {len(value)}"
    dtype = np.dtype(value.dtype)
    sizes = "" if value.shape is None else ",".join(map(str, value.shape))
    return f"{HLO_NAME.get(dtype, 'string')}[{sizes}]"


def type_of(value):
    """The TypeProto of a value."""
    onnx = package()
    if value is None or isinstance(value, dict):
        return onnx.TypeProto()
    if isinstance(value, list):
        inner = type_of(value[0]) if value else onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
        return onnx.helper.make_sequence_type_proto(inner)
    return onnx.helper.make_tensor_type_proto(element_type(value.dtype), value.shape)


def element_type(dtype) -> int:
    """The number of ONNX's type of a dtype."""
    onnx = package()
    dtype = np.dtype(dtype)
    if dtype.kind in "OSU":
        return onnx.TensorProto.STRING
    return onnx.helper.np_dtype_to_tensor_dtype(dtype)
