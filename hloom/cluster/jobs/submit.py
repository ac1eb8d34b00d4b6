"""Starts a job: on this machine with or without Ray, on a Ray cluster, or on Kubernetes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from hloom.cluster.jobs import kubernetes, ray_jobs
from hloom.cluster.jobs.job import Job
from hloom.distributed.parents import die_with_parent

_AGAIN = 100  # restarts of the supervisor


def submit_local(job: Job) -> int:
    """Runs a job with a supervisor process on this machine, which is started again if it is killed. The exit status."""
    job.save()
    for _ in range(_AGAIN):
        process = subprocess.Popen(
            [sys.executable, "-m", "hloom.cluster.jobs.supervisor", job.folder], start_new_session=True,
            preexec_fn=_die_too,
        )  # fmt: skip
        status = _waited(process)
        if status >= 0:
            return status
        print(f"hloom cluster: the supervisor ended with signal {-status}; it is started again", flush=True)
        time.sleep(0.2)
    return 1


def _die_too() -> None:
    die_with_parent(signal.SIGTERM)  # the supervisor lets its processes save


def _waited(process: subprocess.Popen) -> int:
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGTERM)
        process.wait()
        return 130


def submit_ray(job: Job) -> int:
    ray_jobs.library()
    job.save()
    return ray_jobs.submit(job)


def submit_kubernetes(job: Job, dry_run: bool, **options: str) -> int:
    """options: of `kubernetes.manifest`."""
    made = kubernetes.manifest(job, **options)
    if dry_run:
        print(json.dumps(made, indent=2))
        return 0
    return kubernetes.apply(made)


PLATFORMS: dict[str, Callable[[Job], int]] = {"local": submit_local, "ray": submit_ray}

__all__ = ["PLATFORMS", "submit_kubernetes", "submit_local", "submit_ray"]
