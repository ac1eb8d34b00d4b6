"""The rules of ONNX's ops by subject. Importing a module puts its entries into the table."""

from hloom.onnx.rules import (
    control,
    convolutions,
    images,
    indexing,
    integers,
    learned,
    math,
    neural,
    normalization,
    packed_weights,
    pooling,
    quantization,
    recurrent,
    reductions,
    sequences,
    shapes,
    signal,
    text,
)
