"""Convolutions, windows, pooling, resizing and signals against jax, NumPy and SciPy, with jax as a black box."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.ndimage
import scipy.signal

import hloom as hl
import hloom.image
import hloom.nn.pooling
import hloom.numpy as hnp
import hloom.scipy.ndimage
import hloom.scipy.signal as signal
from hloom import lax
from hloom.errors import ArgumentError, AttributeValueError, HloomError, ShapeError

jax = pytest.importorskip("jax")
jnp = jax.numpy


def normal(*dims, seed=0, dtype=np.float32):
    x = np.random.default_rng(seed).normal(size=dims)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * np.random.default_rng(seed + 1).normal(size=dims)
    return x.astype(dtype)


def near(found, wanted, tolerance=1e-5):
    wanted = np.asarray(wanted)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape, (found._shape, wanted.dtype, wanted.shape)
    scale = np.max(np.abs(wanted), initial=0) if wanted.dtype.kind in "fc" else 0
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=tolerance, atol=tolerance * scale)


def both(name, *arrays, module=None, **how):
    """The same function of hloom.lax and jax.lax."""
    found = getattr(lax, name)(*[hnp.asarray(a) for a in arrays], **how)
    near(found, getattr(jax.lax, name)(*arrays, **how))
    return found


# --- convolutions -------------------------------------------------------------------------------------------------

NHWC = ("NHWC", "HWIO", "NHWC")
CONVOLUTIONS = [
    ((2, 3, 8, 9), (4, 3, 3, 2), {"window_strides": (1, 2), "padding": "SAME"}),
    ((2, 3, 8, 9), (4, 3, 3, 2), {"window_strides": (2, 2), "padding": "SAME_LOWER"}),
    ((2, 8, 9, 3), (3, 3, 3, 4), {"window_strides": (1, 1), "padding": "VALID", "dimension_numbers": NHWC}),
    ((2, 8, 9, 3), (3, 3, 3, 4), {"window_strides": (2, 1), "padding": ((1, 2), (-1, 3)), "dimension_numbers": NHWC}),
    ((2, 8, 9, 3), (3, 2, 3, 4), {"window_strides": (1, 1), "padding": "SAME", "rhs_dilation": (2, 3),
                                  "dimension_numbers": NHWC}),
    ((2, 8, 9, 3), (3, 2, 3, 4), {"window_strides": (1, 1), "padding": ((1, 0), (2, 2)), "lhs_dilation": (2, 3),
                                  "dimension_numbers": ("NHWC", "HWIO", "CNHW")}),
    ((2, 8, 9, 4), (3, 3, 2, 6), {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": NHWC,
                                  "feature_group_count": 2}),
    ((4, 8, 9, 3), (3, 3, 3, 6), {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": NHWC,
                                  "batch_group_count": 2}),
    ((2, 3, 8), (4, 3, 3), {"window_strides": (1,), "padding": "SAME"}),
    ((1, 4, 5, 6, 2), (2, 2, 2, 2, 3), {"window_strides": (1, 1, 2), "padding": "SAME",
                                        "dimension_numbers": ("NHWDC", "HWDIO", "NHWDC")}),
    ((2, 8, 9, 3), (3, 2, 3, 4), {"window_strides": (1, 2), "padding": "SAME",
                                  "dimension_numbers": ("NHWC", "WHIO", "NHWC")}),
]  # fmt: skip


@pytest.mark.parametrize("lhs, rhs, how", CONVOLUTIONS)
def test_conv_general_dilated(lhs, rhs, how):
    both("conv_general_dilated", normal(*lhs), normal(*rhs, seed=1), **how)


@pytest.mark.parametrize("lhs, rhs, how", CONVOLUTIONS[::2])
def test_conv_compiled_with_its_gradients(lhs, rhs, how):
    x, w = normal(*lhs), normal(*rhs, seed=1)

    def loss(lib):
        return lambda x, w: (lib.lax.conv_general_dilated(x, w, **how) ** 2).sum()

    found = hl.jit(hl.grad(loss(hl), argnums=(0, 1)))(x, w)
    for a, b in zip(found, jax.grad(loss(jax), argnums=(0, 1))(x, w), strict=True):
        near(a, b, 1e-4)


def test_conv_of_integers_and_a_wider_result():
    x, w = (
        np.random.default_rng(k).integers(-100, 100, d).astype(np.int8) for k, d in ((0, (1, 2, 6)), (1, (3, 2, 2)))
    )
    both("conv_general_dilated", x, w, window_strides=(1,), padding="VALID", preferred_element_type=np.int32)


def test_other_forms_of_conv():
    x, w = normal(2, 3, 8, 9), normal(4, 3, 3, 2, seed=1)
    both("conv", x, w, window_strides=(1, 2), padding="SAME")
    both("conv_with_general_padding", x, w, window_strides=(1, 2), padding=[(1, 1), (0, 2)], lhs_dilation=(2, 1),
         rhs_dilation=(1, 2))  # fmt: skip
    both("conv_general_dilated_patches", x, filter_shape=(3, 2), window_strides=(1, 2), padding="SAME")
    both("conv_general_dilated_patches", normal(2, 8, 9, 3), filter_shape=(2, 3), window_strides=(2, 1),
         padding="VALID", dimension_numbers=NHWC)  # fmt: skip
    kernel = normal(4, 3 * 6, 6, 8, seed=2)
    both("conv_general_dilated_local", x, kernel, window_strides=(1, 1), padding="VALID", filter_shape=(3, 2))


@pytest.mark.parametrize("padding", ["SAME", "VALID", ((1, 2), (0, 1))])
@pytest.mark.parametrize("how", [{}, {"rhs_dilation": (2, 1)}, {"transpose_kernel": True}])
@pytest.mark.parametrize("strides", [(2, 3), (4, 1)])
def test_conv_transpose(padding, how, strides):
    kernel = (3, 2, 4, 3) if how.get("transpose_kernel") else (3, 2, 3, 4)
    both("conv_transpose", normal(2, 5, 6, 3), normal(*kernel, seed=1), strides=strides, padding=padding, **how)


def test_shapes_of_convolutions():
    assert lax.padtype_to_pads((5, 6), (3, 2), (2, 2), "SAME") == jax.lax.padtype_to_pads(
        (5, 6), (3, 2), (2, 2), "SAME"
    )
    assert lax.conv_general_shape_tuple((2, 8, 9, 3), (3, 3, 3, 4), (2, 1), "SAME", NHWC) == (2, 4, 9, 4)
    assert lax.conv_transpose_shape_tuple((2, 8, 9, 3), (3, 3, 3, 4), (2, 1), "VALID", NHWC) == (2, 17, 11, 4)
    assert lax.conv_shape_tuple((2, 3, 8), (4, 3, 3), (1,), [(0, 0)]) == (2, 4, 6)
    found = lax.conv_dimension_numbers((2, 8, 9, 3), (3, 3, 3, 4), NHWC)
    assert tuple(found) == tuple(jax.lax.conv_dimension_numbers((2, 8, 9, 3), (3, 3, 3, 4), NHWC))


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
def test_vmap_of_a_convolution(axes):
    x, w = normal(3, 2, 6, 2), normal(3, 3, 2, 4, seed=1)
    x, w = (x if axes[0] == 0 else x[0]), (w if axes[1] == 0 else w[0])
    how = {"window_strides": (1,), "padding": "SAME", "dimension_numbers": ("NHC", "HIO", "NHC")}
    found = hl.jit(hl.vmap(lambda x, w: lax.conv_general_dilated(x, w, **how), axes))(x, w)
    near(found, jax.vmap(lambda x, w: jax.lax.conv_general_dilated(x, w, **how), axes)(x, w))


# --- windows ------------------------------------------------------------------------------------------------------

WINDOWS = [
    {"window_dimensions": (1, 3, 2), "window_strides": (1, 2, 1), "padding": "SAME"},
    {"window_dimensions": (2, 2, 1), "padding": ((1, 0), (0, 1), (0, 0)), "window_dilation": (1, 2, 1)},
    {"window_dimensions": (2, 1, 3), "window_strides": (1, 1, 2), "base_dilation": (2, 1, 3)},
]


@pytest.mark.parametrize("how", WINDOWS)
@pytest.mark.parametrize("name, start", [("add", 0.0), ("max", -np.inf), ("min", np.inf), ("mul", 1.0)])
def test_reduce_window(how, name, start):
    x = normal(4, 7, 6)
    found = lax.reduce_window(hnp.asarray(x), start, getattr(lax, name), **how)
    near(found, jax.lax.reduce_window(x, start, getattr(jax.lax, name), **({"window_strides": None} | how)))
    near(hl.jit(lambda x: lax.reduce_window(x, start, getattr(lax, name), **how))(x), found)


@pytest.mark.parametrize("name, start", [("add", 0.0), ("max", -np.inf)])
def test_gradient_of_reduce_window(name, start):
    x, how = normal(2, 7, 6), {"window_dimensions": (1, 3, 2), "window_strides": (1, 2, 1), "padding": "SAME"}

    def loss(lib):
        return lambda x: (lib.lax.reduce_window(x, start, getattr(lib.lax, name), **how) ** 2).sum()

    near(hl.jit(hl.grad(loss(hl)))(x), jax.grad(loss(jax))(x))


def test_reduce_window_of_a_tree():
    x, y = normal(5, 6), np.arange(30, dtype=np.int32).reshape(5, 6)

    def larger(a, b):
        keep = a[0] >= b[0]
        return hnp.where(keep, a[0], b[0]), hnp.where(keep, a[1], b[1])

    value, index = lax.reduce_window((hnp.asarray(x), hnp.asarray(y)), (-np.inf, 0), larger, (2, 3), (2, 3), "VALID")
    windows = x[:4].reshape(2, 2, 2, 3).transpose(0, 2, 1, 3).reshape(2, 2, 6)
    np.testing.assert_array_equal(value, windows.max(-1))
    np.testing.assert_array_equal(x.reshape(-1)[np.asarray(index)], windows.max(-1))


def test_select_and_scatter():
    x, s = np.float32([[1, 5, 2, 4], [3, 0, 7, 6]]), np.float32([[10, 20]])
    found = lax.select_and_scatter(x, lax.ge, (2, 2), (2, 2), "VALID", s, 0.0, lax.add)
    np.testing.assert_array_equal(found, [[0, 10, 0, 0], [0, 0, 20, 0]])
    assert lax.reduce_window_shape_tuple((2, 4), (2, 2), (2, 2), "VALID") == (1, 2)


def test_pooling():
    x = normal(2, 7, 6, 3)
    torch_like = {"window_shape": (3, 2), "strides": (2, 2), "padding": "SAME"}
    windows = jax.lax.reduce_window(x, -np.inf, jax.lax.max, (1, 3, 2, 1), (1, 2, 2, 1), "SAME")
    near(hloom.nn.pooling.max_pool(x, **torch_like), windows)
    near(hloom.nn.pooling.min_pool(-x, **torch_like), -windows)
    total = jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 3, 2, 1), (1, 2, 2, 1), "SAME")
    count = jax.lax.reduce_window(np.ones_like(x), 0.0, jax.lax.add, (1, 3, 2, 1), (1, 2, 2, 1), "SAME")
    near(hloom.nn.pooling.avg_pool(x, **torch_like), total / 6)
    near(hloom.nn.pooling.avg_pool(x, **torch_like, count_include_pad=False), total / count)
    near(hloom.nn.pooling.pool(x, 0.0, lax.add, (3, 2), (2, 2), "SAME"), total)
    near(hloom.nn.pooling.max_pool(x[0, 0], (2,)), np.maximum(x[0, 0, :-1], x[0, 0, 1:]))


# --- sequences ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("sizes", [(7, 3), (7, 4), (3, 7), (4, 4), (1, 5), (6, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.complex64])
def test_convolve_and_correlate(mode, sizes, dtype):
    a, v = (normal(n, seed=k, dtype=np.complex64) * 5 for k, n in enumerate(sizes))
    a, v = ((z if dtype == np.complex64 else z.real).astype(dtype) for z in (a, v))
    for function, reference in ((hnp.convolve, np.convolve), (hnp.correlate, np.correlate)):
        expected = reference(a, v, mode)
        # Integers become floats, as in JAX.
        near(function(a, v, mode), expected.astype(np.float32) if dtype == np.int32 else expected)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("dims", [((5, 6), (3, 2)), ((3, 2), (5, 6)), ((4, 5), (4, 4))])
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_convolution_of_matrices(mode, dims, dtype):
    x, y = (normal(*d, seed=k, dtype=dtype) for k, d in enumerate(dims))
    near(signal.convolve(x, y, mode), scipy.signal.convolve(x, y, mode, method="direct"))
    near(signal.correlate(x, y, mode), scipy.signal.correlate(x, y, mode, method="direct"))
    near(signal.fftconvolve(x, y, mode), scipy.signal.fftconvolve(x, y, mode), 1e-4)
    for boundary in ("fill", "wrap", "symm") if mode != "valid" and dims[0][0] >= dims[1][0] else ("fill",):
        how = {"boundary": boundary, "fillvalue": 2.0}
        near(signal.convolve2d(x, y, mode, **how), scipy.signal.convolve2d(x, y, mode, **how))
        near(signal.correlate2d(x, y, mode, **how), scipy.signal.correlate2d(x, y, mode, **how))


def test_detrend():
    x = normal(4, 20) + np.arange(20, dtype=np.float32)
    near(signal.detrend(x), scipy.signal.detrend(x), 1e-4)
    near(signal.detrend(x, axis=0, type="constant"), scipy.signal.detrend(x, axis=0, type="constant"), 1e-4)
    near(signal.detrend(x, bp=[5, 12]), scipy.signal.detrend(x, bp=[5, 12]), 1e-4)


@pytest.mark.parametrize("how", [{}, {"nperseg": 64, "noverlap": 48}, {"window": "hamming", "nfft": 300, "fs": 2.0}])
def test_spectra(how):
    x, y = normal(2, 700, dtype=np.float64), normal(2, 700, seed=1, dtype=np.float64)
    for a, b in zip(signal.stft(x, **how), scipy.signal.stft(x, **how), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)
    for name, arguments in (("welch", (x,)), ("csd", (x, y))):
        found, wanted = (getattr(m, name)(*arguments, **how) for m in (signal, scipy.signal))
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)
    z = scipy.signal.stft(x[0], **how)[2]
    inverse = {k: v for k, v in how.items() if k != "nfft"} | ({"nperseg": 256, "nfft": 300} if "nfft" in how else {})
    for a, b in zip(signal.istft(z, **inverse), scipy.signal.istft(z, **inverse), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)


# --- images -------------------------------------------------------------------------------------------------------

METHODS = ["nearest", "linear", "cubic", "lanczos3", "lanczos5"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(2, 9, 4, 3), (1, 6, 15, 3)])
@pytest.mark.parametrize("antialias", [True, False])
def test_resize(method, shape, antialias):
    x = normal(2, 6, 8, 3)
    near(hloom.image.resize(x, shape, method, antialias), jax.image.resize(x, shape, method, antialias), 3e-5)


def test_resize_of_integers_and_names():
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    for method in ("bilinear", "nearest", hloom.image.ResizeMethod.CUBIC):
        wanted = jax.image.resize(x, (6, 5), getattr(method, "name", method).lower())
        near(hloom.image.resize(x, (6, 5), method), wanted)


@pytest.mark.parametrize("method", METHODS[1:])
def test_scale_and_translate(method):
    x = normal(6, 8)
    how = ((5, 9), (0, 1), np.float32([0.7, 1.3]), np.float32([0.25, -1.0]), method)
    near(hloom.image.scale_and_translate(x, *how), jax.image.scale_and_translate(x, *how), 3e-5)
    gradient = hl.grad(lambda s: hloom.image.scale_and_translate(x, (5, 9), (0, 1), s, how[3], method).sum())
    wanted = jax.grad(lambda s: jax.image.scale_and_translate(x, (5, 9), (0, 1), s, how[3], method).sum())
    near(gradient(hnp.asarray(how[2])), wanted(how[2]), 1e-3)


@pytest.mark.parametrize("mode", ["constant", "nearest", "wrap", "mirror", "reflect"])
@pytest.mark.parametrize("order", [0, 1])
def test_map_coordinates(mode, order):
    x = normal(5, 6)
    points = [np.random.default_rng(k).uniform(-6, 12, 40).astype(np.float32) for k in range(2)]
    found = hloom.scipy.ndimage.map_coordinates(x, points, order, mode, 2.5)
    near(found, jax.scipy.ndimage.map_coordinates(x, points, order, mode, 2.5))
    whole = np.arange(30, dtype=np.int32).reshape(5, 6)
    found = hloom.scipy.ndimage.map_coordinates(whole, points, order, mode)
    near(found, jax.scipy.ndimage.map_coordinates(whole, points, order, mode))


# --- errors -------------------------------------------------------------------------------------------------------

X, K = np.ones((2, 8, 9, 3), np.float32), np.ones((3, 3, 3, 4), np.float32)


@pytest.mark.parametrize("call, error, text", [
    (lambda: lax.conv_general_dilated(X, K[0], (1, 1), "SAME"), ShapeError, "one rank"),
    (lambda: lax.conv_general_dilated(X, K, (1, 1), "SMAE"), AttributeValueError, "'SMAE'"),
    (lambda: lax.conv_general_dilated(X, K, (1,), "SAME"), AttributeValueError, "window_strides for each of 2"),
    (lambda: lax.conv_general_dilated(X, K, (1, 1), [(1, 1)]), AttributeValueError, "padding for each of 2"),
    (lambda: lax.conv_general_dilated(X, K, (1, 1), 3), ArgumentError, "padding as a name"),
    (lambda: lax.conv_general_dilated(X, K, 1, "SAME"), ArgumentError, "window_strides as a sequence"),
    (lambda: lax.conv_general_dilated(X, K, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO")), AttributeValueError,
     "three strings"),
    (lambda: lax.conv_general_dilated(X, K, (1, 1), "SAME", dimension_numbers=("NHWC", "HWOO", "NHWC")),
     AttributeValueError, "three strings of 4 different letters"),
    (lambda: lax.conv_general_dilated(X, K, (1, 1), "SAME"), ShapeError, "8 features"),
    (lambda: lax.reduce_window(X, 0.0, lax.add, (1, 2), None, "VALID"), AttributeValueError, "window_dimensions"),
    (lambda: lax.reduce_window((X, X), 0.0, lax.add, (1,) * 4, None, "VALID"), ShapeError, "an initial value for each"),
    (lambda: hloom.nn.pooling.max_pool(X, (2,) * 4), ShapeError, "4 window dimensions"),
    (lambda: hnp.convolve(X, X), ShapeError, "one-dimensional"),
    (lambda: hnp.convolve(X[0, 0, 0], X[0, 0, 0], "all"), AttributeValueError, "'full', 'same' or 'valid'"),
    (lambda: signal.convolve(X, X[0]), ShapeError, "one rank"),
    (lambda: signal.convolve(np.ones((2, 5)), np.ones((5, 2)), "valid"), ShapeError, "fits into the other"),
    (lambda: hloom.image.resize(X, (2, 4), "linear"), ShapeError, "the image's rank"),
    (lambda: hloom.image.resize(X, (2, 4, 4, 3), "linaer"), AttributeValueError, "'linaer'"),
    (lambda: hloom.scipy.ndimage.map_coordinates(X, [X], 1), ShapeError, "each dimension"),
])  # fmt: skip
def test_errors_say_what_was_asked_and_found(call, error, text):
    with pytest.raises(error, match=text) as caught:
        call()
    assert isinstance(caught.value, HloomError) and caught.value.asked and caught.value.repair
    assert caught.value.source.file.endswith("test_window_functions.py")
