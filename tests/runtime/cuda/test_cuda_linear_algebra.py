"""Linear algebra on the fake driver: routines of cuSOLVER between kernels, against the reference interpreter."""

from __future__ import annotations

import re
from pathlib import Path

import cuda_cases as cases
import numpy as np
import pytest
from cuda_cases import finish
from cuda_simulated import compiled
from fake_cusolver import FakeSolver

import hloom as hl
import hloom.numpy as hnp
from hloom import lax
from hloom.backends.cuda import autotuner
from hloom.backends.cuda.autotuner import ON_HOST, Chooser
from hloom.backends.cuda.kind import CudaKind
from hloom.backends.cuda.runner import CudaRunner
from hloom.backends.text import program_text
from hloom.compiler.pipeline import PIPELINE, run_passes
from hloom.compiler.targets.cuda.target import CudaTarget
from hloom.ir import interpret
from hloom.ir.text import parse_module, print_module
from hloom.ir.types import Shape
from hloom.runtime.cuda.array import DeviceArray
from hloom.runtime.cuda.errors import CudaError, CudaLibraryError
from hloom.runtime.cuda.libraries import cusolver
from hloom.runtime.cuda.libraries.cusolver import CuSolver, RoutineCall
from hloom.runtime.cuda.libraries.load import LibraryMissing, load_library
from hloom.runtime.cuda.programs.program import Alternatives, CudaProgram
from hloom.tracing.trace import bind

RANDOM = np.random.default_rng(11)


def array(*dims, dtype=np.float32):
    values = RANDOM.normal(size=dims)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * RANDOM.normal(size=dims)
    return values.astype(dtype)


def positive(*dims, dtype=np.float32):
    a = array(*dims, dtype=dtype)
    return (a @ a.conj().swapaxes(-1, -2) + 3 * np.eye(dims[-1])).astype(dtype)


class Setup:
    def __init__(self):
        self.library: FakeSolver | None = None
        self.chooser: Chooser | None = None

    def choose(self, device) -> Chooser:
        self.library = FakeSolver(device.fake)
        self.chooser = Chooser(device)
        return self.chooser

    def run(self, function, *arrays, turns: int = 1, **options):
        """(results on the device, those of the reference interpreter); nothing is left behind."""
        run, module = compiled(function, *arrays, choose=self.choose, **options)
        with np.errstate(all="ignore"):
            wanted = interpret.evaluate(module.entry, list(arrays))
        kept = []
        for _ in range(turns):
            given = [DeviceArray.put(run.device, a, f"argument {k}").buffer for k, a in enumerate(arrays)]
            results = run(given)
            shapes = run.program.outputs
            found = [DeviceArray(run.device, b, s).numpy() for b, s in zip(results, shapes, strict=True)]
            kept.append((given, results))
        del given, results, kept
        finish(run.device)
        assert self.library.violations == [] and self.library.leaks() == []
        return found, list(wanted) if isinstance(wanted, tuple) else [wanted]

    def check(self, function, *arrays, **options) -> None:
        found, wanted = self.run(function, *arrays, **options)
        for got, want in zip(found, wanted, strict=True):
            assert got.dtype == want.dtype and got.shape == want.shape
            bound = 1e-9 if got.dtype.name in ("float64", "complex128") else 3e-3 if got.dtype.itemsize == 2 else 2e-4
            np.testing.assert_allclose(got, want, rtol=bound, atol=bound)


@pytest.fixture
def setup(monkeypatch):
    made = Setup()

    def load(name):
        if name == "cublasLt":
            raise LibraryMissing("products are tested elsewhere")
        return made.library

    monkeypatch.setattr(autotuner, "load_library", load)
    return made


KINDS = pytest.mark.parametrize(
    "dtype", [np.float32, np.float64, np.complex64, np.complex128], ids=lambda d: d.__name__
)
TRIANGLES = pytest.mark.parametrize("lower", [False, True], ids=["upper", "lower"])
SHAPES = pytest.mark.parametrize("dims", [(5, 3), (3, 5), (4, 4), (2, 5, 3)], ids=str)


