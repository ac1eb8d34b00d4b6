"""The way from the runtime through cuda-python to a libcuda.so.1: a stub in C, compiled against the real header."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[2] / "support"


def header() -> Path | None:
    """The folder of cuda.h, of a wheel or a toolkit."""
    from importlib.metadata import PackageNotFoundError, files

    for wheel in ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu13"):
        try:
            found = next((f for f in files(wheel) or () if f.name == "cuda.h"), None)
        except PackageNotFoundError:
            continue
        if found:
            return Path(found.locate()).parent
    folder = Path("/usr/local/cuda/include")
    return folder if (folder / "cuda.h").exists() else None


@pytest.mark.skipif(sys.platform != "linux", reason="the stub is a shared object of Linux")
def test_programs_run_through_cuda_python(tmp_path):
    pytest.importorskip("cuda.bindings.driver", reason='needs the extra: pip install "hloom[cuda]"')
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or header() is None:
        pytest.skip("needs a C compiler and cuda.h (pip install nvidia-cuda-runtime)")
    library = tmp_path / "libcuda.so.1"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-w", f"-I{header()}", "-Wl,-soname,libcuda.so.1",
         "-o", str(library), str(HERE / "stub_driver.c"), "-ldl"],
        check=True,
    )  # fmt: skip
    path = os.pathsep.join([str(HERE), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(HERE / "cuda_python_scenario.py")],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": path}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0 and "all is well" in done.stdout, done.stdout + done.stderr
