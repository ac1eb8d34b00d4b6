"""Fourier transforms by cuFFT on the fake driver: which are its, what it is asked for, and when ours are taken."""

from __future__ import annotations

import cuda_cases as cases
import numpy as np
import pytest
from cuda_simulated import compiled
from fake_cufft import FakeCuFft
from library_cases import Setup

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.backends.cuda import autotuner
from hloom.backends.cuda.algorithms import OWN
from hloom.backends.cuda.autotuner import undecided
from hloom.compiler.cache import Cache
from hloom.compiler.targets.cuda import fft
from hloom.compiler.targets.cuda.libraries.fft import LibraryTransform
from hloom.runtime.cuda.errors import CudaLibraryError, CudaOutOfMemoryError
from hloom.runtime.cuda.libraries.load import LibraryMissing
from hloom.runtime.cuda.programs.executable import CAPTURES
from hloom.runtime.cuda.programs.program import Alternatives
from hloom.tracing.trace import bind

RANDOM = np.random.default_rng(5)


def array(*dims, dtype=np.float32):
    values = RANDOM.normal(size=dims)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * RANDOM.normal(size=dims)
    return values.astype(dtype)


def transform(kind: str, *lengths: int):
    return lambda x: bind("fft", x, fft_type=kind, fft_length=lengths)


@pytest.fixture
def setup(tmp_path, monkeypatch):
    return Setup(FakeCuFft, ("cufft", "cublas", "a copy"), tmp_path, monkeypatch)


Z = array(3, 12, dtype=np.complex64)
FFT = transform("FFT", 12)
LETTERS = {"FFT": "C2C", "IFFT": "C2C", "RFFT": "R2C", "IRFFT": "C2R"}
WIDE = {"C2C": "Z2Z", "R2C": "D2Z", "C2R": "Z2D"}


