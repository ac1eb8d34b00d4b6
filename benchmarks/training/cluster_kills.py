"""Kills processes of jobs at random moments, and compares how the jobs end with an undisturbed one.

    python -m benchmarks.training.cluster_kills --kills 100

Each job is killed several times: a worker, a parameter server, the supervisor, or the host's agent (MPI's proxy).
Synchronous jobs have to end with the bits of an undisturbed job. Asynchronous ones have to make all their steps, with
each push counted once. Every job that does not come to its end within its limit counts as not resumed.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

WORKER = Path(__file__).with_name("cluster_worker.py")
STEPS, SECONDS = 60, 0.02
KINDS = {"gang": ("worker", "supervisor", "agent"), "sync ps": ("worker", "server", "supervisor"),
         "async ps": ("worker", "server")}  # fmt: skip


def job(folder: Path, kind: str) -> subprocess.Popen:
    flags = {"gang": [], "sync ps": ["--ps", "1"], "async ps": ["--ps", "1", "--async"]}[kind]
    mode = "async" if kind == "async ps" else "sync"
    return subprocess.Popen(
        [sys.executable, "-m", "hloom", "cluster", "submit", "--local", "--workers", "2", "--restarts", "1000",
         "--folder", str(folder / "job"), *flags, str(WORKER), mode, str(STEPS), str(SECONDS), str(folder / "out")],
        stdout=open(folder / "log", "w"), stderr=subprocess.STDOUT,
    )  # fmt: skip


def processes(process: subprocess.Popen) -> dict[str, list[int]]:
    """The processes of a job by role: all descendants of the command."""
    parents: dict[int, list[int]] = {}
    lines: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(path.name))
            lines[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    found: dict[str, list[int]] = {"worker": [], "server": [], "supervisor": [], "agent": []}
    waiting = [process.pid]
    while waiting:
        for pid in parents.get(waiting.pop(), ()):
            waiting.append(pid)
            line = lines.get(pid, "")
            what = {
                "supervisor": "jobs.supervisor" in line, "agent": "hydra_pmi_proxy" in line,
                "server": "jobs.task" in line and " ps " in line,
                "worker": "jobs.task" in line and " worker " in line and "mpiexec" not in line,
            }  # fmt: skip
            for name in ("supervisor", "agent", "server", "worker"):
                if what[name]:
                    found[name].append(pid)
                    break
    return found


def disturbed(kind: str, kills: int, rng: random.Random, limit: float) -> tuple[Counter, bool, list[str]]:
    """One job with some kills: the killed processes, whether the job finished, and its workers' output."""
    killed: Counter = Counter()
    with tempfile.TemporaryDirectory(prefix="hloom-kills-") as name:
        folder = Path(name)
        process = job(folder, kind)
        started = time.monotonic()
        try:
            moment = time.monotonic() + rng.uniform(2, 10)
            while process.poll() is None and time.monotonic() - started < limit:
                if sum(killed.values()) < kills and time.monotonic() > moment:
                    what = rng.choice(KINDS[kind])
                    pids = processes(process)[what]
                    if pids:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(rng.choice(pids), signal.SIGKILL)
                            killed[what] += 1
                    moment = time.monotonic() + rng.uniform(1, 8)
                time.sleep(0.02)
            done = process.poll() == 0
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                process.kill()
        outs = [p.read_text() for p in sorted(folder.glob("out-*"))]
        if not done:
            print((folder / "log").read_text()[-1500:], file=sys.stderr)
    return killed, done, outs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--each", type=int, default=4, help="kills of one job")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds for one job")
    parser.add_argument("--seconds", type=float, default=1e9, help="no further job after so many")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng, began = random.Random(options.seed), time.monotonic()
    wanted = {}
    for kind in ("gang", "sync ps"):
        _, done, outs = disturbed(kind, 0, rng, options.limit)
        assert done and len(outs) == 2, f"an undisturbed job did not end: {kind}"
        wanted[kind] = outs[0].split()[0]
    total: Counter = Counter()
    jobs: Counter = Counter()
    good, lost = 0, []
    while sum(total.values()) < options.kills and time.monotonic() - began < options.seconds:
        kind = list(KINDS)[sum(jobs.values()) % len(KINDS)]
        killed, done, outs = disturbed(kind, options.each, rng, options.limit)
        right = done and len(outs) == 2
        if right and kind in wanted:
            right = all(one.split()[0] == wanted[kind] for one in outs)
        if right and kind == "async ps":
            right = all(int(one.split()[1]) >= STEPS for one in outs)
        total += Counter({f"{kind}: {what}": n for what, n in killed.items()})
        jobs[kind] += 1
        good += sum(killed.values()) if right else 0
        if not right:
            lost.append((kind, dict(killed), done, outs))
        print(f"{kind}: {dict(killed)}, {'as undisturbed' if right else 'WRONG'}", flush=True)
    print(json.dumps({"kills": sum(total.values()), "resumed": good, "jobs": dict(jobs), "by": dict(total)}))
    for one in lost:
        print("not as undisturbed:", one)


if __name__ == "__main__":
    main()
