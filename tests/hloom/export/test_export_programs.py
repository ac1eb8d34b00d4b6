"""Programs in C, C++ and Rust that use exported libraries: mistakes are errors with messages, no Python is around."""

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom import sessions
from hloom.errors import ExportError
from hloom.export import emit

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
PROGRAMS = Path(__file__).with_name("programs")
EXAMPLE = Path(__file__).parents[3] / "examples" / "cpp_training"


def run(*command, timeout=120, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=timeout, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """A library with a state and a range of batch sizes, static, compiled for undefined behaviour to be found."""

    def init():
        return hnp.ones((4, 3)) / 2

    def predict(w, x):
        return hnp.tanh(x @ w)

    folder = tmp_path_factory.mktemp("checked")
    x = hl.ShapeDtypeStruct((hl.Dim("batch", 1, 64), 4), "float32")
    hl.export(
        {"init": init, "predict": predict}, state=("w",), updates=("init",), x=x,
        name="checked", folder=folder, kind="static",
    )  # fmt: skip
    return folder


def test_mistakes_of_a_c_program(checked):
    flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined"]
    run("cc", *flags, PROGRAMS / "bad_input.c", "libchecked.a", "-I.", "-o", "bad", "-lm", "-lpthread", cwd=checked)
    assert run("./bad", "state.safetensors", cwd=checked).strip() == "0 failures"
    assert (checked / "state.safetensors").stat().st_size > 48


@pytest.mark.skipif(platform.machine() != "x86_64", reason="by CPUID")
def test_a_processor_without_the_instructions(tmp_path, monkeypatch):
    """A library says what it needs before it runs; a made-up requirement is refused at load."""
    library = hl.export(lambda x: x + 1, np.ones(3, np.float32), folder=tmp_path, name="plus")
    assert library.load() is not None
    monkeypatch.setattr(emit, "checked_features", lambda *_: [("feature-of-tomorrow", (7, 0, 2, 31, 0))])
    later = hl.export(lambda x: x + 1, np.ones(3, np.float32), folder=tmp_path, name="later")
    with pytest.raises(ExportError, match="compiled for a processor with 'feature-of-tomorrow'"):
        later.load()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cmake") is None or shutil.which("c++") is None, reason="no cmake or C++ compiler")
def test_the_perceptron_is_trained_in_cpp(tmp_path):
    configure = ["cmake", "-S", EXAMPLE, "-B", tmp_path, f"-DPython3_EXECUTABLE={sys.executable}"]
    run(*configure, "-DCMAKE_BUILD_TYPE=Release")
    run("cmake", "--build", tmp_path, timeout=300)
    text = run(tmp_path / "train", tmp_path / "weights.safetensors", env={"PATH": "/nonexistent"})
    assert "cost 150" in text and "us a step" in text
    assert "python" not in run("ldd", tmp_path / "train").lower()
    # What C++ trained and saved is what Python computes with.
    sys.path.insert(0, str(EXAMPLE))
    try:
        import define
    finally:
        sys.path.remove(str(EXAMPLE))
    loaded = define.export(tmp_path / "shared").load()
    loaded.load_state(tmp_path / "weights.safetensors")
    x = np.random.default_rng(1).random((100, 32), np.float32)
    state = {name.removeprefix("variables_"): value for name, value in loaded.read_state().items()}
    with sessions.Session(define.define()) as session:
        session.restore({name: state[name] for name in ("w1", "b1", "w2", "b2")})
        assert loaded.predict(x).tobytes() == np.asarray(session.run("out", {"x": x})).tobytes()


@pytest.mark.skipif(shutil.which("rustc") is None, reason="no Rust here")
def test_a_rust_program(checked):
    run("rustc", "-O", PROGRAMS / "calls.rs", "-L", ".", "-o", "calls", cwd=checked)
    assert "0.7615942: predict: dimension 'batch' is 65" in run("./calls", cwd=checked)


def test_several_libraries_in_one_program(tmp_path):
    """Static ones and objects, with the same kernels in them."""
    x, w = np.ones((8, 16), np.float32), np.random.default_rng(0).random((16, 16), np.float32)
    one = hl.export(lambda x: hnp.tanh(x @ w), x, name="one", folder=tmp_path, kind="static")
    two = hl.export(lambda x: hnp.tanh(x @ w) + 1, x, name="two", folder=tmp_path, kind="object")
    (tmp_path / "main.c").write_text(
        '#include "one.h"\n#include "two.h"\n#include <stdio.h>\n'
        "int main(void) {\n  static float x[128], y[128], z[128];\n  hloom_program *p, *q;\n"
        "  for (int k = 0; k < 128; k++) x[k] = 0.01f * (float)k;\n"
        "  if (one_create(0, &p) || two_create(0, &q) || one_call(p, x, y) || two_call(q, x, z)) return 1;\n"
        '  printf("%d", z[5] == y[5] + 1);\n  one_destroy(p);\n  two_destroy(q);\n  return 0;\n}\n'
    )
    run(
        "cc", "-Wall", "-Werror", "main.c", one.path.name, two.path.name, "-o", "both", "-lm", "-lpthread", cwd=tmp_path
    )
    assert run("./both", cwd=tmp_path) == "1"
