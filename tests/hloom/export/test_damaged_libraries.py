"""Libraries that are cut off, damaged or of another system: an error, not the end of the process."""

import random
import shutil
import subprocess
import sys

import numpy as np
import pytest

import hloom as hl
from hloom.errors import ExportError, FileError
from hloom.export.toolchain import check_library, sealed

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None or not sys.platform.startswith("linux"), reason="no C compiler here"
)
# One process loads all of them: a bus error would end it, and so would an access that a wrong header leads to.
PROGRAM = """
import pathlib, sys, hloom as hl
refused = 0
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.so")):
    try:
        hl.export.load(path).close()
        print("loaded", path.name)
    except hl.errors.ExportError as error:
        refused += "load of" in str(error)
print(refused)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    weights = np.arange(5000, dtype=np.float32)
    return hl.export(
        lambda x: hl.numpy.tanh(x @ x) + weights[:8], np.ones((8, 8), "f4"), folder=folder, name="lib"
    ).path


def loaded(folder):
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    return done.stdout.splitlines()


def test_truncated_libraries(library, tmp_path):
    data = library.read_bytes()
    sizes = [0, 1, 4, 10, 16, 63, 64, 65, 400, 4095, 4096, 8192, len(data) // 2, len(data) - 1, len(data) - 19]
    sizes += random.Random(0).sample(range(len(data) - 21), 100)
    for size in dict.fromkeys(sizes):
        (tmp_path / f"cut{size}.so").write_bytes(data[:size])
    assert loaded(tmp_path) == [str(len(set(sizes)))]


def test_libraries_with_changed_bytes(library, tmp_path):
    """Bytes, pages of zeros as a crash of the system leaves them, and what was appended."""
    data, rng = library.read_bytes(), random.Random(1)
    made = []
    for at in [4, 5, 16, 18, 20, 32, 40, 54, 56, 58, 60, *[rng.randrange(len(data) - 20) for _ in range(100)]]:
        made.append(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])
    made += [
        data[:at] + bytes(4096) + data[at + 4096 :]
        for at in range(0, len(data) - 8192, 4096)
        if any(data[at : at + 4096])
    ]
    made += [data + b"\0", data + data, data[:-20] + b"x" * 20, data[:-1] + bytes([data[-1] ^ 1])]
    for number, one in enumerate(made):
        (tmp_path / f"{number}.so").write_bytes(one)
    assert loaded(tmp_path) == [str(len(made))]


def test_what_the_error_says(library, tmp_path):
    path, data = tmp_path / "lib.so", library.read_bytes()
    for changed, found in (
        (b"", "not a Linux shared library"),
        (b"MZ" + data[2:], "not a Linux shared library"),
        (data[:3000], "cut off"),
        (data[:18] + b"\x08\x00" + data[20:], "it is for machine 8"),
        (data[:16] + b"\x02\x00" + data[18:], "of type 2"),
        (data[:5000] + b"\x55\xaa" * 8 + data[5016:], "checksum"),
    ):
        path.write_bytes(changed)
        with pytest.raises(ExportError, match=found) as error:
            hl.export.load(path)
        assert error.value.repair
    with pytest.raises(FileError):
        check_library(tmp_path)  # a folder


def test_libraries_that_other_tools_rewrote_are_loaded(library, tmp_path):
    """Without the checksum; with all sections, and without."""
    data = library.read_bytes()
    (tmp_path / "plain.so").write_bytes(data[:-20])
    assert sealed(data[:-20]) == data
    strip = shutil.which("strip")
    if strip:
        shutil.copyfile(library, tmp_path / "stripped.so")
        subprocess.run([strip, "stripped.so"], cwd=tmp_path, check=True)
    assert loaded(tmp_path) == ["loaded plain.so", *["loaded stripped.so"][: bool(strip)], "0"]
