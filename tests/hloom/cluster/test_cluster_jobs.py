"""Jobs: started, watched, killed, started again; status; manifests. Each job is bounded in time."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from hloom.cluster.jobs import kubernetes, ray_jobs, status
from hloom.cluster.jobs.hosts import LocalHost
from hloom.cluster.jobs.job import Job, load_job
from hloom.cluster.jobs.supervisor import Supervisor
from hloom.cluster.report import read_reports, write_report
from hloom.commands import main
from hloom.errors import ArgumentError, DistributedError

WORKER = Path(__file__).parents[3] / "benchmarks" / "training" / "cluster_worker.py"
SECONDS = 180.0


def job(tmp_path, name: str, mode="sync", steps=20, seconds=0.01, **options) -> Job:
    folder = tmp_path / name
    made = Job(str(folder), [str(WORKER), mode, str(steps), str(seconds), str(tmp_path / f"{name}.out")], **options)
    made.check()
    made.save()
    return made


def digests(tmp_path, name: str) -> list[str]:
    return [path.read_text().split()[0] for path in sorted(tmp_path.glob(f"{name}.out-*"))]


def supervised(made: Job) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "hloom.cluster.jobs.supervisor", made.folder])


def report_of(made: Job, name: str, reached) -> dict:
    """A process's report, once it is as wanted."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        for one in read_reports(made.folder):
            if one["name"] == name and reached(one):
                return one
        time.sleep(0.05)
    pytest.fail(f"{name} did not come so far: {read_reports(made.folder)}")


def ended(process: subprocess.Popen) -> int:
    try:
        return process.wait(SECONDS)
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_gang_goes_on_from_its_checkpoint_with_the_same_bits(tmp_path, capfd):
    pytest.importorskip("mpi4py", reason="gangs need MPI: pip install 'hloom[cluster]'")
    quiet = job(tmp_path, "quiet")
    assert ended(supervised(quiet)) == 0
    wanted = digests(tmp_path, "quiet")
    assert len(set(wanted)) == 1 and len(wanted) == 2
    made = job(tmp_path, "killed", seconds=0.05)
    process = supervised(made)
    found = report_of(made, "worker-1", lambda one: one["step"] >= 7)
    os.kill(found["pid"], signal.SIGKILL)
    assert ended(process) == 0
    assert digests(tmp_path, "killed") == wanted
    assert "restart 1 of 10 with 2 workers, from the last checkpoint" in capfd.readouterr().out
    found = status.job_status(made.folder)
    assert found["state"] == "ended" and found["restarts"] == 1
    assert [one["saved"] for one in found["processes"]] == [20, 20]


@pytest.mark.slow
def test_servers_and_supervisors_are_killed(tmp_path):
    """A synchronous job with a parameter server: the server, then the supervisor."""
    quiet = job(tmp_path, "quiet", ps=1)
    assert ended(supervised(quiet)) == 0
    made = job(tmp_path, "killed", ps=1, seconds=0.05)
    command = [sys.executable, "-c", f"from hloom.cluster.jobs import submit, job; "
               f"raise SystemExit(submit.submit_local(job.load_job({made.folder!r})))"]  # fmt: skip
    process = subprocess.Popen(command)
    report_of(made, "worker-0", lambda one: one["step"] >= 7)
    server = next(one for one in status.job_status(made.folder)["processes"] if one["name"] == "ps-0")
    os.kill(server["pid"], signal.SIGKILL)
    report_of(made, "worker-0", lambda one: one["attempt"] == 1 and one["step"] >= 8)
    supervisor = report_of(made, "supervisor", lambda one: one["state"] == "running")
    worker = report_of(made, "worker-0", lambda one: True)
    os.kill(supervisor["pid"], signal.SIGKILL)
    assert ended(process) == 0
    assert not Path(f"/proc/{worker['pid']}").exists()  # nothing outlives its supervisor
    assert digests(tmp_path, "killed") == digests(tmp_path, "quiet")


