"""ONNX models as functions: `hl.onnx.load(path)`.

    model = hl.onnx.load("model.onnx")
    model.inputs                     # names, dtypes, shapes
    y = model(x)                     # compiled by the first call for each set of shapes
    y = model(input_ids=i, mask=m)   # by name

The files are read by the package `onnx` (`pip install 'hloom[onnx]'`).
"""

from hloom.onnx.foreign import rule
from hloom.onnx.graph import Port
from hloom.onnx.loading import load, supported_ops
from hloom.onnx.model import Model, Outputs

__all__ = ["Model", "Outputs", "Port", "load", "rule", "supported_ops"]
__dir__ = __all__.copy
