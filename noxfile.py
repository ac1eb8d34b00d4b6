"""The daily commands, in the current environment: `nox -s quick`, `nox -s test -- tests/ir`, `nox -l` lists them.

`pip install -e '.[dev,docs]'` installs what they need. Arguments after `--` go to the tool.
"""

import nox

nox.options.default_venv_backend = "none"  # the current environment
nox.options.sessions = ["lint", "quick"]


@nox.session
def test(session: nox.Session) -> None:
    """Runs all tests in two processes."""
    session.run("python", "-m", "pytest", "-n", "2", "--dist", "worksteal", "-q", *session.posargs)


@nox.session
def quick(session: nox.Session) -> None:
    """Runs the tests marked quick: a subset across all packages, in less than a minute."""
    session.run("python", "-m", "pytest", "-n", "2", "--dist", "worksteal", "-q", "-m", "quick", *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """Runs the tests with coverage of lines and branches, and prints a table by package."""
    session.run(
        "python", "-m", "pytest", "-n", "2", "--dist", "worksteal", "-q", "--cov", "--cov-report=", *session.posargs
    )
    session.run("python", "tests/coverage_by_package.py")


# Tests that compile kernels and run them.
KERNEL_SUITES = [
    "tests/compiler/targets/cpu/test_codegen.py",
    "tests/compiler/kernels/test_compiled_gathers.py",
    "tests/compiler/kernels/test_compiled_sorts.py",
    "tests/compiler/kernels/test_contraction.py",
    "tests/compiler/kernels/test_convolution.py",
    "tests/compiler/targets/cpu/test_cpu_levels.py",
    "tests/compiler/kernels/test_elementwise.py",
    "tests/compiler/targets/cpu/test_fft_kernels.py",
    "tests/compiler/kernels/test_kernels.py",
    "tests/compiler/targets/cpu/test_llvm_emitter.py",
    "tests/compiler/schedule/test_loops.py",
    "tests/compiler/targets/cpu/test_prebuilt.py",
    "tests/compiler/kernels/test_short_rows.py",
    "tests/compiler/targets/cpu/test_nontemporal_stores.py",
    "tests/compiler/targets/cpu/test_row_blocks.py",
    "tests/compiler/kernels/math/test_math_accuracy.py",
    "tests/compiler/kernels/math/test_math_casts.py",
    "tests/compiler/kernels/math/test_math_complex.py",
    "tests/compiler/kernels/math/test_math_integers.py",
    "tests/compiler/kernels/test_window.py",
    "tests/runtime/test_driver.py",
    "tests/runtime/test_elf.py",
]


@nox.session
@nox.parametrize("level", ["x86-64-v3", "x86-64-v2"])
def level(session: nox.Session, level: str) -> None:
    """Runs the suites of kernels with code for a level of x86-64: AVX2 and FMA, and neither of them."""
    chosen = any(argument.startswith("tests") for argument in session.posargs)
    arguments = [*session.posargs, *([] if chosen else KERNEL_SUITES)]
    session.run("python", "-m", "pytest", "-n", "2", "--dist", "worksteal", "-q", *arguments, env={"HLOOM_CPU": level})


# Checked kernels have no fallbacks; they are not compiled by Numba, and are not those of exported libraries or of the
# driver's quick way; they take longer, and memory.
UNCHECKED = (
    "tests/hloom/backends/test_background_compilation.py",
    "tests/compiler/targets/cpu/test_llvm_emitter.py::test_programs_have_the_same_bits",
    "tests/hloom/export/test_export_library.py",
    "tests/hloom/dispatch/test_quick_calls.py",
    "tests/hloom/dispatch/test_kept_programs.py::test_memory_stays_flat",
    "tests/hloom/bridges/pjrt/test_pjrt_async.py",
    "tests/hloom/test_limits.py::test_sizes_beyond_memory",
    "tests/known_issues/test_known_jax.py::test_tridiagonal_systems_by_two_scans",
)


@nox.session
def bounds(session: nox.Session) -> None:
    """Runs the suites of kernels with checks of all accesses that are not proved, `--all` of all: every night."""
    level = "all" if "--all" in session.posargs else "1"
    given = [argument for argument in session.posargs if argument != "--all"]
    folders = ["tests/compiler", "tests/runtime", "tests/hloom/backends", "tests/hloom/numpy"]
    given += [f"--deselect={test}" for test in UNCHECKED]
    chosen = given if any(argument.startswith("tests") for argument in given) else [*given, *folders]
    session.run(
        "python", "-m", "pytest", "-n", "2", "--dist", "worksteal", "-q", *chosen, env={"HLOOM_CHECK_BOUNDS": level}
    )


@nox.session
def mutation(session: nox.Session) -> None:
    """Changes 200 places of the IR and the compiler, one at a time, and looks whether a test fails: every night."""
    session.run("python", "tests/mutation.py", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Checks style, formatting and the direction of imports."""
    session.run("ruff", "check", ".", *session.posargs)
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports")


@nox.session
def types(session: nox.Session) -> None:
    """Runs the type checker over the four packages."""
    session.run("mypy", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Builds the documentation site into build/site; warnings are errors."""
    session.run("mkdocs", "build", "--strict", *session.posargs)


@nox.session
def bless(session: nox.Session) -> None:
    """Rewrites golden files and the generated parts of pages; review the diff."""
    session.run("python", "-m", "pytest", "-q", "--bless", *(session.posargs or ["tests/test_docs.py"]))


@nox.session
def bench(session: nox.Session) -> None:
    """Times the core suite of the benchmark."""
    session.run("python", "-m", "hloom", "bench", *session.posargs)
