"""Faults of jobs beyond killed workers: hung processes, lost hosts, fewer workers, a disk that is really full."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hloom.checkpoints import Checkpoint, Manager, load_safetensors
from hloom.cluster.jobs.hosts import HostLost, LocalHost
from hloom.cluster.jobs.job import Job
from hloom.cluster.jobs.supervisor import Supervisor
from hloom.cluster.report import read_reports

pytestmark = pytest.mark.slow
WORKER = Path(__file__).parents[3] / "benchmarks" / "training" / "cluster_worker.py"
SECONDS = 120.0


@pytest.fixture
def gangs():
    pytest.importorskip("mpi4py", reason="gangs need MPI: pip install 'hloom[cluster]'")


def job(tmp_path, name: str, mode="sync", steps=20, seconds=0.01, **options) -> Job:
    command = [str(WORKER), mode, str(steps), str(seconds), str(tmp_path / f"{name}.out")]
    made = Job(str(tmp_path / name), command, **options)
    made.check()
    made.save()
    return made


def outs(tmp_path, name: str) -> list[str]:
    return [path.read_text() for path in sorted(tmp_path.glob(f"{name}.out-*"))]


def reached(made: Job, name: str, step: int) -> dict:
    """The report of a process that has come to a step."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        for one in read_reports(made.folder):
            if one["name"] == name and one.get("step", 0) >= step:
                return one
        time.sleep(0.05)
    pytest.fail(f"{name} did not come to step {step}")


def disturbed(made: Job, fault, host=None) -> tuple[int, list[str]]:
    """The exit status and the log of a job, during which fault() runs in a thread."""
    lines: list[str] = []
    thread = threading.Thread(target=fault, daemon=True)
    thread.start()
    status = Supervisor(made, [host or LocalHost()], say=lines.append).run()
    thread.join(SECONDS)
    return status, lines


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What the workers of a job of 20 steps write that nobody disturbs, by the number of its servers."""

    @functools.cache
    def run(ps: int) -> list[str]:
        folder = tmp_path_factory.mktemp("undisturbed")
        assert disturbed(job(folder, "quiet", ps=ps), lambda: None)[0] == 0
        return outs(folder, "quiet")

    return run


@pytest.mark.parametrize("ps", [0, 1])
def test_a_worker_that_stands_still_ends_in_a_restart_with_the_same_bits(tmp_path, gangs, undisturbed, ps):
    made = job(tmp_path, "hung", ps=ps, seconds=0.05, hang=3.0)

    def stop() -> None:
        found = reached(made, "worker-1", 7)
        os.kill(found["pid"], signal.SIGSTOP)
        stopped.append(found["pid"])

    stopped: list[int] = []
    status, lines = disturbed(made, stop)
    assert status == 0 and outs(tmp_path, "hung") == undisturbed(ps)
    assert any("hangs: no step for 3 s; restart 1 of 10" in line for line in lines), lines
    assert not Path(f"/proc/{stopped[0]}").exists()


@pytest.mark.parametrize(("mode", "options"), [("sync", {}), ("async", {"ps": 1})])
def test_an_elastic_job_goes_on_without_a_worker(tmp_path, gangs, mode, options):
    made = job(tmp_path, "job", mode, 40, 0.03, elastic=True, asynchronous=mode == "async", **options)
    status, lines = disturbed(made, lambda: os.kill(reached(made, "worker-1", 7)["pid"], signal.SIGKILL))
    assert status == 0, lines
    wanted = "the job continues without it" if mode == "async" else "with 1 workers, from the last checkpoint"
    assert any(wanted in line for line in lines), lines
    (only,) = outs(tmp_path, "job")
    assert int(only.split()[1]) >= 40


class FallibleHost(LocalHost):
    """A host whose agent dies once, with all of its processes."""

    def __init__(self) -> None:
        super().__init__()
        self.dies = threading.Event()

    def poll(self):
        self._check()
        return super().poll()

    def lines(self):
        self._check()
        return super().lines()

    def _check(self) -> None:
        if self.dies.is_set():
            self.dies.clear()
            super().close()
            raise HostLost("the agent has died")


@pytest.mark.parametrize("elastic", [False, True])
def test_a_lost_host(tmp_path, gangs, elastic):
    host = FallibleHost()
    made = job(tmp_path, "job", seconds=0.05, elastic=elastic)

    def fault() -> None:
        reached(made, "worker-1", 7)
        host.dies.set()

    status, lines = disturbed(made, fault, host)
    assert status == 0, lines
    count = 1 if elastic else 2
    assert any(
        f"agent of a host was lost (the agent has died); restart 1 of 10 with {count} workers" in x for x in lines
    )
    assert len(outs(tmp_path, "job")) == count


# --- Ray with several nodes on one machine ---


@pytest.fixture
def ray_nodes(monkeypatch):
    """A head without room for workers, and three nodes of two cores at loopback addresses of their own."""
    pytest.importorskip("ray", reason="jobs under Ray: pip install 'hloom[cluster]'")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    cluster, store = Cluster(), 80 << 20
    try:
        cluster.add_node(num_cpus=1, node_ip_address="127.0.0.9", object_store_memory=store, include_dashboard=False)
        nodes = {
            address: cluster.add_node(num_cpus=2, node_ip_address=address, object_store_memory=store)
            for address in ("127.0.0.2", "127.0.0.3", "127.0.0.4")
        }
        yield cluster, nodes
    finally:
        cluster.shutdown()


def test_a_node_of_ray_is_lost(tmp_path, gangs, ray_nodes, undisturbed):
    cluster, nodes = ray_nodes
    made = job(tmp_path, "job", devices=2, seconds=0.4)  # taking a node away takes seconds
    command = ["submit", "--ray", cluster.address, "--workers", "2", "--devices", "2", "--folder", made.folder]
    process = subprocess.Popen(
        [sys.executable, "-m", "hloom", "cluster", *command, *made.command], stdout=subprocess.PIPE, text=True
    )
    try:
        found = reached(made, "worker-1", 7)
        cluster.remove_node(nodes[_address_of(made, 1)], allow_graceful=False)
        said = process.communicate(timeout=SECONDS)[0]
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert "the agent of a host was lost" in said and "restart 1 of 10 with 2 workers" in said
    assert outs(tmp_path, "job") == undisturbed(0)
    assert not Path(f"/proc/{found['pid']}").exists()


def _address_of(made: Job, worker: int) -> str:
    told = json.loads((Path(made.folder) / "tasks" / f"worker-{worker}.json").read_text())
    return told["jobs"]["worker"][str(worker)].partition(":")[0]


# --- a full disk ---

PROGRAM = """
import hashlib, sys
import numpy as np
import hloom as hl, hloom.numpy as hnp
from hloom import cluster, optim, training

