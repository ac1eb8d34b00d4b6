"""TensorFlow 1.0's distributed listing: three workers and two parameter servers, a process each, synchronous or not.

python examples/tf1/parameter_servers.py [--mode sync] [--backup 1] [--steps 150]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import hloom as hl
import hloom.numpy as hnp
from hloom import cluster, nn, optim
from hloom.nn.losses import softmax_cross_entropy_with_integer_labels

WORKERS, SERVERS = 3, 2


def loss(model, batch):
    return hnp.mean(softmax_cross_entropy_with_integer_labels(model(batch["x"]), batch["y"]))


def work(spec, task, mode, backup, steps):
    """A worker: the same program everywhere, with a part of the data for each."""
    digits = load_digits()
    rows = {"x": (digits.data / 16).astype(np.float32), "y": digits.target.astype(np.int32)}
    data = hl.data.arrays(rows).shard(task, WORKERS).shuffle(1000, seed=task).batch(50, last="drop").repeat()
    one, two = hl.random.split(hl.random.key(0))
    model = nn.Sequential(nn.Linear(64, 32, key=one), hnp.tanh, nn.Linear(32, 10, key=two))
    optimizer = optim.sgd(0.2)
    state = hl.training.TrainState.of(model, optimizer)
    found = cluster.fit(
        state, loss, optimizer, data, mode=mode, cluster=spec, task=task, backup=backup, steps=steps, progress=False
    )
    scores = found.state.model(rows["x"])
    return float(hnp.mean((hnp.argmax(scores, axis=1) == rows["y"]).astype("float32")))


def main(mode="async", backup=0, steps=150, report=print):
    """Starts the tasks; returns the accuracy that each worker has at the end."""
    free = cluster.free_addresses(WORKERS + SERVERS)
    jobs = {"worker": free[:WORKERS], "ps": free[WORKERS:]}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "HLOOM_CLUSTER_KEY_FILE": str(Path(folder, "key"))}
        with hl.config(cluster_key_file=environment["HLOOM_CLUSTER_KEY_FILE"]):
            cluster.ClusterSpec(jobs).key  # noqa: B018  (makes the key before the tasks read it)
        command = [sys.executable, __file__, "--mode", mode, "--backup", str(backup), "--steps", str(steps)]
        tasks = [(job, k) for job in jobs for k in range(len(jobs[job]))]
        started = [
            subprocess.Popen(
                [*command, "--jobs", json.dumps(jobs), "--task", f"{job}:{k}"],
                env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )
            for job, k in tasks
        ]  # fmt: skip
        try:
            found = [float(p.communicate(timeout=120)[0].split()[-1]) for p in started[:WORKERS]]
        finally:
            for process in started:
                process.kill()
                process.wait()
    report(f"{mode}: accuracy at the workers {', '.join(f'{a:.3f}' for a in found)}")
    return found


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--mode", choices=["sync", "async"], default="async")
    arguments.add_argument("--backup", type=int, default=0, help="workers that a synchronous step does not wait for")
    arguments.add_argument("--steps", type=int, default=150)
    arguments.add_argument("--jobs", help="of the cluster, for a task")
    arguments.add_argument("--task", help="worker:0")
    given = arguments.parse_args()
    if given.task is None:
        main(given.mode, given.backup, given.steps)
    else:
        spec, (job, index) = cluster.ClusterSpec(json.loads(given.jobs)), given.task.split(":")
        if job == "ps":
            cluster.Server(spec, "ps", int(index)).join(180)
        else:
            print(work(spec, int(index), given.mode, given.backup, given.steps))
