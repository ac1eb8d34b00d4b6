"""Classical models (the domain ai.onnx.ml) and optimizers (ai.onnx.preview.training)."""

from __future__ import annotations

import numpy as np

import hloom.numpy as hnp
from hloom import nn
from hloom.errors import ShapeError, UnsupportedError
from hloom.onnx.evaluate import Call, run_nodes
from hloom.onnx.table import ML, TRAINING, op
from hloom.transforms.gradient import vjp


@op("ArrayFeatureExtractor", domain=ML)
def extract(x, indices):
    made = hnp.take(x, hnp.reshape(indices, -1), axis=-1)
    return hnp.reshape(made, (1, -1)) if x.ndim == 1 else made


@op("Binarizer", domain=ML)
def binarize(x, *, threshold=0.0):
    return (x > threshold).astype(x.dtype)


@op("Scaler", domain=ML)
def scale(x, *, offset=(0.0,), scale=(1.0,)):
    return (x.astype(np.float32) - np.asarray(offset, np.float32)) * np.asarray(scale, np.float32)


@op("Normalizer", domain=ML)
def normalize(x, *, norm="MAX"):
    x = x.astype(np.float32)
    sizes = {
        "MAX": lambda: hnp.max(hnp.abs(x), -1, keepdims=True),
        "L1": lambda: hnp.sum(hnp.abs(x), -1, keepdims=True),
        "L2": lambda: hnp.sqrt(hnp.sum(x * x, -1, keepdims=True)),
    }
    size = sizes[norm]()
    return x / hnp.where(size == 0, np.float32(1), size)


@op("Imputer", domain=ML)
def impute(
    x, *, imputed_value_floats=None, imputed_value_int64s=None, replaced_value_float=0.0, replaced_value_int64=0
):
    if imputed_value_floats is not None:
        missing = hnp.isnan(x) if np.isnan(replaced_value_float) else x == np.float32(replaced_value_float)
        return hnp.where(missing, np.asarray(imputed_value_floats, x.dtype), x)
    return hnp.where(x == replaced_value_int64, np.asarray(imputed_value_int64s, x.dtype), x)


@op("FeatureVectorizer", domain=ML)
def join(*parts, inputdimensions=None):
    flat = [hnp.reshape(p, (p.shape[0], -1)).astype(np.float32) for p in parts]
    sizes = inputdimensions or [p.shape[1] for p in flat]
    return hnp.concatenate([p[:, :size] for p, size in zip(flat, sizes, strict=True)], 1)


@op("LinearRegressor", domain=ML)
def linear(x, *, coefficients, intercepts=None, post_transform="NONE", targets=1):
    y = hnp.matmul(x.astype(np.float32), np.asarray(coefficients, np.float32).reshape(targets, -1).T)
    return _transformed(y if intercepts is None else y + np.asarray(intercepts, np.float32), post_transform)


def _transformed(y, name: str):
    made = {"NONE": lambda: y, "LOGISTIC": lambda: nn.sigmoid(y), "SOFTMAX": lambda: nn.softmax(y, axis=-1)}.get(name)
    if made is None:
        raise UnsupportedError("a model of ai.onnx.ml", f"post_transform={name}", "use NONE, LOGISTIC or SOFTMAX")
    return made()


@op("LabelEncoder", domain=ML, since=2, host=True)
def encode(x, *, default_float=-0.0, default_int64=-1, default_string="_Unused", default_tensor=None, keys_floats=None,
           keys_int64s=None, keys_strings=None, keys_tensor=None, values_floats=None, values_int64s=None,
           values_strings=None, values_tensor=None):  # fmt: skip
    found = [k for k in (keys_floats, keys_int64s, keys_strings, keys_tensor) if k is not None and len(k)]
    keys = np.asarray(found[0]).tolist()
    if values_tensor is not None:
        values, default, kind = values_tensor.tolist(), default_tensor.reshape(-1)[0], values_tensor.dtype
    elif values_floats:
        values, default, kind = list(values_floats), default_float, np.dtype(np.float32)
    elif values_int64s:
        values, default, kind = list(values_int64s), default_int64, np.dtype(np.int64)
    else:
        values, default, kind = list(values_strings), default_string, np.dtype(object)
    table = {_key(k): v for k, v in zip(keys, values, strict=True)}
    return np.array([table.get(_key(v), default) for v in x.ravel().tolist()], kind).reshape(x.shape)


def _key(value):
    """NaN as a key that equals itself."""
    return "nan" if isinstance(value, float) and np.isnan(value) else value


