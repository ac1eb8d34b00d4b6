"""The disk cache: several processes at once, damaged entries, folders that cannot be written, pruning."""

import json
import os
import shutil
import stat
import subprocess
import sys
import time

import pytest
from silence import no_warnings

from hloom.compiler.cache import Cache, CacheWarning, default_folder


def files(folder):
    return sorted(path for path in folder.iterdir() if path.name not in (".measured", ".writing"))


def written_aside(folder):
    return list((folder / ".writing").iterdir())


def test_round_trip_through_the_disk(tmp_path):
    data = os.urandom(5000)
    Cache(tmp_path / "new" / "folder").put("key-1", data)
    cache = Cache(tmp_path / "new" / "folder")
    assert cache.get("key-1") == data
    assert cache.get("key-2") is None
    assert (cache.hits, cache.misses) == (1, 1)


def test_the_memory_layer_answers_without_the_disk(tmp_path):
    cache = Cache(tmp_path)
    cache.put("key", b"data")
    for path in files(tmp_path):
        path.unlink()
    assert cache.get("key") == b"data"


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cache = Cache(None)
    cache.put("key", b"data")
    assert cache.get("key") == b"data"
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content + b"x",
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: b"XXXX" + content[4:],
        lambda content: content[:10],
        lambda content: b"",
    ],
    ids=["truncated", "longer", "flipped bit", "wrong magic", "half a header", "empty"],
)
def test_a_damaged_entry_is_removed_and_reported_once(tmp_path, damage):
    writer = Cache(tmp_path)
    for key in ("one", "two"):
        writer.put(key, b"some data")
    for path in files(tmp_path):
        path.write_bytes(damage(path.read_bytes()))
    cache = Cache(tmp_path)
    with pytest.warns(CacheWarning, match="damaged") as caught:
        assert cache.get("one") is None
        assert cache.get("two") is None
    assert len(caught) == 1
    assert files(tmp_path) == []
    cache.put("one", b"new data")
    assert Cache(tmp_path).get("one") == b"new data"


def test_a_folder_that_cannot_be_made_warns_once(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    cache = Cache(tmp_path / "file" / "cache")
    with pytest.warns(CacheWarning, match="cannot write") as caught:
        cache.put("one", b"1")
        cache.put("two", b"2")
    assert len([warning for warning in caught if "cannot write" in str(warning.message)]) == 1
    assert cache.get("one") == b"1" and cache.get("two") == b"2"


def test_a_full_disk_leaves_no_half_entry(tmp_path, monkeypatch):
    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    cache = Cache(tmp_path)
    with pytest.warns(CacheWarning, match="No space left"):
        cache.put("key", b"data")
    assert files(tmp_path) == written_aside(tmp_path) == []
    assert cache.get("key") == b"data"


def test_an_entry_in_the_place_of_another_is_damage(tmp_path):
    writer = Cache(tmp_path)
    writer.put("one", b"code of one")
    writer.put("two", b"code of two")
    shutil.copy(tmp_path / "two.bin", tmp_path / "one.bin")
    cache = Cache(tmp_path)
    with pytest.warns(CacheWarning, match="one.bin .* belongs to another key"):
        assert cache.get("one") is None
    assert cache.get("two") == b"code of two"
    assert [path.name for path in files(tmp_path)] == ["two.bin"]


def test_folder_and_entries_are_the_users_alone(tmp_path):
    folder = tmp_path / "a" / "cache"
    Cache(folder).put("key", b"data")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "key.bin").stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o770, 0o777, 0o1777])
def test_a_folder_that_others_may_write_is_refused(tmp_path, mode):
    folder = tmp_path / "cache"
    Cache(folder).put("key", b"data")
    folder.chmod(mode)
    cache = Cache(folder)
    with pytest.warns(CacheWarning, match="may be written by other users .*HLOOM_CACHE_DIR") as caught:
        assert cache.get("key") is None
        cache.put("key", b"new")
        assert cache.put_first("other", b"x") is None
    assert len(caught) == 1
    assert cache.get("key") == b"new"  # in memory
    assert [path.name for path in files(folder)] == ["key.bin"]
    folder.chmod(0o700)
    assert Cache(folder).get("key") == b"data"


