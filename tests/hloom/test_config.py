"""Settings: the table, `with` blocks, environment variables, and the cache of compiled kernels as a user meets it."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.backends.cpu.driver import driver
from hloom.compiler.cache import default_cache
from hloom.config import SETTINGS
from hloom.errors import SettingError

PROGRAM = """
import numpy as np, hloom as hl, hloom.numpy as hnp
print(np.asarray(hl.jit(lambda x: hnp.sin(x) * 2.25 + 1)(np.arange(4, dtype=np.float32))).tolist())
"""


def run(program=PROGRAM, *options, **variables):
    """A Python process with these variables: (exit status, stdout, stderr)."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HLOOM_")}
    cache = os.environ.get("HLOOM_CACHE_DIR")
    environment |= {"HLOOM_CACHE_DIR": cache} if cache is not None else {}
    environment |= {k: str(v) for k, v in variables.items()}
    done = subprocess.run(
        [sys.executable, *options, "-c", program], env=environment, capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout, done.stderr


EXPECTED = [1.0, 2.8933098316192627, 3.0459191799163818, 1.317520022392273]


def assert_right(done):
    status, out, err = done
    assert status == 0, err
    np.testing.assert_allclose(eval(out), EXPECTED, rtol=1e-6)


# --- settings -----------------------------------------------------------------------------------------------------


def test_with_blocks_restore_what_was():
    before = hl.config.fusion, hl.config.debug
    with hl.config(fusion=False, debug=0):
        assert hl.config.fusion is False
        with hl.config(fusion=True):
            assert hl.config.fusion is True
        assert hl.config.fusion is False
    with pytest.raises(RuntimeError, match="inside"):
        with hl.config(fusion=False):
            raise RuntimeError("inside")
    assert (hl.config.fusion, hl.config.debug) == before


@pytest.mark.parametrize("name,value,says", [
    ("fusion", "perhaps", "set it to 1 or 0"), ("debug", 9, "a level from 0 to 4"),
    ("num_threads", 0, "an integer of at least 1"),
    ("verify", "maybe", "1 or 0"), ("num_threads", "many", "threads per kernel"),
])  # fmt: skip
def test_values_that_do_not_fit(name, value, says):
    before = getattr(hl.config, name)
    with pytest.raises(SettingError) as caught:
        setattr(hl.config, name, value)
    assert says in str(caught.value) and f"hl.config.{name} was set to {str(value)!r}" in str(caught.value)
    assert caught.value.source.file == __file__
    assert getattr(hl.config, name) == before


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(SettingError, match="did you mean num_threads"):
        hl.config.num_thread = 2
    with pytest.raises(SettingError, match="did you mean fusion"):
        hl.config.fusoin  # noqa: B018
    with pytest.raises(SettingError, match="did you mean debug"):
        with hl.config(debg=1):
            pass


def test_describe_lists_every_setting():
    text = hl.config.describe()
    for setting in SETTINGS.values():
        assert setting.name in text and setting.variable in text and setting.help in text


def test_the_number_of_threads_reaches_the_driver():
    before = driver().num_threads
    with hl.config(num_threads=3):
        assert driver().num_threads == 3
        x = np.ones((300, 300), np.float32)
        assert float(hl.jit(lambda x: x @ x)(x)[0, 0]) == 300
    assert driver().num_threads == before


def test_the_folder_of_the_cache_can_be_changed(tmp_path):
    with hl.config(cache_dir=str(tmp_path)):
        assert default_cache().folder == tmp_path
        hl.jit(lambda x: hnp.cos(x) * 3.75 - 0.625)(np.ones(3, np.float32))
        assert list(tmp_path.glob("*.bin"))
    assert default_cache().folder != tmp_path
    with hl.config(cache_dir=""):
        assert default_cache().folder is None


def test_dumps_hold_every_pass_and_the_kernels(tmp_path):
    with hl.config(dump_to=str(tmp_path)):
        hl.jit(lambda x: hnp.tanh(x) + 1)(np.ones((2, 3), np.float32))
    names = sorted(p.name.split(".", 1)[1] for p in tmp_path.iterdir())
    assert "00_traced.hlo" in names and "kernels.py" in names and any("fuse" in n for n in names)
    assert not any(n.endswith(".partial") for n in names)
    (kernels,) = tmp_path.glob("*.kernels.py")
    assert "def loop_tanh" in kernels.read_text()


@pytest.mark.parametrize("level,says", [(1, "1 kernels"), (2, "passes"), (3, "fused into"), (4, "def loop")])
def test_the_debug_ladder(level, says, capsys):
    with hl.config(debug=level):
        hl.jit(lambda x: hnp.tanh(x) * 2 + 1)(np.ones(level, np.float32))
    text = capsys.readouterr().err
    assert says in text
    assert ("def loop" in text) == (level == 4)


# --- environment variables ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("variable,value,says", [
    ("HLOOM_FUSION", "perhaps", "HLOOM_FUSION was set to 'perhaps'"),
    ("HLOOM_NUM_THREADS", "none", "HLOOM_NUM_THREADS was set to 'none'"),
])  # fmt: skip
def test_wrong_variables_stop_the_import(variable, value, says):
    status, _, err = run("import hloom", **{variable: value})
    assert status != 0 and "SettingError" in err and says in err


