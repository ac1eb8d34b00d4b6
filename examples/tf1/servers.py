"""TensorFlow 1.0's cluster listings: a local server; two tasks; a graph that is cut between a server and a worker.

python examples/tf1/servers.py [--log]
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import hloom as hl
import hloom.numpy as hnp
from hloom.sessions import LocalServer, Program, Session, placeholder, replica_device_setter, variable

SERVE = "import sys, hloom as hl; hl.cluster.Server(hl.cluster.ClusterSpec({jobs}), {job!r}, {index}).join(120)"


@contextlib.contextmanager
def tasks(jobs, key_file):
    """A process for each task, which ends with the block."""
    environment = {**os.environ, "HLOOM_CLUSTER_KEY_FILE": key_file}
    commands = [SERVE.format(jobs=jobs, job=job, index=k) for job, found in jobs.items() for k in range(len(found))]
    started = [subprocess.Popen([sys.executable, "-c", command], env=environment) for command in commands]
    try:
        yield
    finally:
        for process in started:
            process.terminate()
            process.wait(20)


def local_greeting():
    """A server in this process: texts are constants that are fetched unchanged."""
    program = Program("greeting")
    with program:
        program.constant("Hello, distributed hloom!", "hello")
    with LocalServer.create_local_server() as server, Session(program, server.target) as session:
        return session.run("hello")


def two_tasks(target):
    """y = 2 x + 1 on task 1 of the job, its sum on task 0, which the session is connected to."""
    program = Program("two_tasks")
    with program:
        x = placeholder("x", [None])
        with hl.device("/job:local/task:1"):
            y = 2 * x + 1
        total = hnp.sum(y)
    with Session(program, target) as session:
        return float(session.run(total, {"x": np.arange(4, dtype=np.float32)}))


def cut_graph(target, steps=3):
    """s += w x + b: variables on the parameter server, the product on the worker; cut edges are sends and receives."""
    program = Program("cut")
    with program, hl.device(replica_device_setter(1, worker_device="/job:worker/task:0")):
        w, b = variable("w", hnp.full(4, 2.0)), variable("b", hnp.ones(4))
        s = variable("s", hnp.zeros(4))
        x = placeholder("x", [4])
        update = s.assign_add(w * x + b)
    with Session(program, target) as session:
        session.run(program.initializer())
        for _ in range(steps):
            session.run(update, {x: np.arange(4, dtype=np.float32)})
        return session.run(s).tolist()


def main(report=print, log=False):
    report(local_greeting())
    found = []
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as settings:
        key_file = str(hl.cluster.make_key(Path(folder, "key")))  # the secret that lets programs in
        settings.enter_context(hl.config(log_device_placement=log, cluster_key_file=key_file))
        for jobs, run in (({"local": 2}, two_tasks), ({"ps": 1, "worker": 1}, cut_graph)):
            free = iter(hl.cluster.free_addresses(sum(jobs.values())))
            cluster = {job: [next(free) for _ in range(count)] for job, count in jobs.items()}
            spec = hl.cluster.ClusterSpec(cluster)
            with tasks(cluster, key_file):
                found.append(run("hloom://" + spec.address(spec.tasks[-1])))
            report(f"{run.__name__}: {found[-1]}")
    return found


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--log", action="store_true", help="print the placement of each operation")
    main(log=arguments.parse_args().log)
