"""Files that appear whole, and what killed writers leave."""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest

from hloom.ir.process import files
from hloom.ir.process.files import Partial, temporary_folder, whole_file, write_whole

KILLED = """
import os, sys, time
from hloom.ir.process.files import Partial, temporary_folder
with temporary_folder("hloom-test-files-") as folder:
    made = Partial(sys.argv[1])
    made.path.write_bytes(b"half")
    print(folder, flush=True)
    time.sleep(60)
"""


def killed_writer(path, folder):
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    left = process.stdout.readline().strip()
    return process, left


def end(process):
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


def test_files_appear_whole(tmp_path):
    path = tmp_path / "a.bin"
    write_whole(path, b"first", 0o600)
    assert path.read_bytes() == b"first" and path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(KeyError), whole_file(path) as partial:
        partial.write_bytes(b"second")
        raise KeyError
    assert path.read_bytes() == b"first" and os.listdir(tmp_path) == ["a.bin"]
    first, second = Partial(path), Partial(path)  # two writers of one name
    first.path.write_bytes(b"1")
    second.path.write_bytes(b"2")
    second.commit()
    first.commit()
    assert path.read_bytes() == b"1" and os.listdir(tmp_path) == ["a.bin"]
    long = tmp_path / ("ä" * 127)
    write_whole(long, b"x")
    assert long.read_bytes() == b"x"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="locks of POSIX")
def test_what_killed_writers_left_is_removed_and_what_is_written_is_not(tmp_path, monkeypatch):
    path = tmp_path / "data.tfrecord"
    process, folder = killed_writer(path, tmp_path)
    try:
        monkeypatch.setattr(files.tempfile, "gettempdir", lambda: str(tmp_path))
        monkeypatch.setattr(files, "_YOUNG", -1.0)
        write_whole(path, b"other")
        with temporary_folder("hloom-test-files-"):
            pass
        assert len([name for name in os.listdir(tmp_path) if name.endswith(".part")]) == 1  # its writer lives
        assert os.path.isdir(folder)
    finally:
        end(process)
    (tmp_path / ".other.tfrecord.0.part").touch()  # of another name
    write_whole(path, b"whole")
    with temporary_folder("hloom-test-files-") as mine:
        assert not os.path.isdir(folder) and mine.is_dir()
    assert sorted(os.listdir(tmp_path)) == [".other.tfrecord.0.part", "data.tfrecord"]


def test_young_folders_are_left_alone(tmp_path, monkeypatch):
    """They may not have their locks yet."""
    monkeypatch.setattr(files.tempfile, "gettempdir", lambda: str(tmp_path))
    (tmp_path / "hloom-x-young").mkdir()
    (tmp_path / "hloom-x-old").mkdir()
    os.utime(tmp_path / "hloom-x-old", (0, time.time() - 1000))
    with temporary_folder("hloom-x-"):
        pass
    assert [name for name in os.listdir(tmp_path) if name.startswith("hloom-x-")] == ["hloom-x-young"]


@pytest.mark.skipif(files.fcntl is None, reason="locks of POSIX")
def test_a_file_system_without_locks_keeps_nothing_that_was_left(tmp_path, monkeypatch):
    """As NFS may be mounted: flock fails, but not because another process has the lock."""

    def no_locks(file, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(files.fcntl, "flock", no_locks)
    (tmp_path / ".a.bin.7.part").touch()
    write_whole(tmp_path / "a.bin", b"whole")
    assert os.listdir(tmp_path) == ["a.bin"]