def test_an_unknown_variable_is_ignored_with_one_warning():
    status, _, err = run("import hloom; print(hloom.config.num_threads)", HLOOM_NUM_THREAD="2")
    assert status == 0 and err.count("UserWarning") == 1
    assert "does not know the environment variable HLOOM_NUM_THREAD " in err
    assert "did you mean HLOOM_NUM_THREADS?" in err


def test_variables_are_read():
    program = "import hloom as hl; print(hl.config.fusion, hl.config.num_cpu_devices, len(hl.devices()))"
    program += "; from hloom.backends.cpu.driver import driver; print(driver().num_threads)"
    status, out, err = run(program, HLOOM_FUSION="0", HLOOM_NUM_CPU_DEVICES="3", HLOOM_NUM_THREADS="6")
    assert status == 0 and out.split() == ["False", "3", "3", "2"], err  # each device has its share of the threads


@pytest.mark.parametrize("text, count", [
    ("5000", 5000), ("2k", 2048), ("512M", 512 << 20), ("2GB", 2 << 30), ("3MiB", 3 << 20),
])  # fmt: skip
def test_bytes_are_read_with_their_unit(text, count):
    assert SETTINGS["cpu_memory"].parse(text) == count


# --- the cache ----------------------------------------------------------------------------------------------------


def test_a_second_process_starts_from_the_cache_and_damage_costs_a_warning(tmp_path):
    assert_right(run(HLOOM_CACHE_DIR=tmp_path))
    entries = sorted(tmp_path.glob("*.bin"))
    assert len(entries) >= 2  # the driver, the kernel, its vector math
    stamps = [p.stat().st_ino for p in entries]
    assert_right(run(HLOOM_CACHE_DIR=tmp_path))
    assert [p.stat().st_ino for p in entries] == stamps  # nothing was compiled, so nothing was written

    for path in entries:
        path.write_bytes(path.read_bytes()[:-7] + b"garbage")
    done = run(HLOOM_CACHE_DIR=tmp_path)
    assert_right(done)
    assert "damaged" in done[2] and "CacheWarning" in done[2]
    assert_right(run(HLOOM_CACHE_DIR=tmp_path))


def test_a_folder_that_cannot_be_written_costs_one_warning(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    done = run(HLOOM_CACHE_DIR=blocked)
    assert_right(done)
    assert done[2].count("CacheWarning") in (1, 2) and "going on without" in done[2]


def test_without_a_cache_nothing_is_written(tmp_path):
    assert_right(run(HLOOM_CACHE_DIR="", HOME=tmp_path, XDG_CACHE_HOME=tmp_path / "cache"))
    assert not (tmp_path / "cache").exists()