@KINDS
@TRIANGLES
def test_cholesky(setup, dtype, lower):
    a = positive(2, 5, 5, dtype=dtype)
    a += np.triu(array(5, 5), 1) if lower else np.tril(array(5, 5), -1)  # the other triangle is not read
    setup.check(lambda a: bind("cholesky", a, lower=lower), a, turns=2)


def test_cholesky_of_what_has_no_factor(setup):
    a = positive(4, 3, 3)
    a[1] *= -1
    a[2, 2, 0] = np.nan
    a[3, 0, 0] = np.inf
    found, wanted = setup.run(lambda a: bind("cholesky", a, lower=True), a)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5, atol=1e-5)
    assert [bool(np.isnan(part).any()) for part in found[0]] == [False, True, True, True]


@KINDS
@pytest.mark.parametrize("side", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("how", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
def test_triangular_solve(setup, dtype, side, how):
    a = (array(2, 4, 4, dtype=dtype) + 4 * np.eye(4)).astype(dtype)
    b = array(2, 4, 3, dtype=dtype) if side else array(2, 3, 4, dtype=dtype)
    for lower, unit in ((False, False), (True, False), (False, True), (True, True)):
        attributes = {"left_side": side, "lower": lower, "unit_diagonal": unit, "transpose_a": how}
        setup.check(lambda a, b, attributes=attributes: bind("triangular-solve", a, b, **attributes), a, b)


def test_triangular_solve_of_narrow_floats(setup):
    a, b = (np.eye(4) * 2 + np.eye(4, k=-1)).astype(np.float16), array(4, 2, dtype=np.float16)
    setup.check(lambda a, b: bind("triangular-solve", a, b, left_side=True, lower=True), a, b)


@KINDS
@SHAPES
def test_lu(setup, dtype, dims):
    setup.check(lambda a: tuple(lax.linalg.lu(a)), array(*dims, dtype=dtype))


@KINDS
@SHAPES
@pytest.mark.parametrize("full", [False, True], ids=["reduced", "full"])
def test_qr(setup, dtype, dims, full):
    setup.check(lambda a: tuple(lax.linalg.qr(a, full_matrices=full)), array(*dims, dtype=dtype))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_pivots_to_permutation(setup, dtype):
    pivots = np.array([[2, 2, 4], [0, 1, 2]], dtype)
    setup.check(lambda p: lax.linalg.lu_pivots_to_permutation(p, 5), pivots)


@KINDS
def test_solve(setup, dtype):
    a = array(3, 4, 4, dtype=dtype)
    a[1] = np.ones((4, 4))  # singular: NaN alone
    found, wanted = setup.run(lambda a, b: bind("solve", a, b), a, array(3, 4, 2, dtype=dtype))
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-3, atol=1e-4)
    assert np.isnan(found[0][1]).all() and not np.isnan(found[0][[0, 2]]).any()


@KINDS
def test_determinants(setup, dtype):
    a = array(4, 3, 3, dtype=dtype)
    a[1, 0] = a[1, 1]
    setup.check(lambda a: hnp.linalg.det(a), a)


@KINDS
@pytest.mark.parametrize("dims", [(5, 3), (2, 4, 4)], ids=str)
def test_reflectors_and_their_product(setup, dtype, dims):
    setup.check(lambda a: lax.linalg.householder_product(*lax.linalg.geqrf(a)), array(*dims, dtype=dtype))


@KINDS
@TRIANGLES
def test_eigh(setup, dtype, lower):
    a = positive(2, 5, 5, dtype=dtype)
    found, wanted = setup.run(lambda a: tuple(bind("eigh", a, lower=lower)), a)
    values, vectors = found
    np.testing.assert_allclose(values, wanted[0], rtol=1e-4)
    np.testing.assert_allclose(a @ vectors, vectors * values[:, None, :], rtol=1e-4, atol=1e-3)


@KINDS
@SHAPES
@pytest.mark.parametrize("full", [False, True], ids=["reduced", "full"])
def test_svd(setup, dtype, dims, full):
    a = array(*dims, dtype=dtype)
    found, wanted = setup.run(lambda a: tuple(bind("svd", a, full_matrices=full, compute_uv=True)), a)
    for got, want in zip(found, wanted, strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
    u, values, vh = found
    np.testing.assert_allclose(values, wanted[1], rtol=1e-4, atol=1e-4)
    k = values.shape[-1]
    np.testing.assert_allclose((u[..., :k] * values[..., None, :]) @ vh[..., :k, :], a, rtol=1e-4, atol=1e-4)
    for basis in (u.conj().swapaxes(-1, -2) @ u, vh @ vh.conj().swapaxes(-1, -2)):
        np.testing.assert_allclose(basis, np.broadcast_to(np.eye(basis.shape[-1]), basis.shape), atol=1e-4)
    assert not np.array_equal(u, a)


@SHAPES
def test_singular_values_alone(setup, dims):
    setup.check(lambda a: hnp.linalg.svd(a, compute_uv=False), array(*dims))


@pytest.mark.parametrize("function", [
    lambda a: tuple(bind("eigh", a)), lambda a: tuple(bind("svd", a, compute_uv=True)),
    lambda a: hnp.linalg.svd(a, compute_uv=False),
])  # fmt: skip
def test_a_matrix_with_an_infinity_is_nan_alone(setup, function):
    a = positive(3, 4, 4)
    a[1, 2, 2] = np.inf
    found, wanted = setup.run(function, a)
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        assert np.isnan(got[1]).all() and not np.isnan(got[[0, 2]]).any()


@pytest.mark.parametrize("function", [
    lambda a: bind("cholesky", a, lower=True), lambda a: tuple(bind("eigh", a)),
    lambda a: tuple(bind("svd", a, compute_uv=True)),
])  # fmt: skip
def test_what_the_library_says_has_failed_is_nan(setup, monkeypatch, function):
    real = setup.choose

    def choose(device):
        chooser = real(device)
        setup.library.info = 1
        return chooser

    monkeypatch.setattr(setup, "choose", choose)
    found, _ = setup.run(function, positive(3, 3))
    assert all(np.isnan(part).any() for part in found)


def test_a_gradient_and_kernels_around(setup):
    def loss(a, b):
        x = hnp.linalg.solve(a @ a.T + 3 * hnp.eye(4), hnp.tanh(b))
        return (x**2).sum() + hnp.log(hnp.diagonal(lax.linalg.cholesky(a @ a.T + hnp.eye(4)))).sum()

    setup.check(hl.grad(loss, argnums=(0, 1)), array(4, 4), array(4, 2))


@pytest.mark.parametrize("version", [12020, 13000])
def test_in_a_loop_which_the_host_runs(setup, version):
    def function(a):
        return lax.fori_loop(0, 3, lambda k, x: lax.linalg.cholesky(x @ x.T + hnp.eye(3)), a)

    setup.check(function, array(3, 3), version=version, turns=2)


# --- what is missing, and failures ---


def function_of(a):
    return lax.linalg.cholesky(a, symmetrize_input=False)


def _no_library(name):
    raise LibraryMissing(f"no {name}: it is not there")


def test_without_the_library(setup, monkeypatch):
    monkeypatch.setattr(autotuner, "load_library", _no_library)
    with pytest.raises(CudaLibraryError) as caught:
        compiled(function_of, positive(3, 3), choose=setup.choose)
    text = str(caught.value)
    assert "potrf f32[3,3] on cuda:0" in text and "no cusolver" in text and "soft placement" in text
    assert "hloom[cuda-libraries]" in text and "test_cuda_linear_algebra.py" in text
    with hl.config(soft_placement=True):
        setup.check(function_of, positive(3, 3))
        (choice,) = setup.chooser.choices
        assert choice.taken == ON_HOST and choice.why.endswith("soft placement")


def test_never(setup):
    with hl.config(cuda_libraries="never"), pytest.raises(CudaLibraryError, match="never"):
        compiled(function_of, positive(3, 3), choose=setup.choose)


def test_placement_asks_whether_the_library_is_there(setup, monkeypatch):
    module = hl.make_module(function_of)(positive(3, 3))
    (instruction,) = [i for i in module.entry.instructions if i.opcode == "cholesky"]
    setup.library = object()
    assert CudaKind().has_kernel(instruction)
    with hl.config(cuda_libraries="never"):
        assert not CudaKind().has_kernel(instruction)
    monkeypatch.setattr(autotuner, "load_library", _no_library)
    assert not CudaKind().has_kernel(instruction)


def test_the_text_of_a_program_with_routines():
    module = run_passes(hl.make_module(function_of)(positive(3, 3)), PIPELINE, target=CudaTarget("sm_90"))
    text = print_module(module)
    assert 'custom_call_target="routine.potrf/U"' in text and print_module(parse_module(text)) == text
    assert '"routine.potrf/U"' in program_text(module) and "routine.potrf/U" in program_text(module, "stablehlo")


def test_before_a_device_has_loaded_it_a_program_says_so():
    matrix, info = Shape("f32", (3, 3)), Shape("s32", ())
    step = Alternatives(RoutineCall("potrf", "U", (matrix,), (matrix, info)), (), ())
    (choice,) = CudaRunner(CudaProgram("f", (step,), [], 0, [], []), "sm_90").choices
    assert (choice.title, choice.taken) == ("potrf f32[3,3]", "cuSOLVER") and choice.why.startswith("compiled only")


def test_what_is_taken_is_said(setup):
    setup.check(function_of, positive(3, 3))
    (choice,) = setup.chooser.choices
    assert (choice.title, choice.taken) == ("potrf f32[3,3]", "cuSOLVER 12.4.1")


@pytest.mark.parametrize("status", [6, 2])
def test_any_call_of_the_library_may_fail(setup, status):
    functions = lambda a: (function_of(a), hnp.linalg.svd(a, compute_uv=False), tuple(lax.linalg.lu(a)))  # noqa: E731
    a = positive(3, 3)
    setup.run(functions, a)
    calls = [name for name in setup.library.calls if "Destroy" not in name]
    assert len(calls) > 14
    real = setup.choose
    told = 0
    for number, _ in enumerate(calls):

        def choose(device, number=number):
            chooser = real(device)
            setup.library.inject(number, status)
            return chooser

        setup.choose = choose
        try:
            run, _ = compiled(functions, a, choose=setup.choose)
        except CudaError as error:
            assert error.code == status and error.asked and "test_cuda_linear_algebra.py" in error.source
            finish(setup.chooser.device)
            assert setup.library.leaks() == []
            told += 1
            continue
        given = [run.device.put(a, "a")]
        try:
            run(given)
        except CudaError as error:
            assert error.code == status and error.asked and "test_cuda_linear_algebra.py" in error.source
            told += 1
        results = run(given)
        found = cases.fetch(run.device, results[0], run.program.outputs[0])
        np.testing.assert_allclose(found, np.linalg.cholesky(a), rtol=1e-4, atol=1e-5)
        del given, results
        finish(run.device)
        assert setup.library.leaks() == []
    assert told == len(calls)


# --- the real headers and libraries ---


@pytest.fixture(scope="module")
def real():
    try:
        return load_library("cusolver"), load_library("cublas")
    except LibraryMissing as missing:
        pytest.skip(f'{missing}: pip install "hloom[cuda-libraries]"')


def test_functions_are_those_of_the_headers(real):
    headers = Path(real[0]._name).parent.parent / "include"
    if not (headers / "cusolverDn.h").exists():
        pytest.skip(f"no cusolverDn.h in {headers}")
    text = (headers / "cusolverDn.h").read_text() + (headers / "cublas_api.h").read_text()
    for name, parameters in cusolver._PARAMETERS.items():
        base = name.removesuffix("_bufferSize")
        for prefix in "SDCZ":
            full = cusolver._COMPLEX_NAMES.get(base, base) if prefix in "CZ" else base
            full = f"cublas{prefix}{full}_v2" if base == "trsm" else f"cusolverDn{prefix}{full}{name[len(base) :]}"
            (found,) = re.findall(rf"\b{full}\s*\(([^)]*)\)\s*;", text)
            kinds = "".join(_kind(parameter) for parameter in found.split(","))
            assert kinds == parameters, full
            assert getattr(real[1 if base == "trsm" else 0], full)


def _kind(parameter: str) -> str:
    """Of a parameter in C, as `cusolver._PARAMETERS` says it."""
    if "Handle_t" in parameter:
        return "h"
    if "*" in parameter:
        return "p"
    return "c" if "signed char" in parameter else "i"


def test_the_version_of_the_real_library(real):
    assert CuSolver(*real, None).version.startswith("12.")