random = np.random.default_rng(0)
X = random.normal(size=(64, 100)).astype(np.float32)
weights = hnp.asarray(random.normal(size=(100, 100)).astype(np.float32))

def loss(model, batch):
    return hnp.mean((batch @ model["w"]) ** 2)

optimizer = optim.adam(1e-3)
state = training.TrainState.of({"w": weights}, optimizer)
result = cluster.fit(state, loss, optimizer, [X] * 10, steps=30, checkpoint_every=5, progress=False)
print("END", result.step, hashlib.sha256(np.asarray(result.state.model["w"]).tobytes()).hexdigest(), flush=True)
"""


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 600 kB, of which a file takes half; a checkpoint has 120 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", disk], capture_output=True)
    if made.returncode:
        pytest.skip("only root can mount a small file system")
    (disk / "filler").write_bytes(bytes(300_000))
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.parametrize("ps", [0, 1])
def test_a_job_on_a_full_disk_ends_with_an_error_and_goes_on_when_there_is_room(tmp_path, small_disk, gangs, ps):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "hloom", "cluster", "submit", "--local", "--restarts", "1", "--ps", str(ps)]

    def run(folder) -> subprocess.CompletedProcess:
        return subprocess.run(
            [*command, "--folder", str(folder), str(program)], capture_output=True, text=True, timeout=SECONDS
        )

    def ends(done) -> set[str]:
        return {line.partition("END ")[2] for line in done.stdout.splitlines() if "END" in line}

    wanted = run(tmp_path / "quiet")
    assert wanted.returncode == 0, wanted.stdout
    full = run(small_disk / "job")
    assert full.returncode == 1
    assert "No space left on device" in full.stdout and "repair: free space on the disk" in full.stdout
    says = "ps 0 could not save its variables" if ps else "a worker ended with status 1; no restarts are left"
    assert says in full.stdout
    complete = Manager(small_disk / "job" / ("ps-0/model" if ps else "."))
    latest = complete.latest()
    assert latest is not None and Checkpoint(complete.path(latest)).step == latest  # what was saved before is whole
    assert load_safetensors(complete.path(latest) / "arrays-0.safetensors")
    os.unlink(small_disk / "filler")
    done = run(small_disk / "job")
    assert done.returncode == 0, done.stdout
    assert len(ends(done)) == 1 and ends(done) == ends(wanted)


def test_a_folder_on_a_full_disk_is_an_error_of_the_command(small_disk):
    with contextlib.suppress(OSError), open(small_disk / "filler", "ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    done = subprocess.run(
        [sys.executable, "-m", "hloom", "cluster", "submit", "--local", "--folder", small_disk / "job", WORKER],
        capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 2 and "No space left on device" in done.stderr and "Traceback" not in done.stderr
