"""s += w * x + b, with w, b and s on a parameter server and the rest on a worker: two processes besides this one.

Shows the part of each task, with the send and the receive at every cut edge.
"""

import argparse
import json
import subprocess
import sys

import numpy as np

import hloom as hl

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--steps", type=int, default=3, help="additions of w * x + b to s")
options = parser.parse_args()

ports = hl.cluster.free_addresses(2)
jobs = {"ps": [ports[0]], "worker": [ports[1]]}
serve = [sys.executable, "-m", "hloom", "cluster", "serve", "--cluster", json.dumps(jobs), "--job"]
servers = [subprocess.Popen([*serve, job]) for job in jobs]

with hl.cluster.connect(hl.cluster.ClusterSpec(jobs)) as cluster:

    @hl.jit(donate_argnums=3)
    def step(w, b, x, s):
        with hl.device("/job:worker/task:0"):
            product = w * x + b
        with hl.device("/job:ps/task:0"):
            return s + product

    w, b, s = (hl.device_put(np.full(4, n, np.float32), "/job:ps/task:0") for n in (2, 1, 0))
    x = np.arange(4, dtype=np.float32)
    print(step.lower(w, b, x, s).compile().as_text())
    for _ in range(options.steps):
        s = step(w, b, x, s)
    print(s, s.device)
    assert np.array_equal(np.asarray(s), options.steps * (2 * x + 1))
    cluster.stop_servers()
for server in servers:
    server.wait(20)
