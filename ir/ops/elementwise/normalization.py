"""batch-norm-training, batch-norm-inference and batch-norm-grad (Ioffe and Szegedy, 2015), as defined by HLO.

A pass expands them into sums and element-wise ops (`expanded`), so the rest of the compiler need not support them.
"""

from __future__ import annotations

import math

import numpy as np

from hloom.ir.build import Builder, Value, tuple_elements
from hloom.ir.errors import AttributeValueError, DTypeError, ShapeError
from hloom.ir.op_table import No, op
from hloom.ir.ops.rules import require_count, require_kind
from hloom.ir.spmd.factors import FactorRule, RuleBuilder
from hloom.ir.types import DTYPES, NARROW_FLOATS, Shape, TupleShape

OPCODES = ("batch-norm-training", "batch-norm-inference", "batch-norm-grad")
EXPANDED = No("a pass expands it into sums and element-wise ops")


def _check(name: str, operands, attributes, count: int, vectors) -> Shape:
    """The shape of a feature vector; checks the operands, of which those at `vectors` are feature vectors."""
    require_count(name, operands, count)
    for operand in operands:
        require_kind(name, operand, ("float",))
    operand = operands[0]
    feature = attributes.get("feature_index", -1)
    if not 0 <= feature < operand.rank:
        raise AttributeValueError(
            f"{name} takes a feature_index between 0 and {operand.rank - 1}",
            f"{feature} for {operand!r}",
            "name the dimension that holds the features",
        )
    if any(o.dtype != operand.dtype for o in operands):
        raise DTypeError(
            f"{name} takes operands of one dtype", ", ".join(map(repr, operands)), "convert them with astype"
        )
    features = operand.with_dims((operand.dims[feature],))
    for k in vectors:
        if operands[k] is not features:
            raise ShapeError(
                f"{name} takes vectors with an element for each of the {features.dims[0]} features",
                f"operand {k} is {operands[k]!r}, the features of {operand!r} are dimension {feature}",
                "reshape it to a vector, or check feature_index",
            )
    return features


def _training_infer(operands, attributes, shape):
    features = _check("batch-norm-training", operands, attributes, 3, (1, 2))
    return TupleShape([operands[0], features, features])


def _inference_infer(operands, attributes, shape):
    _check("batch-norm-inference", operands, attributes, 5, (1, 2, 3, 4))
    return operands[0]


def _grad_infer(operands, attributes, shape):
    features = _check("batch-norm-grad", operands, attributes, 5, (1, 2, 3))
    if operands[4] is not operands[0]:
        raise ShapeError(
            "batch-norm-grad takes a gradient of the operand's shape",
            f"operand {operands[0]!r}, gradient {operands[4]!r}",
            "pass the gradient of the normalized array",
        )
    return TupleShape([operands[0], features, features])


# --- references ---------------------------------------------------------------------------------------------------


def _wide(*arrays):
    dtype = arrays[0].dtype
    return [a.astype(DTYPES["f64"]) if dtype in NARROW_FLOATS or dtype == DTYPES["f32"] else a for a in arrays]


def _others(rank: int, feature: int) -> tuple[int, ...]:
    return tuple(k for k in range(rank) if k != feature)


def _along(vector, rank: int, feature: int):
    return vector.reshape([-1 if k == feature else 1 for k in range(rank)])


def _rounded(values, shapes):
    return tuple(np.asarray(v).astype(s.dtype) for v, s in zip(values, shapes, strict=True))


def _training_reference(operand, scale, offset, shape, epsilon, feature_index):
    rank, axes = operand.ndim, _others(operand.ndim, feature_index)
    x, s, o = _wide(operand, scale, offset)
    with np.errstate(all="ignore"):
        count = max(math.prod(x.shape[k] for k in axes), 1)
        mean = x.sum(axis=axes) / count
        centred = x - _along(mean, rank, feature_index)
        variance = np.square(centred).sum(axis=axes) / count
        factor = s / np.sqrt(variance + epsilon)
        result = centred * _along(factor, rank, feature_index) + _along(o, rank, feature_index)
        return _rounded((result, mean, variance), shape.elements)


def _inference_reference(operand, scale, offset, mean, variance, shape, epsilon, feature_index):
    rank = operand.ndim
    x, s, o, m, v = _wide(operand, scale, offset, mean, variance)
    with np.errstate(all="ignore"):
        factor = _along(s / np.sqrt(v + epsilon), rank, feature_index)
        result = (x - _along(m, rank, feature_index)) * factor + _along(o, rank, feature_index)
        return result.astype(shape.dtype)


