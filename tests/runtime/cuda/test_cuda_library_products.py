"""Products by cublasLt on the fake driver: which are its, what it is asked for, and when our own kernels are taken."""

from __future__ import annotations

import json

import cuda_cases as cases
import ml_dtypes
import numpy as np
import pytest
from cuda_cases import finish
from cuda_simulated import compiled, simulated
from fake_cublas_lt import FakeCublasLt
from library_cases import Setup

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.backends import autotuner as mechanism
from hloom.backends.cuda import autotuner, compilation, devices, measurement
from hloom.backends.cuda.algorithms import OWN
from hloom.backends.cuda.autotuner import Chooser
from hloom.compiler.cache import Cache
from hloom.compiler.kernels.request import KernelRequest
from hloom.compiler.targets.cuda.codegen.compile import CudaCode
from hloom.compiler.targets.cuda.contractions.launches import contraction_sources
from hloom.compiler.targets.cuda.machine import machine_of
from hloom.errors import SettingError
from hloom.ir.module import Computation
from hloom.runtime.cuda.errors import CudaError, CudaLibraryError, CudaOutOfMemoryError
from hloom.runtime.cuda.libraries.load import LibraryMissing
from hloom.runtime.cuda.programs.executable import CAPTURES

RANDOM = np.random.default_rng(7)


def array(*dims, dtype=np.float32):
    return RANDOM.normal(size=dims).astype(dtype)


def bf16(*dims):
    return array(*dims, dtype=ml_dtypes.bfloat16)


def f16(*dims):
    return array(*dims, dtype=np.float16)


@pytest.fixture
def setup(tmp_path, monkeypatch):
    return Setup(FakeCublasLt, ("cublasLt",), tmp_path, monkeypatch)


X, W, B, C = array(10, 24), array(24, 12), array(12), array(10, 12)

