"""hnp.fft, lax.fft and hloom.scipy.fft: numbers against NumPy and SciPy, derivatives, jit, vmap, and errors."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.errors import ArgumentError, DTypeError, HloomError, ShapeError
from hloom.scipy import fft as cosine

RNG = np.random.default_rng(0)
REAL = RNG.normal(size=(3, 4, 6))
COMPLEX = REAL + 1j * RNG.normal(size=(3, 4, 6))


def near(found, wanted):
    found = np.asarray(found)
    assert found.shape == wanted.shape
    tolerance = 1e-5 if found.dtype in (np.float32, np.complex64) else 1e-12
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * max(1, np.abs(wanted).max(initial=0)))


@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
@pytest.mark.parametrize("single", [False, True])
def test_transforms_are_those_of_numpy(norm, single):
    for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
        x = REAL if name in ("rfft", "ihfft") else COMPLEX
        if single:
            x = x.astype(np.complex64 if x.dtype.kind == "c" else np.float32)
        for axis in (-1, 0, 1):
            for n in (None, 3, 7, 8):
                found = getattr(hnp.fft, name)(hnp.asarray(x), n, axis, norm)
                near(found, getattr(np.fft, name)(x, n, axis, norm))
                assert (np.asarray(found).dtype.itemsize in (4, 8)) == single or found.dtype == np.float64
    for name in ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn"):
        x = REAL if name.startswith("rfft") else COMPLEX
        for s, axes in ((None, (-2, -1)), ((5, 3), (0, 2)), ((2, 8), (1, 0))):
            near(getattr(hnp.fft, name)(hnp.asarray(x), s, axes, norm), getattr(np.fft, name)(x, s, axes, norm))


def test_any_number_of_axes():
    x = RNG.normal(size=(2, 3, 2, 4, 3)) + 1j
    near(hnp.fft.fftn(hnp.asarray(x)), np.fft.fftn(x))
    near(hnp.fft.ifftn(hnp.asarray(x)), np.fft.ifftn(x))
    near(hnp.fft.rfftn(hnp.asarray(x.real.copy())), np.fft.rfftn(x.real))
    near(hnp.fft.irfftn(hnp.asarray(x)), np.fft.irfftn(x, axes=range(5)))


def test_integers_and_narrow_floats_are_transformed_in_float():
    assert hnp.fft.fft(hnp.arange(4)).dtype == np.complex64
    assert hnp.fft.rfft(hnp.ones(4, "bf16")).dtype == np.complex64
    assert hnp.fft.fft(hnp.asarray(np.arange(4))).dtype == np.complex128


def test_large_single_precision_transforms_stay_in_single():
    x = RNG.normal(size=8192).astype(np.float32)
    found = hnp.fft.rfft(hnp.asarray(x))
    assert found.dtype == np.complex64
    np.testing.assert_allclose(np.asarray(found), np.fft.rfft(x.astype(np.float64)), atol=1e-3)


def test_frequencies_and_shifts():
    for n in (1, 4, 5):
        near(hnp.fft.fftfreq(n, 0.5), np.fft.fftfreq(n, 0.5).astype(np.float32))
        near(hnp.fft.rfftfreq(n, 0.5, dtype="f64"), np.fft.rfftfreq(n, 0.5))
    for axes in (None, 0, (0, 2)):
        near(hnp.fft.fftshift(hnp.asarray(REAL), axes), np.fft.fftshift(REAL, axes))
        near(hnp.fft.ifftshift(hnp.fft.fftshift(hnp.asarray(REAL), axes), axes), REAL)


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "fftn", "irfftn", "hfft"])
def test_derivatives_jit_and_vmap(name):
    x = REAL[0] if name == "rfft" else COMPLEX[0]
    function = getattr(hnp.fft, name)

    def loss(v):
        return (hnp.abs(function(v)) ** 2 * hnp.arange(1.0, function(v).shape[-1] + 1)).sum()

    direction = RNG.normal(size=x.shape) + (0 if name == "rfft" else 1j)
    step = 1e-6
    numeric = (loss(hnp.asarray(x + step * direction)) - loss(hnp.asarray(x - step * direction))) / (2 * step)
    gradient = hl.jit(hl.grad(loss))(hnp.asarray(x))
    np.testing.assert_allclose(np.real(np.sum(np.asarray(gradient) * direction)), numeric, rtol=1e-6)
    mapped = hl.vmap(function)(hnp.asarray(np.stack([x, 2 * x])))
    near(mapped[1], np.asarray(function(hnp.asarray(2 * x))))


def test_lax_fft_takes_types_by_name_and_number():
    x = hnp.asarray(COMPLEX)
    for kind in ("FFT", "fft", lax.FftType.FFT, 0):
        near(lax.fft(x, kind, (4, 6)), np.fft.fftn(COMPLEX, axes=(1, 2)))
    near(lax.fft(hnp.asarray(REAL), lax.FftType.RFFT, 6), np.fft.rfft(REAL))


@pytest.mark.parametrize("type_", [1, 2, 3, 4])
@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
def test_cosine_transforms_are_those_of_scipy(type_, norm):
    for n in (2, 5, 8):
        x = RNG.normal(size=(3, n))
        for name in ("dct", "idct"):
            found = getattr(cosine, name)(hnp.asarray(x), type_, norm=norm)
            near(found, getattr(scipy.fft, name)(x, type_, norm=norm))
    near(cosine.dctn(hnp.asarray(REAL), type_, (3, 8), (0, 1), norm), scipy.fft.dctn(REAL, type_, (3, 8), (0, 1), norm))
    near(cosine.idctn(cosine.dctn(hnp.asarray(REAL), type_, norm=norm), type_, norm=norm), REAL)


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda: hnp.fft.rfft(hnp.ones(3, "c64")), DTypeError),
        (lambda: hnp.fft.fft(hnp.ones(3), norm="both"), ArgumentError),
        (lambda: hnp.fft.fft(hnp.ones(3), n=0), ShapeError),
        (lambda: hnp.fft.fft(hnp.ones(3), axis=1), ShapeError),
        (lambda: hnp.fft.fft(hnp.ones(0)), ShapeError),
        (lambda: hnp.fft.fft2(hnp.ones((3, 3)), axes=(0,)), ShapeError),
        (lambda: hnp.fft.fftn(hnp.ones((3, 3)), s=(2, 2), axes=(0,)), ShapeError),
        (lambda: hnp.fft.fftfreq(0), ArgumentError),
        (lambda: hnp.fft.fftfreq(4, dtype="s32"), DTypeError),
        (lambda: lax.fft(hnp.ones(3, "c64"), "DST", (3,)), ArgumentError),
        (lambda: lax.fft(hnp.ones(3, "c64"), "FFT", (4,)), ShapeError),
        (lambda: cosine.dct(hnp.ones(3), type=5), ArgumentError),
        (lambda: cosine.dct(hnp.ones(3, "c64")), DTypeError),
        (lambda: cosine.dct(hnp.ones(1), type=1), ShapeError),
    ],
)
def test_errors_say_what_is_wrong(call, error):
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value, HloomError)
    assert caught.value.asked and caught.value.found and caught.value.repair and caught.value.source is not None