@op("OneHotEncoder", domain=ML, host=True)
def one_hot(x, *, cats_int64s=None, cats_strings=None, zeros=1):
    categories = np.array(cats_int64s or cats_strings, object)
    return (x.astype(object)[..., None] == categories).astype(np.float32)


@op("ZipMap", domain=ML, host=True)
def zip_map(x, *, classlabels_int64s=None, classlabels_strings=None):
    """A map from each class to its score for each row: Python's dicts, which only the end of a model has."""
    labels = classlabels_int64s if classlabels_strings is None else classlabels_strings
    if not labels or x.shape[-1] != len(labels):
        raise ShapeError("ZipMap", f"{len(labels or ())} labels for {x.shape[-1]} columns", "give each column a label")
    return [dict(zip(labels, row, strict=True)) for row in x.reshape(-1, len(labels)).tolist()]


@op("CastMap", domain=ML, host=True)
def cast_map(x, *, cast_to="TO_FLOAT", map_form="DENSE", max_map=1):
    """The values of a map in the order of its keys, or at the indices given by its keys; one row."""
    kind = {"TO_FLOAT": np.float32, "TO_INT64": np.int64, "TO_STRING": object}[cast_to]
    convert = {"TO_FLOAT": float, "TO_INT64": int, "TO_STRING": str}[cast_to]
    values = {int(k): convert(v) for k, v in sorted(x.items())}
    if map_form == "SPARSE":
        missing = convert(0) if cast_to != "TO_STRING" else ""
        return np.array([[values.get(k, missing) for k in range(max_map)]], kind)
    return np.array([list(values.values())], kind)


@op("CategoryMapper", domain=ML, host=True)
def categories(x, *, cats_int64s, cats_strings, default_int64=-1, default_string="_Unused"):
    if x.dtype.kind in "OSU":
        known: dict = dict(zip(cats_strings, cats_int64s, strict=True))
        return np.array([known.get(v, default_int64) for v in x.ravel()], np.int64).reshape(x.shape)
    known = dict(zip(cats_int64s, cats_strings, strict=True))
    return np.array([known.get(int(v), default_string) for v in x.ravel()], object).reshape(x.shape)


_COMPARE = [hnp.less_equal, hnp.less, hnp.greater_equal, hnp.greater, hnp.equal, hnp.not_equal]


@op("TreeEnsemble", domain=ML, since=5)
def trees(x, *, nodes_splits, nodes_featureids, nodes_modes, nodes_truenodeids, nodes_falsenodeids, nodes_trueleafs,
          nodes_falseleafs, leaf_targetids, leaf_weights, tree_roots, post_transform=0, aggregate_function=1,
          nodes_hitrates=None, nodes_missing_value_tracks_true=None, membership_values=None,
          n_targets=None):  # fmt: skip
    """All trees for all rows step by step: a state is a node, or the number of nodes plus a leaf."""
    count = len(nodes_featureids)
    yes = np.asarray(nodes_truenodeids) + count * np.asarray(nodes_trueleafs)
    no = np.asarray(nodes_falsenodeids) + count * np.asarray(nodes_falseleafs)
    tracks = np.asarray(nodes_missing_value_tracks_true or [0] * count, bool)
    modes = np.asarray(nodes_modes)
    sets = iter(np.split(membership_values, np.flatnonzero(np.isnan(membership_values)) + 1)
                if membership_values is not None else ())  # fmt: skip
    members = [next(sets)[:-1] if mode == 6 else np.zeros(0, np.float32) for mode in modes]
    state = hnp.broadcast_to(hnp.asarray(np.asarray(tree_roots, np.int64)), (x.shape[0], len(tree_roots)))
    for root, start in enumerate(tree_roots):
        if nodes_trueleafs[start] and nodes_falseleafs[start] and nodes_truenodeids[start] == nodes_falsenodeids[start]:
            state = hnp.asarray(state).at[:, root].set(count + nodes_truenodeids[start])
    splits, width = np.asarray(nodes_splits), max(map(len, members), default=0)
    table = np.full((count, max(width, 1)), np.nan, splits.dtype)
    for row, values in zip(table, members, strict=True):
        row[: len(values)] = values
    for _ in range(_depth(yes, no, tree_roots, count)):
        node = hnp.clip(state, 0, count - 1)
        value = hnp.take_along_axis(hnp.asarray(x), hnp.asarray(np.asarray(nodes_featureids, np.int64))[node], axis=1)
        split, mode = hnp.asarray(splits)[node], hnp.asarray(modes)[node]
        chosen = hnp.any(value[..., None] == hnp.asarray(table)[node], -1) & (mode == 6)
        for number, compare in enumerate(_COMPARE):
            chosen = chosen | ((mode == number) & compare(value, split))
        chosen = chosen | (hnp.asarray(tracks)[node] & hnp.isnan(value))
        state = hnp.where(state < count, hnp.where(chosen, hnp.asarray(yes)[node], hnp.asarray(no)[node]), state)
    leaf = hnp.clip(state - count, 0, len(leaf_targetids) - 1)
    weight = hnp.asarray(np.asarray(leaf_weights))[leaf]
    target = hnp.asarray(np.asarray(leaf_targetids, np.int64))[leaf]
    rows = hnp.arange(x.shape[0])[:, None]
    start = {2: np.finfo(x.dtype).max, 3: np.finfo(x.dtype).min}.get(aggregate_function, 0)
    result = hnp.full((x.shape[0], n_targets), start, x.dtype).at[rows, target]
    if aggregate_function == 2:
        result = result.min(weight)
    elif aggregate_function == 3:
        result = result.max(weight)
    else:
        result = result.add(weight / len(tree_roots) if aggregate_function == 0 else weight)
    return _transformed(result, {0: "NONE", 1: "SOFTMAX", 2: "LOGISTIC"}.get(post_transform, str(post_transform)))


