"""TensorFlow 1.0's parameter-server listing: two parameter servers and three workers, each a process.

    python examples/tf1/replicated.py                      # asynchronous: no worker waits for another
    python examples/tf1/replicated.py --mode sync          # SyncReplicas: a step is the mean gradient of all workers
    python examples/tf1/replicated.py --mode in-graph      # one program with a tower on each worker
    python examples/tf1/replicated.py --kill               # a worker and a parameter server are killed on the way

Each worker runs a program of its own on variables that the servers have (between-graph replication). Worker 0
initializes them and saves them; it restores them where a server was started again. A process that dies is started
again by the one that the command line started.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import hloom as hl
import hloom.numpy as hnp
from hloom import cluster
from hloom.checkpoints import Manager
from hloom.errors import DistributedError, UninitializedError
from hloom.nn.losses import softmax_cross_entropy_with_integer_labels
from hloom.sessions import (
    Program,
    Session,
    SyncReplicas,
    apply_gradients,
    global_step,
    gradients,
    minimize,
    placeholder,
    replica_device_setter,
    variable,
)

SERVERS, WORKERS, BATCH, RATE = 2, 3, 50, 0.2
digits = load_digits()
X, Y = (digits.data / 16).astype(np.float32), digits.target.astype(np.int32)


def network(x, parameters):
    w1, b1, w2, b2 = parameters
    return hnp.tanh(x @ w1 + b1) @ w2 + b2


def cost_of(x, y, parameters):
    return hnp.mean(softmax_cross_entropy_with_integer_labels(network(x, parameters), y))


def define(jobs, mode, worker):
    """(the program of a worker, its SyncReplicas)."""
    program, sync = Program("digits"), None
    setter = replica_device_setter(cluster=jobs, worker_device=f"/job:worker/task:{worker}")
    with program, hl.device(setter):
        x, y = placeholder("x", [None, 64]), placeholder("y", [None], "int32")
        one, two = hl.random.split(hl.random.key(0))
        parameters = [
            variable("w1", 0.2 * hl.random.normal(one, (64, 32))), variable("b1", hnp.zeros(32)),
            variable("w2", 0.2 * hl.random.normal(two, (32, 10))), variable("b2", hnp.zeros(10)),
        ]  # fmt: skip
        step = global_step()
        cost = program.target("cost", cost_of(x, y, parameters))
        if mode == "in-graph":  # the batch is divided between towers on the workers
            towers = []
            for k in range(WORKERS):
                with hl.device(f"/job:worker/task:{k}"):
                    rows = slice(k * BATCH, (k + 1) * BATCH)
                    towers.append(gradients(cost_of(x[rows], y[rows], parameters), parameters))
            means = [sum(parts) / WORKERS for parts in zip(*towers, strict=True)]
            pairs = list(zip(means, parameters, strict=True))
            apply_gradients(hl.optim.sgd(RATE), pairs, global_step=step, name="train")
        elif mode == "sync":
            sync = SyncReplicas(hl.optim.sgd(RATE), replicas_to_aggregate=WORKERS)
            sync.minimize(cost, global_step=step)
        else:
            minimize(hl.optim.sgd(RATE), cost, global_step=step, name="train")
        program.initializer(name="init")
    return program, sync


def ready(session, manager):
    """Waits until all variables have values. manager: worker 0's, which gives them the saved or the initial ones."""
    while True:
        try:
            if not session.uninitialized():
                return
            if manager is not None:
                if (step := manager.latest()) is None:
                    session.run("init")
                else:
                    session.restore(manager.restore())
                    print(f"restored step {step}", flush=True)
        except DistributedError as error:
            print(f"waiting: {error.found}", flush=True)
        time.sleep(0.2)


def work(jobs, mode, worker, steps, folder):
    server = cluster.Server(jobs, "worker", worker)
    if mode == "in-graph" and worker:  # worker 0 runs the program
        server.join()
        return
    program, sync = define(jobs, mode, worker)
    manager = Manager(Path(folder) / "checkpoints") if worker == 0 else None
    rng, size = np.random.default_rng([worker, time.time_ns()]), BATCH * (WORKERS if mode == "in-graph" else 1)
    session = Session(program, server.target)
    ready(session, manager)
    made, saved = 0, 0
    while True:
        rows = rng.integers(0, len(Y), size)
        feed = {"x": X[rows], "y": Y[rows]}
        try:
            made = int(session.run("global_step"))
            if made >= steps:
                break
            if manager is not None and made >= saved + 50:
                manager.save(made, session.state(), wait=True)
                saved = made
            if sync is None:
                session.run("train", feed)
            else:
                sync.run(session, "train", feed, timeout=60)
        except (DistributedError, UninitializedError) as error:
            print(f"worker {worker}: {error.found}", flush=True)
            ready(session, manager)
            saved = 0
    cost = float(session.run("cost", {"x": X, "y": Y}))
    print(f"worker {worker}: {mode}, {made} steps, cost {cost:.3f}", flush=True)
    assert cost < 0.6


def start(jobs, options, folder, job, task):
    if job == "ps":
        command = ["-m", "hloom", "cluster", "serve", "--cluster", json.dumps(jobs), "--job", "ps", "--task", str(task)]
    else:
        command = [__file__, "--mode", options.mode, "--steps", str(options.steps), "--task", str(task)]
        command += ["--cluster", json.dumps(jobs), "--folder", folder]
    return subprocess.Popen([sys.executable, *command])


def supervise(options):
    """Starts all processes, and again those that die, until the workers have ended."""
    addresses = cluster.free_addresses(SERVERS + WORKERS)
    jobs = {"ps": addresses[:SERVERS], "worker": addresses[SERVERS:]}
    with tempfile.TemporaryDirectory() as folder:
        tasks = [(job, task) for job in jobs for task in range(len(jobs[job]))]
        running = {one: start(jobs, options, folder, *one) for one in tasks}
        victims = [("worker", 1), ("ps", 1)] if options.kill else []
        waited = [("worker", k) for k in range(1 if options.mode == "in-graph" else WORKERS)]
        try:
            while any(running[one].poll() != 0 for one in waited):
                if victims and list(Path(folder).glob("checkpoints/step_*")):
                    victim = victims.pop()
                    print(f"killing {victim}", flush=True)
                    running[victim].kill()
                    running[victim].wait()
                for one, process in running.items():
                    if process.poll() not in (None, 0):
                        running[one] = start(jobs, options, folder, *one)
                time.sleep(0.2)
        finally:
            for process in running.values():
                process.kill()
                process.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=["async", "sync", "in-graph"], default="async")
    parser.add_argument("--steps", type=int, default=300, help="of all workers together")
    parser.add_argument("--kill", action="store_true", help="kill a worker and a parameter server on the way")
    parser.add_argument("--task", type=int, help="the number of a worker; for the processes that this one starts")
    parser.add_argument("--cluster", type=json.loads)
    parser.add_argument("--folder")
    chosen = parser.parse_args()
    if chosen.task is None:
        supervise(chosen)
    else:
        work(chosen.cluster, chosen.mode, chosen.task, chosen.steps, chosen.folder)