def test_an_entry_that_others_may_write_is_not_used(tmp_path):
    Cache(tmp_path).put("key", b"data")
    (tmp_path / "key.bin").chmod(0o666)
    with pytest.warns(CacheWarning, match="key.bin .* may be written by other users"):
        assert Cache(tmp_path).get("key") is None


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only the superuser can give files away")
@pytest.mark.parametrize("what", ["folder", "entry"])
def test_what_belongs_to_another_user_is_refused(tmp_path, what):
    folder = tmp_path / "cache"
    Cache(folder).put("key", b"data")
    os.chown(folder if what == "folder" else folder / "key.bin", 12345, -1)
    with pytest.warns(CacheWarning, match="belongs to user 12345, not to 0"):
        assert Cache(folder).get("key") is None


def test_what_killed_processes_left_is_removed(tmp_path):
    Cache(tmp_path).put("one", b"1")
    (tmp_path / ".writing" / "old").write_bytes(b"half")
    (tmp_path / ".writing" / "running").write_bytes(b"half")
    os.utime(tmp_path / ".writing" / "old", (time.time() - 100,) * 2)
    Cache(tmp_path).put("two", b"2")
    assert [path.name for path in written_aside(tmp_path)] == ["running"]
    Cache(tmp_path).clear()
    assert files(tmp_path) == written_aside(tmp_path) == []


def test_discarded_data_is_made_anew(tmp_path):
    cache = Cache(tmp_path)
    cache.put("key", b"data")
    with pytest.warns(CacheWarning, match="key.bin .* does not load; it is removed"):
        cache.discard("key", "does not load")
    assert cache.get("key") is None and Cache(tmp_path).get("key") is None


def test_data_that_cannot_be_decoded_is_damage(tmp_path):
    cache = Cache(tmp_path)
    cache.put("key", b"{")
    with pytest.warns(CacheWarning, match="key.bin .* is damaged .JSONDecodeError"):
        assert cache.load("key", json.loads) is None
    assert files(tmp_path) == []
    cache.put("key", b"[1]")
    assert cache.load("key", json.loads) == [1]
    assert cache.load("other", json.loads) is None


PROGRAM = """
import hloom as hl, hloom.numpy as hnp
print(hl.jit(lambda x: hnp.sort(hnp.sin(x) * 3.25))(hnp.arange(5.0)).tolist())
"""


@pytest.mark.parametrize("data", [b"", b"{}", os.urandom(300), b"\x7fELF\x02\x01" + bytes(200)], ids=len)
def test_entries_that_do_not_load_are_compiled_anew(tmp_path, data):
    def run():
        environment = os.environ | {"HLOOM_CACHE_DIR": str(tmp_path / "kernels")}
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done

    right = run().stdout
    cache = Cache(tmp_path / "kernels")
    keys = [path.stem for path in files(tmp_path / "kernels")]
    assert any(key.startswith("kernel-") for key in keys)
    for key in keys:
        cache.put(key, data)
    again = run()
    assert again.stdout == right
    assert "compiled anew" in again.stderr
    third = run()
    assert third.stdout == right and "Warning" not in third.stderr


def test_keys_cannot_leave_the_folder(tmp_path):
    for key in ("../evil", "a/b", "", "x" * 300):
        with pytest.raises(ValueError):
            Cache(tmp_path).put(key, b"data")


def test_pruning_takes_the_entries_used_longest_ago(tmp_path):
    writer = Cache(tmp_path)
    for number in range(8):
        writer.put(f"key{number}", bytes(1000))
        stamp = time.time() - 1000 + number
        os.utime(tmp_path / f"key{number}.bin", (stamp, stamp))
    assert Cache(tmp_path).get("key0") is not None  # used just now
    Cache(tmp_path, limit=5000).put("last", bytes(1000))
    left = {path.stem for path in files(tmp_path)}
    assert "key0" in left and "last" in left
    assert "key1" not in left and "key2" not in left
    assert sum(path.stat().st_size for path in files(tmp_path)) <= 5000