def _depth(yes, no, roots, count: int) -> int:
    """The number of steps from a root to the farthest leaf."""
    depth, level = 0, {int(r) for r in roots}
    while level and depth <= count:
        level = {int(n) for k in level for n in (yes[k], no[k]) if n < count}
        depth += 1
    return depth


# --- optimizers -----------------------------------------------------------------------------------------------------


def _each(rule, rate, step, values, groups: int):
    """Applies a rule to each parameter; inputs and outputs are in groups (parameters, gradients, states)."""
    count = len(values) // groups
    made = [rule(rate, step, *values[k::count]) for k in range(count)]
    return tuple(result for group in zip(*made, strict=True) for result in group)


@op("Adagrad", domain=TRAINING)
def adagrad(rate, step, *values, decay_factor=0.0, epsilon=0.0, norm_coefficient=0.0):
    def rule(r, t, x, g, h):
        g = norm_coefficient * x + g
        h = h + g * g
        return (x - r / (1 + t * decay_factor) * g / (hnp.sqrt(h) + epsilon)).astype(x.dtype), h

    return _each(rule, rate, step, values, 3)


@op("Momentum", domain=TRAINING)
def momentum(rate, step, *values, alpha, beta, mode="standard", norm_coefficient):
    def rule(r, t, x, g, v):
        g = norm_coefficient * x + g
        v = alpha * v + hnp.where(t > 0, beta, 1.0).astype(x.dtype) * g
        return x - r * (g + alpha * v if mode == "nesterov" else v), v

    return _each(rule, rate, step, values, 3)


@op("Adam", domain=TRAINING)
def adam(rate, step, *values, alpha=0.9, beta=0.999, epsilon=0.0, norm_coefficient=0.0, norm_coefficient_post=0.0):
    def rule(r, t, x, g, v, h):
        g = norm_coefficient * x + g
        v, h = alpha * v + (1 - alpha) * g, beta * h + (1 - beta) * g * g
        age = hnp.maximum(t, 1).astype(x.dtype)
        r = hnp.where(t > 0, r * hnp.sqrt(1 - beta**age) / (1 - alpha**age), r).astype(x.dtype)
        return (1 - norm_coefficient_post) * (x - r * (v / (hnp.sqrt(h) + epsilon))), v, h

    return _each(rule, rate, step, values, 4)


@op("Gradient", domain=TRAINING)
def gradient(node: Call, *values, xs, y, zs=()):
    """The gradient of the sum of y, which the model computes from xs and zs, with respect to xs at the inputs."""
    found = dict(zip([*xs, *zs], values, strict=True))
    wanted, needed = {y}, []
    for before in reversed(node.scope.nodes):
        if wanted.intersection(before.outputs) and not found.keys() & set(before.outputs):
            needed.append(before)
            wanted |= before.uses

    def computed(*inputs):
        env = {**node.env, **found, **dict(zip(xs, inputs, strict=True))}
        run_nodes(needed[::-1], env, node.scope, node.depth + 1)
        return env[y]

    result, back = vjp(computed, *(hnp.asarray(found[x]) for x in xs))
    return back(hnp.ones(result.shape, result.dtype))
