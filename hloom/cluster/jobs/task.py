"""The entry point of each process of a job: a parameter server, or the user's program.

    python -m hloom.cluster.jobs.task FOLDER JOB [INDEX] [PROGRAM ARGUMENTS...]

INDEX is - for processes of an MPI gang, which MPI numbers. The process ends with its parent, however that ends: no
process of a job outlives its supervisor.
"""

from __future__ import annotations

import io
import os
import signal
import sys

from hloom import distributed
from hloom.cluster.server import Server
from hloom.cluster.spec import own_task
from hloom.config import config
from hloom.distributed.environment import process_number
from hloom.distributed.parents import die_with_parent
from hloom.distributed.worker import run
from hloom.platforms.processes import set_own_task

UNSAVED = 74  # EX_IOERR: the exit status of a server whose variables are not on the disk


def main() -> None:
    folder, job, index, *command = sys.argv[1:]
    parent = os.getppid()
    die_with_parent()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # whole lines, prefixed with the name of the process
            stream.reconfigure(line_buffering=True, write_through=False)
    if os.getppid() != parent:  # it has ended already
        sys.exit(1)
    number = process_number() if index == "-" else int(index)
    path = os.path.join(folder, "tasks", f"{job}-{number}.json")
    os.environ["HLOOM_CLUSTER_TASK"] = path
    config.cluster_task = path
    set_own_task(f"/job:{job}/task:{number}")
    if job == "ps":
        told = own_task()
        assert told is not None  # the path was just set
        server = Server()
        signal.signal(signal.SIGTERM, lambda *_: server.stop())
        server.join()
        if server.variables.unsaved():
            sys.exit(UNSAVED)
        return
    if index == "-":  # one of a gang, which has no other way to find its peers
        distributed.meet()
    status = run(command)
    sys.stdout.flush()
    sys.stderr.flush()
    if status:
        # Finalizing MPI would wait for the others; mpiexec ends them when one process ends so.
        os._exit(status)


if __name__ == "__main__":
    main()
