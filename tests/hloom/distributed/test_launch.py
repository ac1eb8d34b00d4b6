"""Programs in several processes: `hloom launch`, and meetings of the processes."""

import os
import re
import select
import signal
import subprocess
import sys
import time

import pytest

import hloom as hl
from hloom.distributed import launcher
from hloom.errors import DistributedError, SettingError

pytest.importorskip("mpi4py", reason="programs in several processes: pip install 'hloom[cluster]'")

PROGRAM = """
import os, signal, sys, time
import numpy as np
import hloom as hl

what = sys.argv[1] if len(sys.argv) > 1 else ""
hl.distributed.initialize()
me = hl.process_index()
"""


def launched(
    tmp_path, body: str, *arguments: str, processes: int = 3, options=(), starts=PROGRAM
) -> subprocess.CompletedProcess:
    program = tmp_path / "program.py"
    program.write_text(starts + body)
    return subprocess.run(
        [sys.executable, "-m", "hloom", "launch", "-n", str(processes), *options, str(program), *arguments],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def lines(text: str, process: int) -> list[str]:
    start = f"[{process}] "
    return [line.removeprefix(start) for line in text.splitlines() if line.startswith(start)]


def test_processes_know_each_other(tmp_path):
    body = """
print([str(d) for d in hl.devices()], [str(d) for d in hl.local_devices()], [d.id for d in hl.local_devices()])
print(hl.distributed.all_gather(np.arange(2) + 10 * me).tolist(), hl.distributed.broadcast(me, 2))
print(hl.device_count(), hl.local_device_count(), hl.process_count(), sys.argv[1:])
with hl.device(f"/job:worker/task:{me}/cpu:1") as found:
    print(found == hl.local_devices()[1])
hl.distributed.same_program("f", "the same text")
hl.distributed.barrier()
hl.distributed.shutdown()
print(hl.process_count(), hl.devices())
"""
    done = launched(tmp_path, body, "--epochs", "3", options=["--devices-per-process", "2"])
    assert done.returncode == 0, done.stderr
    assert lines(done.stdout, 1) == [
        "['/job:worker/task:0/cpu:0', '/job:worker/task:0/cpu:1', 'cpu:0', 'cpu:1', "
        "'/job:worker/task:2/cpu:0', '/job:worker/task:2/cpu:1'] ['cpu:0', 'cpu:1'] [2, 3]",
        "[[0, 1], [10, 11], [20, 21]] 2",
        "6 2 3 ['--epochs', '3']",
        "True",
        "1 [Device(cpu:0), Device(cpu:1)]",
    ]


def test_jobs_and_tasks_name_devices(tmp_path):
    body = """
hl.distributed.initialize(job="worker" if me != 1 else "ps", task={0: 1}.get(me))
print([d.global_name for d in hl.devices()], hl.local_devices(), hl.device("/job:ps/cpu:0").name)
"""
    starts = PROGRAM.split("hl.distributed")[0] + "me = int(os.environ['PMI_RANK'])\n"
    done = launched(tmp_path, body, starts=starts)
    names = ["/job:worker/task:1/cpu:0", "/job:ps/task:0/cpu:0", "/job:worker/task:0/cpu:0"]
    assert lines(done.stdout, 1) == [f"{names} [Device(cpu:0)] cpu:0"], done.stderr
    assert lines(done.stdout, 0) == [f"{names} [Device(cpu:0)] {names[1]}"]


def test_the_first_failure_ends_all(tmp_path):
    done = launched(tmp_path, "if me == 1:\n    raise ValueError('wrong here')\ntime.sleep(60)")
    assert done.returncode == 1
    assert lines(done.stderr, 1)[-1] == "ValueError: wrong here"
    assert not any("hloom/distributed" in line or "runpy" in line for line in lines(done.stderr, 1))
    assert done.stderr.splitlines()[-1] == "hloom launch: process 1 failed with status 1; all others were ended"


def test_exit_statuses_are_kept(tmp_path):
    assert launched(tmp_path, "sys.exit(7 if me == 0 else 0)", processes=2).returncode == 7


def test_a_killed_process_is_named(tmp_path):
    done = launched(tmp_path, "if me == 2:\n    os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(60)")
    assert done.returncode == 137
    # On a busy machine the others may have been ended before the launcher looks.
    which = "process 2|one of the processes (0, |1, )+2"
    said = done.stderr.splitlines()[-1]
    assert re.fullmatch(f"hloom launch: ({which}) was killed by SIGKILL; all others were ended", said), said


def test_a_process_that_leaves_at_once_is_named_with_its_status(tmp_path):
    done = launched(tmp_path, "if me == 2:\n    os._exit(3)\ntime.sleep(60)")
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == "hloom launch: process 2 failed with status 3; all others were ended"


def test_nothing_outlives_a_launcher_that_is_killed(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(f"{PROGRAM}\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n")
    command = [sys.executable, "-m", "hloom", "launch", "-n", "2", "--no-label", str(program)]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    handles = [os.pidfd_open(int(started.stdout.readline())) for _ in range(2)]
    started.kill()
    started.wait(10)
    for handle in handles:
        ended, _, _ = select.select([handle], [], [], 20)
        os.close(handle)
        assert ended
    started.stdout.close()


def test_devices_that_were_used_before_the_processes_met(tmp_path):
    body = "print(hl.devices())\nhl.distributed.initialize()\n"
    done = launched(tmp_path, body, processes=2, starts=PROGRAM.split("hl.distributed")[0])
    assert done.returncode == 1
    assert "  found:  devices were used before, as those of a program in one process" in done.stderr
    assert "[0]           hl.distributed.initialize()\n" in done.stderr


def test_who_has_left_is_named(tmp_path):
    done = launched(tmp_path, "if me == 1:\n    sys.exit(0)\nhl.distributed.barrier('the end')", processes=2)
    assert "process 1 is at hl.distributed.shutdown()" in done.stderr


def test_a_process_that_does_not_come_is_named(tmp_path):
    body = "if me == 1:\n    time.sleep(60)\nhl.distributed.barrier('the meeting', timeout=1)"
    done = launched(tmp_path, body, processes=2)
    assert done.returncode == 1
    assert "the meeting: every process takes part\n[0]   found:  nothing came from process 1 for 1 s" in done.stderr
    assert "hl.distributed.barrier('the meeting', timeout=1)\n[0]   repair:" in done.stderr


def test_different_programs_are_found(tmp_path):
    body = """
try:
    hl.distributed.same_program('step', f'a\\nb = {me // 2}\\nc')
except hl.errors.DistributedError as error:
    print(error)
"""
    done = launched(tmp_path, body)
    expected = ["  found:  line 2 here is", "    b = 1", "and in process 0", "    b = 0"]
    assert lines(done.stdout, 2)[1:5] == expected, done.stderr


def test_other_barriers_and_other_shapes_are_found(tmp_path):
    body = """
for call in (lambda: hl.distributed.barrier(f"barrier {me}"), lambda: hl.distributed.all_gather(np.zeros(me + 1))):
    try:
        call()
    except hl.errors.DistributedError as error:
        print(str(error).splitlines()[1].strip())
"""
    done = launched(tmp_path, body, processes=2)
    assert lines(done.stdout, 0) == [
        "found:  process 1 is at barrier 1", "found:  <f8[1] here, <f8[2] in process 1"
    ], done.stderr  # fmt: skip


def test_an_interrupt_reaches_all_processes(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        PROGRAM + "try:\n    print('ready')\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    time.sleep(me)\n    print('saved')\n    raise"
    )
    command = [sys.executable, "-m", "hloom", "launch", "-n", "2", str(program)]
    # A shell may have started the tests with interrupts ignored, which processes inherit.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    assert started.stdout is not None
    ready = [started.stdout.readline() for _ in range(2)]
    assert sorted(ready) == ["[0] ready\n", "[1] ready\n"]
    time.sleep(0.2)
    os.kill(started.pid, signal.SIGINT)
    out, err = started.communicate(timeout=60)
    assert started.returncode == 130
    assert sorted(out.splitlines()) == ["[0] saved", "[1] saved"]
    assert err.splitlines()[-1] == "hloom launch: interrupted"


def test_a_module_without_labels(tmp_path, monkeypatch):
    (tmp_path / "trainer.py").write_text("import hloom, sys\nprint('module', __name__, sys.argv[1:])")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    command = [sys.executable, "-m", "hloom", "launch", "-n", "1", "--no-label", "-m", "trainer", "x"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout == "module __main__ ['x']\n", done.stderr


def test_what_is_missing_is_named(monkeypatch, tmp_path):
    with pytest.raises(DistributedError, match=r"hloom launch -n 4 program\.py"):
        hl.distributed.initialize(num_processes=4)
    with pytest.raises(DistributedError, match="both are at least 1"):
        launcher.launch(["program.py"], 0)
    with pytest.raises(DistributedError, match="call it at the start"):
        hl.distributed.barrier()
    monkeypatch.setattr(launcher, "installed_file", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DistributedError, match=r"pip install 'hloom\[cluster\]'"):
        launcher.launch(["program.py"], 2)
    with pytest.raises(SettingError, match="set it to a number of seconds"):
        hl.config.distributed_timeout = "soon"


def test_one_process_alone():
    """`initialize` in a program that nobody launched: one process, with MPI of its own."""
    body = (
        "import hloom as hl; hl.distributed.initialize(); assert hl.distributed.is_initialized();"
        "print(hl.process_count(), hl.devices(), hl.distributed.all_gather(3).tolist()); hl.distributed.barrier()"
    )
    done = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, timeout=120)
    assert done.stdout == "1 [Device(cpu:0)] [3]\n", done.stderr