@pytest.mark.slow
def test_a_hung_worker_is_found_and_named(tmp_path):
    program = tmp_path / "hangs.py"
    program.write_text(
        "import os, sys, time\nfrom pathlib import Path\nfrom hloom.cluster import own_task\n"
        "from hloom.cluster.report import write_report\n"
        "told = own_task()\n"
        "write_report(told.folder, f'worker-{told.index}', {'state': 'running', 'step': 3, 'attempt': told.attempt})\n"
        "time.sleep(60 if told.attempt == 0 and told.index == 1 else 0)\n"
        "write_report(told.folder, f'worker-{told.index}', {'state': 'ended', 'step': 3, 'attempt': told.attempt})\n"
    )
    made = Job(str(tmp_path / "job"), [str(program)], ps=1, hang=1.0)
    made.save()
    lines: list[str] = []
    assert Supervisor(made, [LocalHost()], say=lines.append).run() == 0
    assert any("worker 1 hangs: no step for 1 s; restart 1 of 10" in line for line in lines)


@pytest.mark.slow
def test_a_job_that_fails_always_ends_with_its_traceback(tmp_path):
    program = tmp_path / "fails.py"
    program.write_text("raise ValueError('wrong here')\n")
    made = Job(str(tmp_path / "job"), [str(program)], workers=1, ps=1, restarts=1)
    made.save()
    lines: list[str] = []
    assert Supervisor(made, [LocalHost()], say=lines.append).run() == 1
    assert "[worker-0] ValueError: wrong here" in lines
    assert lines[-1] == "hloom cluster: worker 0 ended with status 1; no restarts are left"


@pytest.mark.quick
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"workers": 0}, "--workers"),
        ({"backup": 2, "ps": 1}, "no worker would count"),
        ({"backup": 1}, "add --ps 1"),
        ({"asynchronous": True}, "add --ps 1"),
        ({"command": []}, "hloom cluster submit train.py"),
        ({"command": ["absent.py"]}, "no such file"),
    ],
)
def test_jobs_that_cannot_be(tmp_path, options, says):
    with pytest.raises(ArgumentError, match=says):
        Job(**{"folder": str(tmp_path), "command": [str(WORKER)], **options}).check()


@pytest.mark.quick
def test_the_file_of_a_job_is_its_owners(tmp_path):
    made = job(tmp_path, "a")
    assert load_job(made.folder) == made
    assert (tmp_path / "a" / "job.json").stat().st_mode & 0o077 == 0
    made.write_tasks(2, 0)
    assert all(p.stat().st_mode & 0o077 == 0 for p in (tmp_path / "a" / "tasks").iterdir())
    with pytest.raises(DistributedError, match="no job.json"):
        load_job(tmp_path)