def _grad_reference(operand, scale, mean, variance, grad_output, shape, epsilon, feature_index):
    rank, axes = operand.ndim, _others(operand.ndim, feature_index)
    x, s, m, v, g = _wide(operand, scale, mean, variance, grad_output)
    with np.errstate(all="ignore"):
        count = max(math.prod(x.shape[k] for k in axes), 1)
        centred = x - _along(m, rank, feature_index)
        inverse = 1 / np.sqrt(v + epsilon)
        by_offset = g.sum(axis=axes)
        by_scale = (g * centred).sum(axis=axes) * inverse
        share = _along(by_scale * inverse, rank, feature_index) * centred
        by_operand = _along(s * inverse / count, rank, feature_index) * (
            count * g - share - _along(by_offset, rank, feature_index)
        )
        return _rounded((by_operand, by_scale, by_offset), shape.elements)


# --- expansion ----------------------------------------------------------------------------------------------------


def expanded(builder, instruction, operands) -> list:
    """Emits a batch normalization of `operands` (instructions) as ordinary ops; returns its results.

    Narrow floats are computed in float32. The variance is the mean of squared distances, not the difference of means of
    squares, which loses all digits for a large mean.
    """
    values = [Value(builder, o) for o in operands]
    narrow = values[0].dtype
    if narrow in NARROW_FLOATS:
        values = [v.convert("f32") for v in values]
    dims, feature = values[0].dims, instruction["feature_index"]
    axes = _others(len(dims), feature)
    count = float(max(math.prod(dims[k] for k in axes), 1))
    epsilon = instruction["epsilon"]

    def along(vector):
        return vector.broadcast(dims, (feature,))

    x, scale = values[:2]
    if instruction.opcode == "batch-norm-training":
        mean = x.sum(axes) / count
        centred = x - along(mean)
        variance = (centred * centred).sum(axes) / count
        factor = scale / (variance + epsilon).op("sqrt")
        results = [centred * along(factor) + along(values[2]), mean, variance]
    elif instruction.opcode == "batch-norm-inference":
        offset, mean, variance = values[2:]
        factor = scale / (variance + epsilon).op("sqrt")
        results = [(x - along(mean)) * along(factor) + along(offset)]
    else:
        mean, variance, g = values[2:]
        centred = x - along(mean)
        inverse = 1 / (variance + epsilon).op("sqrt")
        by_offset = g.sum(axes)
        by_scale = (g * centred).sum(axes) * inverse
        share = along(by_scale * inverse) * centred
        by_operand = along(scale * inverse / count) * (g * count - share - along(by_offset))
        results = [by_operand, by_scale, by_offset]
    return [r.convert(narrow).instruction for r in results]


def _jvp(build, instruction, primals, tangents):
    builder = build.builder
    mark = len(builder.instructions)
    results = expanded(builder, instruction, [p.instruction for p in primals])
    for made in builder.instructions[mark:]:
        build.push(made)
    found = [build.tangents.get(r) for r in results]
    return found if isinstance(instruction.shape, TupleShape) else found[0]


def _batch(build, instruction, operands, mapped):
    one = Builder("normalization")
    results = expanded(one, instruction, [one.parameter(o.shape) for o in instruction.operands])
    made, _ = build.computation(one.finish(one.tuple(results)), mapped, [True] * len(results))
    root = build.builder.inline(made, [v.instruction for v in operands])
    values = [Value(build.builder, e) for e in tuple_elements(build.builder, root)]
    return values if isinstance(instruction.shape, TupleShape) else values[0]


def _factors(instruction) -> FactorRule:
    """The features pass through; moments (except in inference) reduce over all other dimensions."""
    rule = RuleBuilder(instruction)
    feature = instruction["feature_index"]
    kinds = () if instruction.opcode == "batch-norm-inference" else ("whole",)
    for d in range(len(rule.operand_dims[0])):
        where: list[dict[int, int]] = []
        for arrays in (rule.operand_dims, rule.result_dims):
            full = {k: d for k, dims in enumerate(arrays) if len(dims) == len(rule.operand_dims[0])}
            vectors = {k: 0 for k, dims in enumerate(arrays) if len(dims) == 1} if d == feature else {}
            where.append({**full, **vectors})
        rule.add(where[0], where[1], *(() if d == feature else kinds))
    return rule.finish()


for _name, _infer, _reference in (
    ("batch-norm-training", _training_infer, _training_reference),
    ("batch-norm-inference", _inference_infer, _inference_reference),
    ("batch-norm-grad", _grad_infer, _grad_reference),
):
    op(
        _name,
        family="library",
        dialects="hlo",
        infer=_infer,
        reference=_reference,
        code=EXPANDED,
        jvp=_jvp,
        transpose=No("its tangent is made of sums and element-wise ops"),
        batch=_batch,
        factors=_factors,
        attributes={"epsilon": "float", "feature_index": "int"},
        flops=8,
    )
