"""Kernels of Fourier transforms: numbers against NumPy in double precision, derivatives, threads, and their text."""

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.compiler.schedule.steps import HostStep, KernelStep
from hloom.compiler.targets.cpu.codegen import assembly
from hloom.compiler.targets.cpu.fft.names import parameters
from hloom.compiler.targets.cpu.fft.parts import pass_kernel
from hloom.compiler.targets.cpu.fft.transforms import Form, kernel_of, pass_names
from hloom.compiler.targets.cpu.fft.twiddles import radices_of, roots
from hloom.compiler.targets.cpu.machine import host
from hloom.runtime.steps import Host

RNG = np.random.default_rng(5)
# Of a result as a whole, relative to its norm: rounding errors of log2(n) passes.
NEAR = {"f": 2.5e-7, "F": 2.5e-7, "d": 6e-16, "D": 6e-16}


def data(shape, dtype):
    x = RNG.standard_normal(shape)
    return (x + 1j * RNG.standard_normal(shape) if dtype.startswith("c") else x).astype(np.dtype(dtype))


def wide(x):
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def error(found, expected):
    assert found.shape == expected.shape
    return np.linalg.norm((found - expected).ravel()) / np.linalg.norm(expected.ravel())


def compiled(name, x, **options):
    return hl.jit(lambda a: getattr(hnp.fft, name)(a, **options)).lower(x).compile()


def check(name, x, **options):
    made = compiled(name, x, **options)
    assert not any(isinstance(step, HostStep) for step in made.plan.steps)
    found = np.asarray(made(x))
    assert error(found, getattr(np.fft, name)(wide(x), **options)) < NEAR[x.dtype.char]
    return found


def steps_of(made):
    return [type(step) for step in made.plan.steps]


# Each radix alone, two and three passes, radices mixed, and lengths whose two steps have blocks that are not full.
LENGTHS = [2, 3, 4, 5, 7, 8, 11, 13, 6, 16, 64, 105, 360]


