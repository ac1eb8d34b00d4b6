"""Windows, running combinations, scatters, sorts and the best of rows for CUDA, in the lock-step simulator."""

import numpy as np
import pytest
from cuda_plans import check, planned

import hloom.numpy as hnp
from hloom import grad, lax
from hloom.compiler.targets.cuda import fft, scans, scatter
from hloom.compiler.targets.cuda.sorting import bitonic

RANDOM = np.random.default_rng(1)


def floats(*dims, dtype=np.float32):
    return RANDOM.standard_normal(dims).astype(dtype)


def kernels(plan) -> list[str]:
    return [step.launch.source.name for step in plan.kernels()]


def pool(x, window, strides, padding, initial=-np.inf, combine=lax.max):
    return lax.reduce_window(x, initial, combine, window, strides, padding)


# --- windows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window, strides, padding", [
    ((1, 2, 2, 1), (1, 2, 2, 1), "VALID"), ((1, 3, 3, 1), (1, 2, 2, 1), "SAME"), ((1, 3, 2, 1), (1, 1, 3, 1), "SAME"),
])  # fmt: skip
def test_pooling_and_its_gradient(window, strides, padding):
    x = floats(2, 7, 6, 3)
    plan = check(lambda x: pool(x, window, strides, padding), x)
    assert kernels(plan) == ["window_reduce_window"]
    plan = check(grad(lambda x: (pool(x, window, strides, padding) ** 2).sum()), x)
    assert any(name.startswith("select") for name in kernels(plan))


def test_pooling_of_planes_and_of_ties():
    x = RANDOM.integers(0, 3, (2, 3, 8, 9)).astype(np.float32)
    check(grad(lambda x: (pool(x, (1, 1, 3, 3), (1, 1, 2, 2), "SAME") * hnp.arange(5.0)).sum()), x)
    check(lambda x: pool(x, (1, 1, 4, 4), (1, 1, 1, 1), "VALID", 0.0, lax.add), x)


@pytest.mark.parametrize("dtype", ["int8", "bool", "float16", "bfloat16"])
def test_windows_of_other_dtypes(dtype):
    import ml_dtypes

    x = (RANDOM.random((5, 12)) * 3).astype(getattr(ml_dtypes, dtype, None) or dtype)
    combine, start = (lax.bitwise_or, False) if dtype == "bool" else (lax.add, x.dtype.type(0))
    check(lambda x: pool(x, (1, 3), (1, 2), "SAME", start, combine), x)


# --- running combinations -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dims, axis", [((7, 50), 1), ((3, 700), 1), ((1, 3000), 1), ((40, 6), 0), ((2, 30, 5), 1)])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums(dims, axis, reverse, monkeypatch):
    monkeypatch.setattr(scans, "TILES", 1)
    monkeypatch.setattr(scans, "COLUMN_GROUP", 4)
    check(lambda x: lax.cumsum(x, axis, reverse), floats(*dims))


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float64", "bfloat16", "int64"])
def test_running_sums_of_other_dtypes(dtype):
    import ml_dtypes

    x = RANDOM.integers(0, 9, (4, 60)).astype(getattr(ml_dtypes, dtype, None) or dtype)
    check(lambda x: lax.cumsum(x[:, :20] if dtype == "bfloat16" else x, 1), x)


def test_running_maxima_and_products():
    x = floats(2, 300)
    check(lambda x: lax.cummax(x, 1), x)
    check(lambda x: lax.cummin(x, 0), x)
    check(lambda x: lax.cumprod(1 + 0.01 * x, 1), x)
    check(lambda x: lax.cumlogsumexp(x, 1), floats(3, 40))