PRODUCTS = {
    "plain": (lambda x, w: x @ w, X, W),
    "lhs transposed": (lambda x, w: x.T @ w, array(24, 10), W),
    "rhs transposed": (lambda x, w: x @ w.T, X, array(12, 24)),
    "both transposed": (lambda x, w: x.T @ w.T, array(24, 10), array(12, 24)),
    "one array twice": (lambda x: x.T @ x, X),
    "batched": (lambda x, w: x @ w, array(3, 10, 24), array(3, 24, 12)),
    "batched and transposed": (lambda x, w: hnp.einsum("bpi,bjp->bij", x, w), array(3, 24, 10), array(3, 12, 24)),
    "batch in the middle": (lambda x, w: hnp.einsum("ibp,pbj->bij", x, w), array(10, 3, 24), array(24, 3, 12)),
    "rhs for the whole batch": (lambda x, w: x @ w, array(3, 10, 24), W),
    "relu": (lambda x, w: hnp.maximum(x @ w, 0), X, W),
    "bias": (lambda x, w, b: x @ w + b, X, W, B),
    "bias and relu": (lambda x, w, b: hl.nn.relu(x @ w + b), X, W, B),
    "batched bias and relu": (lambda x, w, b: hl.nn.relu(x @ w + b), array(3, 10, 24), array(3, 24, 12), B),
    "bias by heads": (lambda x, w, b: (x @ w).reshape(2, 5, 3, 4) + b, X, W, array(3, 4)),
    "scaled": (lambda x, w: 0.125 * (x @ w), X, W),
    "added": (lambda x, w, c: x @ w + c, X, W, C),
    "everything": (lambda x, w, c, b: hl.nn.relu(2 * (x @ w) - 0.5 * c + b), X, W, C, B),
    "negated": (lambda x, w, c: c - x @ w, X, W, C),
    "f64": (lambda x, w: x @ w, X.astype(np.float64), W.astype(np.float64)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_all_forms(setup, name):
    products = setup.check(*PRODUCTS[name], turns=2)
    assert len(products) == 2, "each address set is recorded once"
    assert setup.choice.taken == "cublasLt 13.10.0" and "test" not in setup.choice.title


NARROW = {
    "bf16": (lambda x, w: x @ w, bf16(16, 24), bf16(24, 16)),
    "f16 with bias and relu": (lambda x, w, b: hl.nn.relu(x @ w + b), f16(16, 24), f16(24, 16), f16(16)),
    "bf16 into float32": (lambda x, w: lax.dot(x, w, preferred_element_type=hnp.float32), bf16(16, 24), bf16(24, 16)),
    "scaled float32 sums, rounded, relu": (
        lambda x, w: hl.nn.relu((3 * lax.dot(x, w, preferred_element_type=hnp.float32)).astype(hnp.bfloat16)),
        bf16(16, 24), bf16(24, 16),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NARROW)
def test_products_of_narrow_floats(setup, name):
    (product,) = setup.check(*NARROW[name], tolerance=2**-6)
    assert product["compute"] == 68 and setup.choice.taken != OWN


def test_tensor_cores_for_float32_only_where_asked_for(setup):
    (product,) = setup.check(lambda x, w: x @ w, X, W)
    assert product["compute"] == 68
    setup.cache = Cache(setup.folder / "tf32")
    (product,) = setup.check(lambda x, w: x @ w, X, W, tf32=True, tolerance=1e-2)
    assert product["compute"] == 77


def test_only_algorithms_with_the_same_bits_every_time(setup):
    setup.check(lambda x, w: x @ w, X, W)
    (asked,) = setup.library.asked
    assert asked["reduction_schemes"] == 2 and asked["align_a"] == asked["align_d"] == 16


OTHERS = {
    "gelu": (lambda x, w: hl.nn.gelu(x @ w), X, W),
    "two results": (lambda x, w: (x @ w, hnp.tanh(x @ w)), X, W),
    "work in front": (lambda x, w: (x * 2) @ w, X, W),
    "integers": (lambda x, w: x @ w, X.astype(np.int32), W.astype(np.int32)),
    "a bias after rounding": (
        lambda x, w, b: lax.dot(x, w, preferred_element_type=hnp.float32).astype(hnp.bfloat16) + b,
        bf16(16, 24), bf16(24, 16), bf16(16),
    ),
    "a factor after rounding": (
        lambda x, w: 3 * lax.dot(x, w, preferred_element_type=hnp.float32).astype(hnp.bfloat16),
        bf16(16, 24), bf16(24, 16),
    ),
    "bias along rows": (lambda x, w, b: x @ w + b[:, None], X, W, array(10)),
    "scaled after the bias": (lambda x, w, b: 2 * (x @ w + b), X, W, B),
    "maximum with another number": (lambda x, w: hnp.maximum(x @ w, 1), X, W),
    "two dtypes": (lambda x, w: lax.dot(x, w, preferred_element_type=hnp.float32), f16(16, 24), bf16(24, 16)),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_what_a_library_has_no_product_for(setup, name):
    run, module = compiled(*OTHERS[name], choose=setup.choose)
    assert setup.chooser.choices == []
    setup.finish(run)


@pytest.mark.parametrize("batch", [1, 3])
def test_elements_that_are_nowhere_side_by_side_are_not_for_a_library(batch):
    function = lambda x, w: lax.dot_general(x, w, (((1,), (1,)), ((2,), (2,))))  # noqa: E731
    module = hl.make_module(function)(array(10, 24, batch), array(12, 24, batch))
    (dot,) = [i for i in module.entry.instructions if i.opcode == "dot"]
    request = KernelRequest(Computation("dot", module.entry.parameters, module.entry.instructions, dot))
    (launch,) = contraction_sources(request, machine_of("sm_90"))
    assert (launch.choice is None) == (batch == 3)


def test_arguments_at_ever_new_addresses(setup):
    setup.check(lambda x, w, b: hl.nn.relu(x @ w + b), X, W, B, turns=CAPTURES + 2)


@pytest.mark.parametrize("version", [12020, 13000])
def test_in_a_loop(setup, version):
    def recurrent(w, x):
        return lax.fori_loop(0, 3, lambda k, h: hnp.maximum(h @ w, 0), x)

    setup.check(recurrent, array(8, 8) / 3, array(4, 8), version=version, turns=2)
    assert setup.choice.taken != OWN


def test_what_overwrites_an_argument(setup):
    arrays = [X, W, C]
    run, _ = compiled(lambda x, w, c: x @ w + c, *arrays, choose=setup.choose, donated=frozenset([2]))
    given = [run.device.put(a, "x") for a in arrays]
    (out,) = run(given)
    assert out is given[2] and setup.choice.taken != OWN
    np.testing.assert_allclose(cases.fetch(run.device, out, run.program.outputs[0]), X @ W + C, rtol=1e-5, atol=1e-5)
    del out, given
    setup.finish(run)


# --- the choice ---


def test_the_faster_is_taken_and_kept(setup):
    setup.cost = lambda what: {"cublasLt 0": 4.0, "cublasLt 1": 2.0, "cublasLt 2": 3.0}.get(what, 9.0)
    (product,) = setup.check(lambda x, w: x @ w, X, W)
    choice = setup.choice
    assert product["algorithm"] == 1, "the quickest of those that are proposed"
    assert choice.own_ms - choice.other_ms == pytest.approx(7.0) and choice.other_ms > 2.0
    assert choice.why == f"measured: {choice.own_ms:.4f} ms by own kernels, {choice.other_ms:.4f} ms by cublasLt"
    setup.cache = Cache(setup.folder)  # another process, where the library would lose by now
    setup.cost = lambda what: 20.0 if what.startswith("cublasLt") else 1.0
    (product,) = setup.check(lambda x, w: x @ w, X, W)
    assert product["algorithm"] == 1 and setup.choice == choice
    assert setup.library.asked == [], "nothing is asked or timed again"


def test_our_kernels_where_they_are_faster(setup):
    setup.cost = lambda what: 9.0 if what.startswith("cublasLt") else 2.0
    assert setup.check(lambda x, w: x @ w, X, W) == []
    assert setup.choice.taken == OWN and setup.choice.own_ms < setup.choice.other_ms
    (file,) = [path for path in setup.folder.iterdir() if path.name.startswith("choice-")]
    assert b'"algorithm": null' in file.read_bytes()


def test_another_driver_or_library_is_measured_anew(setup):
    setup.check(lambda x, w: x @ w, X, W)
    setup.prepare = lambda library: setattr(library, "version", 130200)
    setup.check(lambda x, w: x @ w, X, W)
    assert setup.library.asked and setup.choice.taken == "cublasLt 13.2.0"
    setup.check(lambda x, w: x @ w, X, W, version=13010)
    assert setup.library.asked
    setup.check(lambda x, w: x @ w, X, W, version=13010)
    assert not setup.library.asked


def test_a_product_whose_sums_are_cut_is_one_step_of_the_library(setup):
    run, _ = compiled(lambda x, w: x @ w, array(4, 1024), array(1024, 4), choose=setup.choose)
    assert len(run.program.steps) == 1 and setup.choice.taken != OWN
    setup.finish(run)
    with hl.config(cuda_libraries="never"):
        run, _ = compiled(lambda x, w: x @ w, array(4, 1024), array(1024, 4), choose=setup.choose)
        assert len(run.program.steps) == 2, "one for the parts, one that adds them"
        setup.finish(run)


def test_two_processes_that_measure_at_once_take_one_choice(setup, monkeypatch):
    real = Chooser._measure

    def measure(self, *arguments):
        found = real(self, *arguments)
        Cache(setup.folder).put_first(
            self._key(arguments[0], arguments[2]), json.dumps(found | {"algorithm": None}).encode()
        )
        return found

    monkeypatch.setattr(Chooser, "_measure", measure)
    assert setup.check(lambda x, w: x @ w, X, W) == []
    assert setup.choice.taken == OWN, "the other was first"


def test_results_that_differ_are_not_taken(setup):
    setup.prepare = lambda library: library.wrong.update({0, 1, 2})
    assert setup.check(lambda x, w: x @ w, X, W) == []
    assert setup.choice.why == "results of cublasLt differ from ours"


def test_an_algorithm_whose_results_differ_is_not_taken(setup):
    setup.prepare = lambda library: library.wrong.update({0, 1})
    (product,) = setup.check(lambda x, w: x @ w, X, W)
    assert product["algorithm"] == 2


def test_a_relu_that_forgets_nan_is_not_taken(setup):
    setup.prepare = lambda library: setattr(library, "forgets_nan", True)
    assert setup.check(lambda x, w: hl.nn.relu(x @ w), X, W) == []
    assert "differ" in setup.choice.why


# --- settings, and what is missing ---


def test_never_and_always(setup):
    with hl.config(cuda_libraries="never"):
        assert setup.check(lambda x, w: x @ w, X, W) == []
        assert "never" in setup.choice.why and setup.library.calls == []
    setup.cost = lambda what: 99.0 if what.startswith("cublasLt") else 1.0
    with hl.config(cuda_libraries="always"):
        (product,) = setup.check(lambda x, w: x @ w, X, W)
        assert product["algorithm"] == 0 and setup.choice.own_ms is None and "always" in setup.choice.why


def test_another_setting_is_refused():
    with pytest.raises(SettingError, match="'measured', 'never' or 'always'"):
        hl.config.cuda_libraries = "sometimes"


def test_without_a_folder_nothing_is_measured(setup):
    setup.cache = Cache(None)
    assert setup.check(lambda x, w: x @ w, X, W) == []
    assert "no folder" in setup.choice.why


def test_without_the_library(setup, monkeypatch):
    def load(name):
        raise LibraryMissing("libcublasLt.so.13 is not installed")

    monkeypatch.setattr(autotuner, "load_library", load)
    setup.check(lambda x, w: x @ w, X, W)
    assert setup.choice.taken == OWN and setup.choice.why == "libcublasLt.so.13 is not installed"


def test_a_product_that_the_library_does_not_have(setup):
    setup.prepare = lambda library: setattr(library, "supports", lambda operation, layouts: False)
    for mode in ("measured", "always"):
        with hl.config(cuda_libraries=mode):
            assert setup.check(lambda x, w: x @ w, X, W) == []
            assert setup.choice.why == "cublasLt has no algorithm for it"


def test_what_is_decided_is_printed(setup, capsys):
    with hl.config(debug=1):
        setup.check(lambda x, w, b: hl.nn.relu(x @ w + b), X, W, B)
    assert "hloom: product f32 10 x 24 by 24 x 12, bias, relu: cublasLt 13.10.0; measured:" in capsys.readouterr().err


# --- failures ---


# Every call, or every seventh.
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), pytest.param(7, marks=pytest.mark.sample)])
@pytest.mark.parametrize("status", [13, 3])
def test_any_call_of_the_library_may_fail_while_it_is_measured(setup, status, step):
    function = lambda x, w, b: x @ w + b  # noqa: E731
    run, _ = compiled(function, X, W, B, choose=setup.choose)
    calls = list(setup.library.calls)
    setup.finish(run)
    assert len(calls) > 80
    for number, name in list(enumerate(calls))[::step]:
        if "Destroy" in name:  # of memory of the host: it has no consequence but a leak
            continue
        setup.cache.clear()
        setup.prepare = lambda library, number=number: library.inject(number, status)
        setup.check(function, X, W, B)
        # What memory was missing for is asked for again once memory was given back.
        assert setup.choice.taken == OWN or status == 3, (number, name)
        if setup.choice.taken == OWN:
            assert f"({status})" in setup.choice.why and setup.choice.own_ms is None


@pytest.mark.parametrize("status", [13, 14])
def test_a_call_that_fails_when_the_program_runs(setup, status):
    run, _ = compiled(lambda x, w: x @ w, X, W, choose=setup.choose)
    given = [run.device.put(a, "x") for a in (X, W)]
    start = len(setup.library.calls)
    (out,) = run(given)
    names = setup.library.calls[start:]
    assert "cublasLtMatmul" in names
    run.release()
    for number, name in enumerate(names):
        if "Destroy" in name:
            continue
        setup.library.inject(number, status)
        with pytest.raises(CudaLibraryError) as caught:
            run(given)
        error = caught.value
        assert error.code == status and error.name.startswith("CUBLAS_STATUS_") and "version 13.10.0" in error.found
        assert "cuda_libraries" in error.repair and "test_cuda_library_products.py" in error.source
        (out,) = run(given)
        np.testing.assert_allclose(cases.fetch(run.device, out, run.program.outputs[0]), X @ W, rtol=1e-4, atol=1e-5)
        run.release()
    del out, given
    setup.finish(run)


def test_memory_that_runs_out_in_the_library(setup):
    """Once: what is cached is given back, and it is asked again. Twice: an error."""
    run, _ = compiled(lambda x, w: x @ w, X, W, choose=setup.choose)
    given = [run.device.put(a, "x") for a in (X, W)]
    setup.library.inject(0, 3)
    (out,) = run(given)
    run.release()
    setup.library.inject(0, 3)
    setup.library.inject(1, 3)
    with pytest.raises(CudaOutOfMemoryError, match="ALLOC_FAILED"):
        run(given)
    del out, given
    setup.finish(run)


def test_a_device_that_is_closed_and_used_again(setup):
    run, _ = compiled(lambda x, w: x @ w, X, W, choose=setup.choose)
    for _ in range(2):
        given = [run.device.put(a, "x") for a in (X, W)]
        (out,) = run(given)
        np.testing.assert_allclose(cases.fetch(run.device, out, run.program.outputs[0]), X @ W, rtol=1e-4, atol=1e-5)
        del out, given
        run.device.close()
        assert setup.library.leaks() == []
    setup.finish(run)


def test_memory_that_runs_out_while_measuring(setup, monkeypatch):
    def none(self, *arguments):
        raise CudaOutOfMemoryError("arrays for timing were asked for", "there is no room", "free arrays")

    monkeypatch.setattr(measurement.MeasuredStep, "arguments", none)
    setup.check(lambda x, w: x @ w, X, W)
    assert setup.choice.taken == OWN and "could not be measured" in setup.choice.why and "no room" in setup.choice.why
    monkeypatch.undo()
    setup.cache, first = Cache(setup.folder), setup.choice
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mechanism, "default_cache", lambda: setup.cache)
        patch.setattr(autotuner, "load_library", lambda name: setup.library)
        setup.check(lambda x, w: x @ w, X, W)
    assert setup.choice == first, "bits stay the same"