@pytest.mark.quick
def test_status_as_table_and_page(tmp_path, capsys):
    made = job(tmp_path, "a")
    write_report(made.folder, "supervisor", {"state": "running", "workers": 2, "restarts": 1, "problem": "<b>"})
    fields = {"state": "running", "step": 7, "loss": 0.25, "input_wait": 0.5, "peer_wait": 0.1, "saved": 5}
    write_report(made.folder, "worker-0", fields)
    assert main(["cluster", "status", "--folder", made.folder, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["processes"][0]["step"] == 7 and found["restarts"] == 1
    assert main(["cluster", "status", "--folder", made.folder]) == 0
    assert "worker" in capsys.readouterr().out
    with status.StatusServer(made.folder) as page:
        threading.Thread(target=page.serve_forever, daemon=True).start()
        text = urllib.request.urlopen(page.url, timeout=10).read().decode()
        assert "<td>worker 0</td><td>running</td><td>7</td><td>0.25</td><td>50 %</td>" in text and "&lt;b&gt;" in text
        assert json.load(urllib.request.urlopen(page.url + "status.json", timeout=10))["workers"] == 2
        page.shutdown()
    assert main(["cluster", "status", "--folder", str(tmp_path)]) == 2
    assert "no job.json" in capsys.readouterr().err


@pytest.mark.quick
@pytest.mark.parametrize(("step", "attempts"), [(0, 3), (7, 11)])
def test_a_program_that_cannot_begin_is_not_started_again_and_again(tmp_path, step, attempts):
    """Where no attempt comes to a step, the program is at fault; one that made steps has all its restarts."""
    made, lines, begun = job(tmp_path, "fails", ps=1), [], []

    class Failing(Supervisor):
        def _attempt(self, started):
            begun.append(started)
            write_report(made.folder, "worker-0", {"state": "running", "step": step})
            self.problem = "a worker ended with status 1"
            return 1

    assert Failing(made, [], say=lines.append).run() == 1 and len(begun) == attempts
    assert ("3 times before its first step: it is not started again" if step == 0 else "no restarts are left") in lines[
        -1
    ]


# --- Kubernetes and Ray ---


@pytest.mark.quick
def test_a_manifest_is_a_rayjob(capsys):
    pytest.importorskip("jsonschema", reason="manifests are checked: pip install 'hloom[cluster]'")
    command = "cluster submit --kubernetes --dry-run --image registry/hloom:1 --workers 8 --devices 2 --ps 2 --elastic"
    assert main([*command.split(), "--claim", "runs", "--folder", "/shared/run", "train.py", "--name", "a b"]) == 0
    made = json.loads(capsys.readouterr().out)
    kubernetes.check(made)
    group = made["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]
    assert (group["replicas"], group["minReplicas"]) == (10, 1)
    container = group["template"]["spec"]["containers"][0]
    for template in (group["template"], made["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]):
        assert template["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "runs"}
        assert template["spec"]["containers"][0]["volumeMounts"] == [{"name": "job", "mountPath": "/shared/run"}]
    assert container["resources"]["limits"] == {"cpu": "2", "memory": "4Gi"}
    assert {"name": "OPENBLAS_NUM_THREADS", "value": "1"} in container["env"]
    assert made["spec"]["entrypoint"].endswith("--ps 2 --elastic --folder /shared/run train.py --name 'a b'")
    made["spec"]["entrypont"] = made["spec"].pop("entrypoint")
    with pytest.raises(DistributedError, match="entrypont"):
        kubernetes.check(made)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"name": "A_b"}, "lower-case"),
        ({"image": ""}, "--image"),
        ({"memory": "4GB"}, "4Gi"),
        ({"claim": ""}, "no volume"),
    ],
)
def test_manifests_that_kubernetes_refuses(options, says):
    with pytest.raises(ArgumentError, match=says):
        kubernetes.manifest(
            Job("/shared/run", ["train.py"]), **{"name": "a", "image": "b:1", "claim": "runs", **options}
        )


@pytest.mark.quick
def test_without_ray_it_says_so(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(DistributedError, match=r"(?s)no Ray.*hloom\[cluster\].*--local"):
        ray_jobs.library()
    assert main(["cluster", "submit", "--workers", "1", str(WORKER)]) == 2
    assert "--local" in capsys.readouterr().err


@pytest.mark.slow
def test_a_job_under_ray(tmp_path):
    pytest.importorskip("ray", reason="jobs under Ray: pip install 'hloom[cluster]'")
    pytest.importorskip("mpi4py", reason="gangs need MPI: pip install 'hloom[cluster]'")
    made = job(tmp_path, "ray", platform="ray")
    command = ["cluster", "submit", "--workers", "2", "--folder", made.folder, *made.command]
    done = subprocess.run(
        [sys.executable, "-m", "hloom", *command], capture_output=True, text=True, timeout=2 * SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(set(digests(tmp_path, "ray"))) == 1
    assert status.job_status(made.folder)["platform"] == "ray"