@pytest.mark.parametrize("kind", LETTERS)
@pytest.mark.parametrize("wide", [False, True], ids=["f32", "f64"])
@pytest.mark.parametrize("dims", [(12,), (2, 7), (4, 6), (2, 3, 2, 4)], ids=str)
def test_every_kind_in_one_to_three_dimensions(setup, kind, wide, dims):
    """The first number of four, and of (2, 7), is a batch."""
    lengths = dims[1:] if dims in ((2, 7), (2, 3, 2, 4)) else dims
    batch = dims[: len(dims) - len(lengths)]
    given = (*batch, *lengths[:-1], lengths[-1] // 2 + 1) if kind == "IRFFT" else dims
    real = np.float64 if wide else np.float32
    dtype = real if kind == "RFFT" else np.complex128 if wide else np.complex64
    asked, *again = setup.check(
        transform(kind, *lengths), array(*given, dtype=dtype), turns=2, tolerance=1e-12 if wide else 1e-5
    )
    letters = WIDE[LETTERS[kind]] if wide else LETTERS[kind]
    direction = {"FFT": (-1,), "IFFT": (1,)}.get(kind, ())
    assert asked == {"letters": letters, "lengths": lengths, "batch": (*batch, 1)[0], "direction": direction}
    assert again == [asked], "each address set is recorded once"
    assert setup.choice.taken == "cuFFT 12.5.0" and setup.choice.title.startswith(f"{kind} ")
    calls = [name for name in setup.library.calls if "scal" in name]
    assert bool(calls) == (kind in ("IFFT", "IRFFT")) and all(("Dscal" in name) == wide for name in calls)


def test_front_end_names_and_several_batches(setup):
    (asked,) = setup.check(lambda x: hnp.fft.fft(x), array(2, 3, 8, dtype=np.complex64))
    assert (asked["lengths"], asked["batch"]) == ((8,), 6)
    (asked,) = setup.check(lambda x: hnp.fft.rfft2(x), array(3, 4, 6))
    assert (asked["lengths"], asked["batch"]) == ((4, 6), 3)


def test_work_on_the_result_is_a_kernel_of_its_own(setup):
    (asked,) = setup.check(lambda x: hnp.abs(FFT(x)), Z)
    assert (asked["lengths"], asked["batch"]) == ((12,), 3)


OTHERS = {
    "numbers that are converted as they are read": (lambda x: hnp.fft.fft(x), array(3, 12)),
    "no elements": (FFT, array(0, 12, dtype=np.complex64)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_stays_ours(setup, name):
    run, _ = compiled(*OTHERS[name], choose=setup.choose)
    assert setup.chooser.choices == []
    setup.finish(run)


@pytest.mark.parametrize("work_bytes", [0, 1000])
def test_memory_to_work_in(setup, work_bytes):
    setup.prepare = lambda library: setattr(library, "work_bytes", work_bytes)
    setup.check(transform("IRFFT", 4, 6), array(4, 4, dtype=np.complex64))
    assert setup.choice.taken != OWN and ("cufftSetWorkArea" in setup.library.calls) == bool(work_bytes)


def test_arguments_at_ever_new_addresses(setup):
    setup.check(transform("IRFFT", 4, 6), array(4, 4, dtype=np.complex64), turns=CAPTURES + 2)


@pytest.mark.parametrize("version", [12020, 13000])
def test_in_a_loop(setup, version):
    def repeated(x):
        return lax.fori_loop(0, 3, lambda k, z: FFT(z), x)

    setup.check(repeated, Z, version=version, turns=2)
    assert setup.choice.taken != OWN


def test_two_transforms_of_one_kind_share_a_plan(setup):
    run, _ = compiled(lambda x, y: (FFT(x), FFT(y)), Z, array(3, 12, dtype=np.complex64), choose=setup.choose)
    assert [choice.taken for choice in setup.chooser.choices] == ["cuFFT 12.5.0"] * 2
    assert setup.library.calls.count("cufftMakePlanMany64") == 1
    setup.finish(run)


def test_a_long_transform_by_passes_against_one_plan(setup, monkeypatch):
    """Our passes have scratch memory and tables of their own, which a trial has to have too."""
    monkeypatch.setattr(fft, "SHARED", 0)
    (asked,) = setup.check(transform("FFT", 5, 12), array(5, 12, dtype=np.complex64))
    assert asked["lengths"] == (5, 12) and setup.choice.own_ms > 3 * 5.0, "several kernels"
    setup.cost = lambda what: 99.0 if what.startswith("cufft") else 1.0
    setup.cache = Cache(setup.folder / "slow")
    assert setup.check(transform("FFT", 5, 12), array(5, 12, dtype=np.complex64)) == []
    assert setup.choice.taken == OWN


# --- the choice ---


def test_the_faster_is_taken_and_kept(setup):
    setup.check(FFT, Z)
    choice = setup.choice
    assert choice.other_ms < choice.own_ms and "by cuFFT" in choice.why
    setup.cache = Cache(setup.folder)  # another process, where the library would lose by now
    setup.cost = lambda what: 20.0 if what.startswith("cufft") else 1.0
    (asked,) = setup.check(FFT, Z)
    assert asked and setup.choice == choice
    assert setup.library.calls.count("cufftExecC2C") == 1, "nothing is timed again"


def test_the_scaling_counts(setup):
    setup.cost = lambda what: 1.0 if what.startswith("cufft") else 99.0 if what.startswith("cublas") else 5.0
    assert setup.check(transform("IFFT", 12), Z) == []
    assert setup.choice.taken == OWN and setup.choice.other_ms > 99.0


def test_another_version_is_measured_anew(setup):
    setup.check(FFT, Z)
    real = FakeCuFft.__init__.__defaults__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeCuFft.__init__, "__defaults__", ((12, 6, 1), *real[1:]))
        setup.check(FFT, Z)
    assert setup.choice.taken == "cuFFT 12.6.1" and setup.library.calls.count("cufftExecC2C") > 1


def test_results_that_differ_are_not_taken(setup):
    setup.prepare = lambda library: setattr(library, "wrong", True)
    assert setup.check(FFT, Z) == []
    assert setup.choice.why == "results of cuFFT differ from ours"


def test_what_is_left_out_of_a_spectrum_has_to_be_the_same(setup):
    """The imaginary part of the constant term, which a spectrum of real numbers does not have."""
    setup.prepare = lambda library: setattr(library, "reads_imaginary", True)
    assert setup.check(transform("IRFFT", 12), array(3, 7, dtype=np.complex64)) == []
    assert "differ" in setup.choice.why


def test_lengths_that_the_library_does_not_take(setup):
    setup.prepare = lambda library: setattr(library, "supports", lambda lengths: False)
    for mode in ("measured", "always"):
        with hl.config(cuda_libraries=mode):
            assert setup.check(FFT, Z) == []
            assert setup.choice.why == "cuFFT does not take it"


def test_never_and_always(setup):
    with hl.config(cuda_libraries="never"):
        assert setup.check(FFT, Z) == []
        assert "never" in setup.choice.why and setup.library.calls == []
    setup.cost = lambda what: 99.0 if what.startswith("cufft") else 1.0
    with hl.config(cuda_libraries="always"):
        assert len(setup.check(FFT, Z)) == 1 and setup.choice.own_ms is None


def test_without_the_library(setup, monkeypatch):
    def load(name):
        raise LibraryMissing("libcufft.so.12 is not installed")

    monkeypatch.setattr(autotuner, "load_library", load)
    assert setup.check(FFT, Z) == []
    assert setup.choice.taken == OWN and setup.choice.why == "libcufft.so.12 is not installed"


def test_what_is_said_of_what_is_only_compiled():
    said = undecided(Alternatives(LibraryTransform("IRFFT", (4, 6), 3, "f32", "in0", "out0"), (), ()))
    assert said.title == "IRFFT complex64 of 4 x 6, 3 of them" and said.taken == OWN and "compiled only" in said.why


# --- failures ---


def test_a_plan_that_wants_more_memory_than_was_kept(setup):
    setup.check(FFT, Z)
    setup.cache = Cache(setup.folder)
    setup.prepare = lambda library: setattr(library, "work_bytes", 4096)
    run, _ = compiled(FFT, Z, choose=setup.choose)
    given = [run.device.put(Z, "z")]
    with pytest.raises(CudaLibraryError, match="works in 4,096 bytes, and in 512 when it was measured"):
        run(given)
    del given
    setup.finish(run)


@pytest.mark.parametrize("status", [5, 2])
def test_any_call_of_the_library_may_fail_while_it_is_measured(setup, status):
    function, given = transform("IRFFT", 4, 6), array(4, 4, dtype=np.complex64)
    run, _ = compiled(function, given, choose=setup.choose)
    calls = list(setup.library.calls)
    setup.finish(run)
    assert {"cufftCreate", "cufftMakePlanMany64", "cufftExecC2R", "cublasCreate_v2", "cublasSscal_v2_64"} <= {*calls}
    for number, name in enumerate(calls):
        setup.cache.clear()
        setup.prepare = lambda library, number=number: library.inject(number, status)
        setup.check(function, given)
        # What memory was missing for is asked for again once memory was given back.
        assert setup.choice.taken == OWN or status == 2, (number, name)
        if setup.choice.taken == OWN:
            assert f"({status})" in setup.choice.why and setup.choice.own_ms is None


def test_a_call_that_fails_when_the_program_runs(setup):
    x = array(4, 4, dtype=np.complex64)
    run, _ = compiled(transform("IRFFT", 4, 6), x, choose=setup.choose)
    given = [run.device.put(x, "x")]
    start = len(setup.library.calls)
    (out,) = run(given)
    names = setup.library.calls[start:]
    assert "cufftExecC2R" in names and "cublasSscal_v2_64" in names
    run.release()
    for number, name in enumerate(names):
        setup.library.inject(number, 6)
        with pytest.raises(CudaLibraryError, match=name) as caught:
            run(given)
        error = caught.value
        assert error.code == 6 and "cuda_libraries" in error.repair and "test_cuda_library_transforms" in error.source
        (out,) = run(given)
        found = cases.fetch(run.device, out, run.program.outputs[0])
        np.testing.assert_allclose(found, np.fft.irfft2(x, s=(4, 6)), rtol=1e-4, atol=1e-5)
        run.release()
    setup.library.inject(0, 2)
    (out,) = run(given)  # what is cached is given back, and it is asked again
    run.release()
    setup.library.inject(0, 2)
    setup.library.inject(1, 2)
    with pytest.raises(CudaOutOfMemoryError, match="CUFFT_ALLOC_FAILED"):
        run(given)
    del out, given
    setup.finish(run)


def test_a_device_that_is_closed_and_used_again(setup):
    x = array(3, 12, dtype=np.complex64)
    run, _ = compiled(transform("IFFT", 12), x, choose=setup.choose)
    for _ in range(2):
        given = [run.device.put(x, "x")]
        (out,) = run(given)
        found = cases.fetch(run.device, out, run.program.outputs[0])
        np.testing.assert_allclose(found, np.fft.ifft(x), rtol=1e-4, atol=1e-5)
        del out, given
        run.device.close()
        assert setup.library.leaks() == []
    setup.finish(run)