def test_the_errors_are_the_runtimes():
    assert issubclass(CudaLibraryError, CudaError)


# --- looking in ---


def test_a_compiled_function_says_what_was_taken(setup, monkeypatch):
    device = cases.device()
    sources = []

    def codes(found, arch, cache):
        made = []
        for source in found:
            name = f"{source.name}_{len(sources)}"
            sources.append(source)
            device.fake.kernels[name] = simulated(device.fake, name, source)
            made.append(CudaCode(name, arch, f"cubin {name}".encode(), "", 32, 0, 0, 0))
        return made

    monkeypatch.setattr(compilation, "cubins", codes)
    monkeypatch.setattr(devices, "_devices", {0: device})
    compiled_module = compilation.compile_for_cuda(hl.make_module(lambda x, w: x @ w)(X, W))
    (said,) = compiled_module.cost_analysis()["choices"]
    assert said["taken"] == OWN and "compiled only" in said["why"] and said["own_ms"] is None
    setup.choose(device)  # the library
    (found,) = compiled_module([X, W])
    np.testing.assert_allclose(found, X @ W, rtol=1e-5, atol=1e-5)
    (said,) = compiled_module.cost_analysis()["choices"]
    assert said["taken"] == "cublasLt 13.10.0" and 0 < said["other_ms"] < said["own_ms"]
    assert compiled_module.source().startswith("# product f32 10 x 24 by 24 x 12: cublasLt 13.10.0; measured:")
    del compiled_module
    finish(device)
    assert setup.library.leaks() == []
