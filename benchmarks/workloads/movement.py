"""Moving elements: transposes, gathers and scatters, one-hot, sorting, Fourier transforms."""

from __future__ import annotations

import numpy as np

from hloom.benchmarks.workloads.table import Family, M, both, integers, normal

FAMILY = Family("movement")
workload = FAMILY.workload


@workload("transpose_add", "x.T + y, 2048 x 2048", normal((2048, 2048), (2048, 2048)), suite="core")
def _transpose_add(lib, x, y):
    return x.T + y


@workload("transpose_heads", "(32, 512, 16, 64) to (32, 16, 512, 64)", normal((32, 512, 16, 64)))
def _transpose_heads(lib, x):
    return lib.np.transpose(x * 2.0, (0, 2, 1, 3))


@workload("transpose_swap", "2 x.T, 4096 x 1024", normal((4096, 1024)))
def _transpose_swap(lib, x):
    return lib.np.transpose(x * 2.0, (1, 0))


@workload("gather_rows", "65,536 rows of 64 of a table of 8,192", both(normal((8192, 64)), integers(8192, (65536,))))
def _gather_rows(lib, table, places):
    return lib.np.take(table, places, axis=0)


@workload("gather_scalars", "4M elements of a table of 1M, by place", both(normal((M,)), integers(M, (4 * M,))))
def _gather_scalars(lib, table, places):
    return lib.np.take(table, places, axis=0) * 2.0


@workload(
    "embedding_grad",
    "gradient of 32,768 rows of 64 of a table of 8,192",
    both(normal((8192, 64), (32768, 64)), integers(8192, (32768,))),
    needs=("grad", "lax"),
    tolerance=1e-5,
)
def _embedding_grad(lib, table, weights, places):
    return lib.value_and_grad(lambda t: lib.np.sum(lib.np.take(t, places, axis=0) * weights))(table)[1]


@workload("histogram", "4M values counted in 256 bins", integers(256, (4 * M,)), needs=("lax",))
def _histogram(lib, x):
    return lib.np.zeros(256, np.int32).at[x].add(1)


@workload(
    "segment_sum",
    "sums of 65,536 rows of 64 in 1,024 segments",
    both(normal((65536, 64)), integers(1024, (65536,))),
    needs=("lax",),
    tolerance=1e-5,
)
def _segment_sum(lib, x, segments):
    return lib.np.zeros((1024, x.shape[1]), x.dtype).at[segments].add(x)


@workload("one_hot", "one-hot by comparison, 8192 of 1,000", integers(1000, (8192,)))
def _one_hot(lib, x):
    return lib.np.astype(x[:, None] == lib.np.arange(1000), np.float32)


@workload("concatenate", "4 arrays of 1024 x 1024 side by side, doubled", normal(*[(1024, 1024)] * 4))
def _concatenate(lib, *arrays):
    return 2.0 * lib.np.concatenate(arrays, axis=1)


@workload("roll_difference", "x minus its neighbours around a torus, 2048 x 2048", normal((2048, 2048)))
def _roll(lib, x):
    np = lib.np
    return 4.0 * x - np.roll(x, 1, 0) - np.roll(x, -1, 0) - np.roll(x, 1, 1) - np.roll(x, -1, 1)


@workload("sort_1m", "sort, 1M", normal((M,)), bound_by="compute")
def _sort(lib, x):
    return lib.np.sort(x)


@workload("sort_rows", "sort of rows, 4096 x 256", normal((4096, 256)), bound_by="compute")
def _sort_rows(lib, x):
    return lib.np.sort(x, axis=-1)


@workload("argsort_rows", "argsort of rows, 1024 x 1024", normal((1024, 1024)), bound_by="compute", needs=("lax",))
def _argsort_rows(lib, x):
    return lib.np.argsort(x, axis=-1)


@workload(
    "rfft_rows",
    "real transform of rows, 1024 x 1024",
    normal((1024, 1024)),
    bound_by="compute",
    needs=("fft",),
    tolerance=1e-5,
)
def _rfft(lib, x):
    return lib.np.abs(lib.np.fft.rfft(x))


@workload(
    "fft_filter",
    "low-pass filter of 512 x 512 by fft2",
    normal((512, 512)),
    bound_by="compute",
    needs=("fft",),
    tolerance=1e-5,
)
def _fft_filter(lib, x):
    np = lib.np
    spectrum = np.fft.fft2(x)
    k = np.minimum(np.arange(x.shape[0]), x.shape[0] - np.arange(x.shape[0]))
    kept = (k[:, None] ** 2 + k**2) < (x.shape[0] // 8) ** 2
    return np.real(np.fft.ifft2(spectrum * kept))
