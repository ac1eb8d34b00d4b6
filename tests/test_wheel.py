"""The wheel holds real packages where the checkout has links, and works without the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from hloom.compiler.targets.cpu.prebuilt import archive

pytest.importorskip("build")
pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
PREBUILT = f"compiler/targets/cpu/prebuilt/{archive.file_name()}"

PROGRAM = """
import json, sys
import numpy as np
import hloom as hl, hloom.numpy as hnp
import hloom.ir, hloom.compiler, hloom.runtime, hloom.commands.info

@hl.jit
def f(x):
    return hnp.tanh(x) * 2

facts = {"file": hl.__file__, "rooms": [m.__file__ for m in (hloom.ir, hloom.compiler, hloom.runtime)]}
x = np.linspace(-1, 1, 5, dtype=np.float32)
facts["right"] = bool(np.allclose(np.asarray(f(x)), np.tanh(x) * 2, atol=1e-6))
try:
    hl.jit(lambda a, b: a + b)(np.ones(3, np.float32), np.ones(4, np.float32))  # the line of the mistake
except hl.errors.ShapeError as error:
    facts["line"] = error.source.line
    facts["where"] = error.source.file
print(json.dumps(facts))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of a copy of the files that git would publish."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "source"
    copy.mkdir()
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink():
            target.symlink_to((ROOT / name).readlink())
        elif (ROOT / name).is_file():
            target.write_bytes((ROOT / name).read_bytes())
    # The installation has prebuilt code from nothing (.ci/run checks that it has); here the file is packed.
    (copy / PREBUILT).write_bytes((ROOT / PREBUILT).read_bytes())
    subprocess.run(
        [sys.executable, "-m", "build", "-q", "--wheel", "--outdir", folder / "dist", copy], check=True, cwd=folder
    )
    (made,) = (folder / "dist").glob("hloom-*.whl")
    return made


def tags(wheel) -> list[str]:
    """What WHEEL says of the platforms."""
    (name,) = [n for n in zipfile.ZipFile(wheel).namelist() if n.endswith(".dist-info/WHEEL")]
    lines = zipfile.ZipFile(wheel).read(name).decode().splitlines()
    return [line for line in lines if line.startswith(("Tag:", "Root-Is-Purelib:"))]


def test_a_wheel_with_machine_code_is_one_for_its_platform(wheel):
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name.endswith(f"-py3-none-{platform}.whl")
    assert tags(wheel) == ["Root-Is-Purelib: false", f"Tag: py3-none-{platform}"]


def test_a_wheel_without_machine_code_is_one_for_all(wheel):
    """Where the build cannot compile any: the same sources, with a part of the compiler that cannot be imported."""
    folder = wheel.parents[1]
    copy = folder / "pure"
    shutil.copytree(
        folder / "source", copy, symlinks=True, ignore=shutil.ignore_patterns("build", "*.egg-info", "*.bin")
    )
    (copy / "hloom" / "backends" / "cpu" / "prebuild.py").write_text("raise ImportError('no code')\n")
    subprocess.run(
        [sys.executable, "-m", "build", "-q", "--wheel", "--outdir", folder / "pure_dist", copy], check=True, cwd=folder
    )
    (made,) = (folder / "pure_dist").glob("hloom-*.whl")
    assert made.name.endswith("-py3-none-any.whl")
    assert tags(made) == ["Root-Is-Purelib: true", "Tag: py3-none-any"]


def test_a_pure_wheel_is_built_where_it_is_asked_for(wheel):
    """The release has one beside those for platforms, from the same sources."""
    folder = wheel.parents[1]
    environment = os.environ | {"HLOOM_PURE_WHEEL": "1"}
    command = [sys.executable, "-m", "build", "-q", "--wheel", "--outdir", folder / "asked_dist", folder / "source"]
    subprocess.run(command, check=True, cwd=folder, env=environment)
    (made,) = (folder / "asked_dist").glob("hloom-*.whl")
    assert tags(made) == ["Root-Is-Purelib: true", "Tag: py3-none-any"]
    assert not any(name.endswith(".bin") for name in zipfile.ZipFile(made).namelist())


def test_rooms_are_real_packages_in_the_wheel(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for path in ("ir/module.py", "ir/ops/elementwise/arithmetic.py", "compiler/passes/rules/arithmetic.py",
                 "compiler/kernels/math/elementary/exponential.py",
                 "compiler/targets/cpu/codegen.py", "runtime/driver.py",
                 "numpy/creation.py", "commands/run.py",
                 "__main__.py", "py.typed"):  # fmt: skip
        assert f"hloom/{path}" in names, path
    assert zipfile.ZipFile(wheel).read(f"hloom/{PREBUILT}") == (ROOT / PREBUILT).read_bytes()
    ours = {str(p.relative_to(ROOT)) for room in ("ir", "compiler", "runtime") for p in (ROOT / room).rglob("*.py")}
    assert {f"hloom/{path}" for path in ours} <= names
    assert all(n.startswith(("hloom/", "hloom-")) for n in names), "nothing but hloom is installed"
    assert not any(n.startswith("hloom/benchmarks/") for n in names)
    metadata = next(n for n in names if n.endswith("METADATA"))
    text = zipfile.ZipFile(wheel).read(metadata).decode()
    assert "License-Expression: Apache-2.0" in text and "Requires-Dist: numba" in text
    assert any(n.endswith("licenses/LICENSE") for n in names)
    entry = next(n for n in names if n.endswith("entry_points.txt"))
    assert "hloom = hloom.__main__:main" in zipfile.ZipFile(wheel).read(entry).decode()


def test_the_wheel_works_without_the_checkout(wheel, tmp_path):
    """In a clean environment: the checkout is not on the path, an unpacked wheel is."""
    target = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(target)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "HLOOM_"))}
    environment |= {"PYTHONPATH": str(target), "HLOOM_CACHE_DIR": str(tmp_path / "kernels")}
    done = subprocess.run([sys.executable, program], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert all(Path(f).is_relative_to(target) for f in [facts["file"], *facts["rooms"]]), facts
    assert facts["right"]
    # Frames of an installed hloom are hloom's own, too: the error names the user's line.
    line = next(k for k, text in enumerate(PROGRAM.split("\n"), 1) if "the line of the mistake" in text)
    assert (facts["where"], facts["line"]) == (str(program), line)
    command = [sys.executable, "-m", "hloom", "info", "--json"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and json.loads(done.stdout)["versions"]["hloom"], done.stderr
