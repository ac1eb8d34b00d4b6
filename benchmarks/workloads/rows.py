"""Reductions and functions built from them: sums of rows, columns and all, softmax, norms, searches, running sums."""

from __future__ import annotations

from hloom.benchmarks.workloads.table import Family, M, normal

FAMILY = Family("rows and columns")
workload = FAMILY.workload
ROWS = (4096, 1024)


@workload("softmax", "softmax of rows, 4096 x 1024", normal(ROWS, scale=3.0), suite="core")
def _softmax(lib, x):
    return lib.nn.softmax(x)


@workload("softmax_short", "softmax of rows of 64, 32768 rows", normal((32768, 64), scale=3.0))
def _softmax_short(lib, x):
    return lib.nn.softmax(x)


@workload("layer_norm", "layer norm of rows, 4096 x 1024", normal(ROWS, (1024,), (1024,)), suite="core", tolerance=1e-5)
def _layer_norm(lib, x, weight, bias):
    np = lib.np
    centred = x - np.mean(x, axis=-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    return centred / np.sqrt(variance + 1e-5) * weight + bias


@workload(
    "layer_norm_grad",
    "gradients of layer norm, 4096 x 1024",
    normal(ROWS, (1024,), (1024,)),
    tolerance=2e-5,
    needs=("grad",),
)
def _layer_norm_grad(lib, x, weight, bias):
    def loss(parameters):
        return lib.np.sum(_layer_norm(lib, *parameters) ** 2)

    return lib.value_and_grad(loss)((x, weight, bias))[1]


@workload(
    "batch_norm", "batch norm over (32, 56, 56) of 64 channels", normal((32, 56, 56, 64), (64,), (64,)), tolerance=1e-5
)
def _batch_norm(lib, x, weight, bias):
    np = lib.np
    mean = np.mean(x, axis=(0, 1, 2))
    centred = x - mean
    variance = np.mean(centred * centred, axis=(0, 1, 2))
    return centred / np.sqrt(variance + 1e-5) * weight + bias, mean, variance


@workload("rms_norm", "root-mean-square norm of rows and silu, 4096 x 1024", normal(ROWS, (1024,)), tolerance=1e-5)
def _rms_norm(lib, x, weight):
    return lib.nn.silu(x / lib.np.sqrt(lib.np.mean(x * x, axis=-1, keepdims=True) + 1e-5) * weight)


@workload("logsumexp", "log-sum-exp of rows, 4096 x 1024", normal(ROWS, scale=3.0))
def _logsumexp(lib, x):
    return lib.nn.logsumexp(x, axis=-1)


@workload("argmax", "argmax of rows, 4096 x 1024", normal(ROWS))
def _argmax(lib, x):
    return lib.np.argmax(x, axis=-1)


@workload("top_k", "the 8 largest of rows, 1024 x 4096", normal((1024, 4096)), bound_by="compute", needs=("lax",))
def _top_k(lib, x):
    return lib.lax.top_k(x, 8)


@workload("cumsum_rows", "running sums of rows, 4096 x 1024", normal(ROWS), tolerance=1e-5)
def _cumsum_rows(lib, x):
    return lib.np.cumsum(x, axis=1)


@workload("cumsum_columns", "running sums of columns, 4096 x 1024", normal(ROWS), tolerance=1e-5)
def _cumsum_columns(lib, x):
    return lib.np.cumsum(x, axis=0)


@workload("cumsum_4m", "running sum, 4M", normal((4 * M,)), tolerance=1e-4)  # NumPy adds in the order of the elements
def _cumsum(lib, x):
    return lib.np.cumsum(x)


@workload("column_sum", "sum of columns, 4096 x 1024", normal(ROWS), suite="core")
def _column_sum(lib, x):
    return lib.np.sum(x, axis=0)


@workload("row_mean_square", "mean square of rows, 4096 x 1024", normal(ROWS))
def _row_mean_square(lib, x):
    return lib.np.mean(x * x, axis=1)


@workload("full_sum_16m", "sum of squares, 16M", normal((16 * M,)))
def _full_sum(lib, x):
    return lib.np.sum(x * x)


@workload("middle_sum", "sum over the middle of (64, 512, 256)", normal((64, 512, 256)))
def _middle_sum(lib, x):
    return lib.np.sum(x, axis=1)


@workload("outer_dims_sum", "sum over the first and last of (64, 512, 256)", normal((64, 512, 256)))
def _mixed_sum(lib, x):
    return lib.np.sum(x, axis=(0, 2))