@pytest.mark.parametrize("n", LENGTHS)
def test_numbers_of_every_radix(n):
    double = n % 3 == 1  # both precisions, and both ways, in twiddles: each is a kernel to compile
    real, number = ("float64", "complex128") if double else ("float32", "complex64")
    rows = int(RNG.integers(5, 21))
    check("fft" if n % 2 else "ifft", data((rows, n), number))
    check("ifft" if n % 2 else "fft", data((n, rows), number), axis=0)
    if n > 2:
        check(*("rfft", data((rows, n), real)) if n % 8 else ("irfft", data((rows, n // 2 + 1), number)))


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 20])
def test_blocks_that_are_not_full(rows):
    check("fft", data((rows, 60), "complex64"))
    check("rfft", data((rows, 60), "float32"))
    check("ifft", data((3, 24, rows), "complex64"), axis=1)


@pytest.mark.parametrize(
    ("shape", "name", "options"),
    [
        ((1 << 15,), "fft", {}),
        ((1 << 16,), "rfft", {}),
        ((1 << 15) + 1, "irfft", {}),
        ((3, 15000), "fft", {}),
        ((9, 8192), "fft", {}),
        ((9, 4096), "rfft", {}),
        ((2, 4096, 3), "fft", {"axis": 1}),
        ((2, 31 * 11), "fft", None),
    ],
)
def test_long_transforms_and_those_of_few_rows(shape, name, options):
    dtype = "float32" if name == "rfft" else "complex64"
    x = data(shape, dtype)
    if options is None:  # 31 is no radix: pocketfft
        made = compiled(name, x)
        assert HostStep in steps_of(made)
        assert error(np.asarray(made(x)), np.fft.fft(wide(x))) < NEAR["F"]
        return
    check(name, x, **options)


@pytest.mark.parametrize("shape", [(24, 36), (5, 16, 20), (2, 12, 10, 18)])
def test_several_dimensions(shape):
    number = data(shape, "complex64")
    for name in ("fft2", "ifft2"):
        check(name, number)
    check("rfft2", data(shape, "float32"))
    half = (*shape[:-1], shape[-1] // 2 + 1)
    check("irfft2", data(half, "complex64"))
    axes = tuple(range(max(-3, -len(shape)), 0))
    check("fftn", number.astype(np.complex128), axes=axes)
    check("ifftn", number, axes=axes)
    check("rfftn", data(shape, "float64"), axes=axes)
    check("irfftn", data(half, "complex64"), axes=axes)


@pytest.mark.parametrize(("name", "allowed"), [("fft", 1.01), ("rfft", 1.07)])
def test_errors_are_not_larger_than_those_of_pocketfft(name, allowed):
    scipy_fft = pytest.importorskip("scipy.fft")
    if not host().has("fma"):
        allowed *= 1.1  # products are rounded before they are added
    f = hl.jit(getattr(hnp.fft, name))
    for n in (1000, 1024, 8192):
        ours = theirs = 0.0
        for _ in range(3):
            x = data((20, n), "complex64" if name == "fft" else "float32")
            exact = getattr(np.fft, name)(wide(x))
            ours += error(np.asarray(f(x)), exact)
            theirs += error(getattr(scipy_fft, name)(x), exact)
        assert ours < theirs * allowed, n


def test_roots_of_unity_are_rounded_from_angles_of_an_eighth_of_a_turn():
    for n in (8, 24, 30, 1000):
        found = roots(np.arange(2 * n), n, -1.0)
        exact = [complex(np.cos(t), -np.sin(t)) for t in 2 * np.pi * (np.arange(2 * n) % n).astype(np.longdouble) / n]
        np.testing.assert_allclose(found, exact, atol=3e-16)
        assert np.array_equal(found[:n], found[n:]) and found[0] == 1
    assert np.array_equal(roots(np.arange(4), 4, 1.0), [1, 1j, -1, -1j])


def test_radices_are_few():
    assert radices_of(512) == (8, 8, 8)
    assert radices_of(1024) == (4, 4, 8, 8)
    assert radices_of(2048) == (4, 8, 8, 8)
    assert radices_of(2) == (2,) and radices_of(16) == (4, 4) and radices_of(360) == (3, 3, 5, 8)
    assert radices_of(17) is None and radices_of(2 * 17) is None
    for n in range(2, 300):
        found = radices_of(n)
        assert found is None or np.prod(found) == n


@pytest.mark.parametrize("name", ["fft", "rfft", "irfft", "irfftn"])
def test_derivatives(name):
    x = data((6, 20), "float64" if name == "rfft" else "complex128")
    function = getattr(hnp.fft, name)
    weights = np.asarray(function(hnp.asarray(x)))

    def loss(a):
        return hnp.sum(hnp.real(function(a) * hnp.conj(hnp.asarray(weights))))

    found = np.asarray(hl.jit(hl.grad(loss))(hnp.asarray(x)))
    assert error(found, np.asarray(hl.grad(loss)(hnp.asarray(x)))) < 1e-14  # at once, by pocketfft
    # Linear: <gradient, d> = <weights, f(d)>.
    d = data(x.shape, str(x.dtype))
    change = np.asarray(function(hnp.asarray(d)))
    assert np.isclose(np.sum((found * d).real), np.sum((change * weights.conj()).real), rtol=1e-12)


def test_inputs_stay_as_they_are_and_donated_ones_may_not():
    x = data((16, 48), "complex64")
    kept = x.copy()
    check("fft2", x)
    assert np.array_equal(x, kept)
    f = hl.jit(lambda a: hnp.fft.fft2(a + 1) - 1, donate_argnums=0)
    assert error(np.asarray(f(hnp.asarray(x))), np.fft.fft2(wide(kept) + 1) - 1) < NEAR["F"]


def test_transforms_between_other_kernels_and_in_loops():
    x = data((20, 32), "complex64")

    def program(a):
        def step(_, a):
            return hnp.fft.ifft2(hnp.fft.fft2(a) * 0.5) + 1

        return hl.lax.fori_loop(0, 3, step, a)

    expected = wide(x)
    for _ in range(3):
        expected = expected * 0.5 + 1
    assert error(np.asarray(hl.jit(program)(hnp.asarray(x))), expected) < 1e-6


def test_results_do_not_depend_on_how_items_are_cut():
    """Threads get chunks of work items; every cut gives the same bits, as every item alone does."""
    from hloom.backends.cpu.driver import driver
    from hloom.backends.cpu.program import Layout, program_of
    from hloom.ir.records import replace
    from hloom.runtime.program import Executable
    from hloom.runtime.steps import Call

    for name, x in (("fft2", data((90, 100), "complex64")), ("rfft", data((3, 8192), "float32"))):
        made = compiled(name, x)
        expected = np.asarray(made(x))
        program = program_of(made.plan, Layout())
        for grain in (1, 3, 1 << 20):
            steps = [replace(s, grain=grain) if isinstance(s, Call) else s for s in program.steps]
            (found,) = Executable(replace(program, steps=steps), driver())([x])
            assert np.array_equal(found, expected)


def test_lengths_of_the_same_radices_share_kernels_and_tables_are_constants():
    a, b = compiled("fft", data((64, 33 * 8), "complex64")), compiled("fft", data((50, 11 * 24), "complex64"))
    assert [s.launch.source for s in a.plan.kernels()] == [s.launch.source for s in b.plan.kernels()]
    two = hl.jit(lambda x: hnp.fft.fft(hnp.fft.fft(x) + 1)).lower(data((64, 100), "complex64")).compile()
    first, *_, last = [s for s in two.plan.steps if isinstance(s, KernelStep) and "factors" in s.pointers]
    assert first.pointers["factors"] == last.pointers["factors"]


def test_names():
    assert parameters("fft8_f32_8_first_frompairs") == ("source", "source_step", "target", "factors", "m")
    last = ("source", "target", "target_step", "s", "twiddles", "lane_twiddles", "scale")
    assert parameters("fft3_f64_4_last_inverse_topairs_twiddled_scaled") == last
    for wrong in ("fft8_f32_8_inner_topairs", "fft9_f32_8_first", "fft8_s32_8_first", "fft_third_f32_8", "fftshift"):
        assert parameters(wrong) is None


def form(lanes, dtype="f32", **options):
    return Form(dtype, lanes, 3, False, "columns", "columns", True, **options)


def test_the_text_of_a_kernel(golden):
    golden("kernels/fft_columns.py.txt", kernel_of(form(8)).text)


def test_passes_are_vector_code(code_machine):
    (name, *_) = pass_names(form(code_machine.vector_bytes // 4), (8, 4, 3))
    text = assembly(pass_kernel(name), code_machine)
    register = {32: "%ymm", 64: "%zmm"}[code_machine.vector_bytes]
    additions = [line for line in text.splitlines() if "vaddps" in line]
    assert len(additions) > 20 and all(register in line for line in additions)


def test_what_is_left_to_pocketfft_reads_its_operand_in_place():
    x = data((70, 1009), "complex64")
    made = compiled("fft", x)
    (host_step,) = [s for s in made.executable.runner.program.steps if isinstance(s, Host)]
    assert not host_step.keeps
    kept = x.copy()
    assert error(np.asarray(made(x)), np.fft.fft(wide(x))) < NEAR["F"]
    assert np.array_equal(x, kept)


def power(x):
    spectrum = hnp.fft.rfft(x)
    return hnp.real(spectrum) ** 2 + hnp.imag(spectrum) ** 2


def power_of(x):
    return np.abs(np.fft.rfft(x)) ** 2


# (function, the same in NumPy, shape, dtype, kernels)
AROUND = {
    "abs": (lambda x: hnp.abs(hnp.fft.rfft(x)), lambda x: np.abs(np.fft.rfft(x)), (37, 60), "float32", 1),
    "odd": (lambda x: hnp.abs(hnp.fft.rfft(x)), lambda x: np.abs(np.fft.rfft(x)), (37, 45), "float32", 1),
    "power": (power, power_of, (18, 64), "float64", 1),
    "scaled": (lambda x: hnp.fft.fft(x) * 2.5 + 1j, lambda x: np.fft.fft(x) * 2.5 + 1j, (37, 60), "complex64", 1),
    "columns": (lambda x: hnp.imag(hnp.fft.ifft2(x)), lambda x: np.fft.ifft2(x).imag, (24, 37 + 3), "complex64", 2),
    "reals": (lambda x: hnp.fft.fft2(x), np.fft.fft2, (3, 24, 36), "float32", 2),
    "both": (lambda x: hnp.abs(hnp.fft.fft2(x)), lambda x: np.abs(np.fft.fft2(x)), (3, 24, 36), "float64", 2),
    "real pairs": (lambda x: hnp.abs(hnp.fft.rfft2(x)), lambda x: np.abs(np.fft.rfft2(x)), (24, 36), "float32", 2),
    "few rows": (lambda x: hnp.abs(hnp.fft.rfft(x)), lambda x: np.abs(np.fft.rfft(x)), (2, 4096), "float32", 4),
    "real result": (lambda x: hnp.fft.irfft(x) * 3, lambda x: np.fft.irfft(x) * 3, (40, 31), "complex64", 2),
    "by a size": (lambda x: power(x) / 64, lambda x: power_of(x) / 64, (18, 64), "float64", 1),
    "an array": (lambda x: hnp.fft.fft(x) * x, lambda x: np.fft.fft(x) * x, (40, 30), "complex64", 2),
}


@pytest.mark.parametrize("name", AROUND)
def test_conversions_before_and_element_wise_work_behind_belong_to_the_kernel(name):
    function, reference, shape, dtype, kernels = AROUND[name]
    x = data(shape, dtype)
    made = hl.jit(function).lower(x).compile()
    assert len(made.plan.kernels()) == kernels
    assert error(np.asarray(made(x)), reference(wide(x))) < NEAR[x.dtype.char]


def test_a_transform_that_is_a_result_itself_is_written_as_it_is():
    x = data((40, 30), "complex64")
    spectrum, size = hl.jit(lambda a: (hnp.fft.fft(a), hnp.abs(hnp.fft.fft(a))))(hnp.asarray(x))
    assert error(np.asarray(spectrum), np.fft.fft(wide(x))) < NEAR["F"]
    assert error(np.asarray(size), np.abs(np.fft.fft(wide(x)))) < NEAR["F"]
