"""Two tasks of a job `local` greet: a program of one process runs on both servers, where it says.

python examples/two_tasks.py --task 1 &
python examples/two_tasks.py --task 0
"""

import argparse

import numpy as np

import hloom as hl
from hloom.sessions import Program, Session, constant

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--task", type=int, default=0)
parser.add_argument("--ports", type=int, nargs=2, default=[2222, 2223])
options = parser.parse_args()

cluster = hl.cluster.ClusterSpec({"local": [f"localhost:{port}" for port in options.ports]})
server = hl.cluster.Server(cluster, job_name="local", task_index=options.task)
if options.task == 1:
    server.join()
else:
    for task in range(2):
        with Program("greeting") as program, hl.device(f"/job:local/task:{task}"):
            greeting = constant(np.frombuffer(b"Hello from server %d!" % task, np.uint8), name="greeting")
        with Session(program, server.target) as session, hl.config(log_device_placement=True):
            print(bytes(np.asarray(session.run(greeting ^ np.uint8(0)))).decode())
    with hl.cluster.connect(server) as link:
        link.stop_servers()