def test_a_row_in_groups_has_two_kernels_and_never_falls(monkeypatch):
    monkeypatch.setattr(scans, "TILES", 1)
    x = RANDOM.random(5000).astype(np.float32)
    from cuda_plans import simulate

    plan, wanted = planned(lambda x: lax.cumsum(x, 0), x)
    assert kernels(plan) == ["running_part_reduce_window", "running_reduce_window"]
    (got,) = simulate(plan, [x])
    np.testing.assert_allclose(got, np.cumsum(x.astype(np.float64)), rtol=1e-6)
    assert (np.diff(got) >= 0).all()


# --- scatter ------------------------------------------------------------------------------------------------------


def test_scatters_of_equal_indexes_are_chains():
    x, i, u = floats(9, 5), np.array([3, 0, 3, 8, 3, 0, 20, -1]), floats(8, 5)
    plan = check(lambda x, i, u: x.at[i].add(u), x, i, u)
    assert [name.split("_")[1] for name in kernels(plan)] == ["places", "chains", "chain"]
    check(lambda x, i, u: x.at[i].set(u), x, i, u)
    check(lambda x, i, u: x.at[i, i % 5].multiply(u[:, 0]), x, i, u)


@pytest.mark.parametrize("chunk", [8, 64])
def test_chains_of_many_windows_are_found_by_sorting(chunk, monkeypatch):
    monkeypatch.setattr(scatter, "COMPARED", 4)
    monkeypatch.setattr(bitonic, "CHUNK", chunk)
    x, i, u = floats(9, 2), RANDOM.integers(-2, 12, 37), floats(37, 2)
    plan = check(lambda x, i, u: x.at[i].add(u), x, i, u)
    assert any(name.startswith("scatter_links") for name in kernels(plan))
    check(lambda x, i, u: x.at[i].set(u), x, i, u)
    check(lambda x, i: x.at[i, i % 2].multiply(2.0), x, i)


def test_scatters_of_distinct_indexes_are_one_kernel():
    x, i, u = floats(9, 5), np.array([3, 0, 8, 1]), floats(4, 5)
    plan = check(lambda x, i, u: x.at[i].add(u * 2, unique_indices=True), x, i, u)
    assert kernels(plan)[-1].startswith("scatter_") and len([k for k in kernels(plan) if "scatter" in k]) == 1


def test_many_updates_of_few_elements_have_tables(monkeypatch):
    monkeypatch.setattr(scatter, "PART", 8)
    i = RANDOM.integers(0, 6, 200)
    plan = check(lambda i: hnp.zeros(6, hnp.int32).at[i].add(1), i)
    assert [name for name in kernels(plan) if "scatter" in name][0].startswith("scatter_begin"), kernels(plan)
    check(lambda i, u: hnp.zeros((6,), hnp.float32).at[i].max(u), i, floats(200))


def test_windows_that_overlap_in_part_are_done_in_order():
    def function(x, i, u):
        dims = lax.ScatterDimensionNumbers(
            update_window_dims=(1,), inserted_window_dims=(), scatter_dims_to_operand_dims=(0,)
        )
        return lax.scatter_add(x, i, u, dims)

    check(function, floats(12), np.array([[2], [3], [2], [10]]), floats(4, 3))


def test_gradients_of_gathers():
    i = RANDOM.integers(0, 10, (4, 6))
    check(grad(lambda table: (table[i] ** 2).sum()), floats(10, 7))


# --- sort, topk ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dims, axis", [((5, 37), 1), ((33, 4), 0), ((64,), 0), ((2, 1), 1), ((3, 5, 4), 1)])
def test_sorts(dims, axis):
    x = floats(*dims)
    plan = check(lambda x: lax.sort(x, axis), x)
    assert kernels(plan) == ["sort_sort"]
    check(lambda x: hnp.argsort(x, axis=axis), np.round(x))