def test_all_files_are_looked_at_once_an_hour(tmp_path, monkeypatch):
    looks = []
    monkeypatch.setattr(Cache, "_prune", lambda self, prune=Cache._prune: (looks.append(self), prune(self)))
    for _ in range(3):  # as many processes
        cache = Cache(tmp_path)
        cache.put("one", b"data")
        cache.put("two", b"data")
    assert len(looks) == 1
    stamp = time.time() - 3700
    os.utime(tmp_path / ".measured", (stamp, stamp))
    cache.put("three", b"data")
    assert len(looks) == 1  # it has asked already
    Cache(tmp_path).put("four", b"data")
    assert len(looks) == 2
    Cache(tmp_path, limit=160).put("five", bytes(1000))  # more than a sixteenth of what there may be
    assert len(looks) == 3


def test_clear(tmp_path):
    cache = Cache(tmp_path)
    cache.put("key", b"data")
    cache.clear()
    assert cache.get("key") is None and files(tmp_path) == []


def test_two_processes_at_once(tmp_path):
    program = """
import sys, warnings
warnings.simplefilter("error")
from hloom.compiler.cache import Cache
folder, seed = sys.argv[1], int(sys.argv[2])
for turn in range(60):
    for number in range(5):
        data = bytes([number]) * (1000 + 4096 * number)   # both processes write the same value under one key
        found = Cache(folder, limit=40000).get(f"key{number}")
        assert found is None or found == data, (turn, number)
        Cache(folder, limit=40000).put(f"key{(number + seed + turn) % 5}", bytes([(number + seed + turn) % 5]) * (
            1000 + 4096 * ((number + seed + turn) % 5)))
"""
    running = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path), str(seed)], stderr=subprocess.PIPE, text=True)
        for seed in (0, 2)
    ]
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0 and not errors, errors
    assert written_aside(tmp_path) == []


def test_the_default_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("hloom.compiler.cache._chosen", None)  # a test before may have set hl.config.cache_dir
    monkeypatch.setenv("HLOOM_CACHE_DIR", str(tmp_path / "chosen"))
    assert default_folder() == tmp_path / "chosen"
    monkeypatch.setenv("HLOOM_CACHE_DIR", "")
    assert default_folder() is None
    monkeypatch.delenv("HLOOM_CACHE_DIR")
    if sys.platform.startswith("linux"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert default_folder() == tmp_path / "xdg" / "hloom"
    assert default_folder().name in ("hloom", "cache")


def test_a_relative_folder_is_made_absolute_at_import(tmp_path):
    program = """
import os, hloom as hl, hloom.numpy as hnp
os.mkdir("elsewhere")
os.chdir("elsewhere")
print(float(hl.jit(lambda x: hnp.sin(x) * 3.25)(hnp.ones(5)).sum()))
assert not os.path.exists("kernels")
"""
    environment = os.environ | {"HLOOM_CACHE_DIR": "kernels"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "kernels").is_dir()


def test_reading_a_fresh_entry_warns_about_nothing(tmp_path):
    Cache(tmp_path).put("key", b"data")
    with no_warnings():
        assert Cache(tmp_path).get("key") == b"data"


def test_the_first_to_keep_something_decides(tmp_path):
    one, other = Cache(tmp_path), Cache(tmp_path)
    assert one.put_first("key", b"one") == b"one"
    assert other.put_first("key", b"other") == b"one" == other.get("key")
    assert written_aside(tmp_path) == []
    assert Cache(tmp_path).get("key") == b"one"


def test_nothing_is_first_where_nothing_is_kept(tmp_path):
    assert Cache(None).put_first("key", b"x") is None
    (tmp_path / "file").write_text("")
    with pytest.warns(CacheWarning, match="cannot write"):
        assert Cache(tmp_path / "file" / "folder").put_first("key", b"x") is None


def test_a_damaged_entry_is_not_first(tmp_path):
    cache = Cache(tmp_path)
    cache.put("key", b"one")
    (path,) = files(tmp_path)
    path.write_bytes(b"damaged")
    with pytest.warns(CacheWarning, match="damaged"):
        assert Cache(tmp_path).put_first("key", b"two") is None
    assert Cache(tmp_path).put_first("key", b"two") == b"two"


def test_first_on_a_file_system_without_second_names(tmp_path, monkeypatch):
    def none(source, target):
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", none)
    assert Cache(tmp_path).put_first("key", b"one") == b"one"
    assert Cache(tmp_path).put_first("key", b"two") == b"one"
    assert [path.name for path in files(tmp_path)] == ["key.bin"]
