"""The allowed values of enumerated attributes of ONNX ops, from the texts of ONNX's schemas.

ONNX's schemas list them in prose only. One table for all ops, including those without a rule; a test compares it with
the schemas. Each entry applies to all versions of its op: a value added by a newer opset means the same in older ones.
"""

from __future__ import annotations

from typing import Any

from hloom.onnx.graph import Node
from hloom.onnx.table import ML, TRAINING

_AUTO_PAD = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
_DIRECTION = ("forward", "reverse", "bidirectional")
_REDUCTION = ("none", "add", "mul", "max", "min")
_LOSS = ("none", "sum", "mean")
_ROUND = ("up", "down", "nearest")
_POST = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_KERNEL = ("LINEAR", "POLY", "RBF", "SIGMOID")
_NODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "LEAF")

CHOICES: dict[tuple[str, str, str], tuple] = {
    **{("", op, "auto_pad"): _AUTO_PAD for op in ("AveragePool", "Conv", "ConvInteger", "ConvTranspose", "LpPool",
                                                  "MaxPool", "QLinearConv")},
    **{("", op, "direction"): _DIRECTION for op in ("GRU", "LSTM", "RNN")},
    **{("", op, "layout"): (0, 1) for op in ("GRU", "LSTM", "RNN")},
    **{("", op, "reduction"): _REDUCTION for op in ("ScatterElements", "ScatterND")},
    **{("", op, "reduction"): _LOSS for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")},
    **{("", op, "round_mode"): _ROUND for op in ("Cast", "CastLike")},
    **{("", op, "mode"): ("DCR", "CRD") for op in ("DepthToSpace", "SpaceToDepth")},
    ("", "BitShift", "direction"): ("RIGHT", "LEFT"),
    ("", "CausalConvWithState", "activation"): ("silu", "swish", "none"),
    ("", "Gelu", "approximate"): ("none", "tanh"),
    ("", "GridSample", "mode"): ("linear", "nearest", "cubic", "bilinear", "bicubic"),
    ("", "GridSample", "padding_mode"): ("zeros", "border", "reflection"),
    ("", "ImageDecoder", "pixel_format"): ("RGB", "BGR", "Grayscale"),
    ("", "LinearAttention", "update_rule"): ("linear", "gated", "delta", "gated_delta"),
    ("", "NonMaxSuppression", "center_point_box"): (0, 1),
    ("", "Pad", "mode"): ("constant", "reflect", "edge", "wrap"),
    ("", "Resize", "mode"): ("nearest", "linear", "cubic"),
    ("", "Resize", "nearest_mode"): ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    ("", "Resize", "keep_aspect_ratio_policy"): ("stretch", "not_larger", "not_smaller"),
    ("", "Resize", "coordinate_transformation_mode"): ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",
                                                       "align_corners", "asymmetric", "tf_half_pixel_for_nn",
                                                       "tf_crop_and_resize"),
    ("", "RoiAlign", "mode"): ("avg", "max"),
    ("", "RoiAlign", "coordinate_transformation_mode"): ("half_pixel", "output_half_pixel"),
    ("", "StringNormalizer", "case_change_action"): ("LOWER", "UPPER", "NONE"),
    ("", "TensorScatter", "mode"): ("linear", "circular"),
    ("", "TfIdfVectorizer", "mode"): ("TF", "IDF", "TFIDF"),
    ("", "Upsample", "mode"): ("nearest", "linear", "bilinear"),
    **{(ML, op, "post_transform"): _POST for op in ("LinearClassifier", "LinearRegressor", "SVMClassifier",
                                                    "SVMRegressor", "TreeEnsembleClassifier", "TreeEnsembleRegressor")},
    **{(ML, op, "kernel_type"): _KERNEL for op in ("SVMClassifier", "SVMRegressor")},
    **{(ML, op, "nodes_modes"): _NODES for op in ("TreeEnsembleClassifier", "TreeEnsembleRegressor")},
    (ML, "CastMap", "cast_to"): ("TO_FLOAT", "TO_STRING", "TO_INT64"),
    (ML, "CastMap", "map_form"): ("DENSE", "SPARSE"),
    (ML, "Normalizer", "norm"): ("MAX", "L1", "L2"),
    (ML, "TreeEnsemble", "aggregate_function"): (0, 1, 2, 3),
    (ML, "TreeEnsemble", "post_transform"): (0, 1, 2, 3, 4),
    (ML, "TreeEnsembleRegressor", "aggregate_function"): ("AVERAGE", "SUM", "MIN", "MAX"),
    (TRAINING, "Momentum", "mode"): ("standard", "nesterov"),
}  # fmt: skip


def misspelt(node: Node) -> tuple[str, Any, tuple] | None:
    """(attribute, its value, the values it may have) of the first attribute of a node whose value is none of these."""
    for name, value in node.attributes.items():
        allowed = CHOICES.get((node.domain, node.op, name))
        if allowed is None:
            continue
        for part in value if isinstance(value, tuple) else (value,):
            if part not in allowed:
                return name, part, allowed
    return None