@pytest.mark.slow
def test_sorts_of_rows_in_chunks(monkeypatch):
    monkeypatch.setattr(bitonic, "CHUNK", 16)
    x = np.round(floats(2, 50) * 3)
    plan = check(lambda x: (lax.sort(x, 1), hnp.argsort(x, axis=1)), x)
    assert {"sort_chunks_sort", "sort_exchange_sort", "sort_merge_sort", "sort_move_sort"} <= set(kernels(plan))
    check(lambda x: lax.sort(x, 0), np.round(floats(40, 3)))


def test_sorts_by_several_keys_and_of_nan():
    a, b = RANDOM.integers(0, 3, 40).astype(np.int32), floats(40)
    b[3] = np.nan
    check(lambda a, b: lax.sort((a, b, hnp.arange(40)), num_keys=2), a, b)


@pytest.mark.parametrize("dims, k", [((5, 40), 3), ((1, 7), 7), ((2, 1100), 2)])
def test_the_best_of_rows(dims, k):
    x = np.round(floats(*dims) * 4)
    check(lambda x: lax.top_k(x, k), x)


def test_the_best_with_nan_and_of_integers():
    x = floats(2, 20)
    x[0, 3], x[1, 4:6] = np.nan, -0.0
    check(lambda x: lax.top_k(x, 20), x)
    check(lambda x: lax.top_k(x, 4), RANDOM.integers(-5, 5, (3, 30)).astype(np.int8))


# --- Fourier transforms -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 8, 12, 30, 49, 11, 26, 64])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft"])
def test_transforms_of_lengths(name, n):
    x = floats(3, n // 2 + 1 if name == "irfft" else n)
    x = x if name == "rfft" else x + 1j * floats(*x.shape)
    transform = getattr(hnp.fft, name)
    plan = check(lambda x: transform(x, n) if name == "irfft" else transform(x), x, tolerance=2e-4)
    assert len([k for k in kernels(plan) if "fft" in k]) <= 1


def test_transforms_of_several_dimensions_and_what_is_computed_from_them():
    check(lambda x: hnp.abs(hnp.fft.fft2(x)), floats(2, 6, 8), tolerance=2e-4)
    check(lambda x: hnp.fft.irfft2(hnp.fft.rfft2(x) * 2.0), floats(5, 12), tolerance=2e-4)
    check(lambda x: hnp.fft.fft(x, axis=0).real, floats(9, 4), tolerance=2e-4)


@pytest.mark.parametrize("name", ["fft", "rfft", "irfft"])
def test_rows_without_room_in_shared_memory_go_by_passes(name, monkeypatch):
    monkeypatch.setattr(fft, "SHARED", 0)
    x = floats(2, 16 if name == "irfft" else 30)
    plan = check(lambda x: getattr(hnp.fft, name)(x), x, tolerance=2e-4)
    assert len([k for k in kernels(plan) if "fft_pass" in k]) >= 3
    check(lambda x: hnp.fft.fft(x.astype(hnp.complex64), axis=0) * 0.5, floats(22, 3), tolerance=2e-4)


# --- texts --------------------------------------------------------------------------------------------------------

TEXTS = {
    "running_rows": lambda: (lambda x: lax.cumsum(x, 1), floats(1000, 3000)),
    "topk": lambda: (lambda x: lax.top_k(x, 5), floats(100, 300)),
    "sort": lambda: (lambda x: lax.sort(x, 1), floats(100, 300)),
    "scatter_chain": lambda: (lambda x, i, u: x.at[i].add(u), floats(90, 50), np.arange(80) % 40, floats(80, 50)),
    "pooling_gradient": lambda: (grad(lambda x: pool(x, (1, 3, 3), (1, 2, 2), "SAME").sum()), floats(8, 20, 20)),
    "fft": lambda: (hnp.fft.fft, floats(100, 12) + 1j * floats(100, 12)),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text(name, golden):
    plan, _ = planned(*TEXTS[name]())
    texts = []
    for step in plan.kernels():
        texts.append(f"# {step.launch.grid()}\n{step.launch.source.text}")
    golden(f"cuda/{name}.txt", "\n".join(texts))
