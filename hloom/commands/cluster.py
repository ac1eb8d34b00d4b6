"""Runs programs on several processes or hosts, restarts what fails, and shows what they do.

`submit` starts a program under Ray: on this machine, on a Ray cluster (--ray ADDRESS), or on Kubernetes (--kubernetes);
with --local without Ray on this machine. What the processes print follows. When one dies or hangs, the job goes on from
its last checkpoint (`hl.cluster.fit`). `status` shows the workers of a job, their steps, their waits and checkpoints.
`serve` is a task of a cluster that takes programs from clients. `key` makes the file with the key that lets clients in.

Examples:
    hloom cluster submit --local --workers 4 --devices 2 train.py --epochs 3
    hloom cluster submit --workers 4 --ps 2 --backup 1 train.py
    hloom cluster submit --kubernetes --dry-run --image registry/hloom:1 --claim runs --folder /shared/run train.py
    hloom cluster status --folder run
    hloom cluster status --folder run --page
    hloom cluster serve --cluster '{"worker": ["localhost:2222"]}' --job worker --task 0
    hloom cluster key ~/.hloom/team_key

"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from hloom.cluster.client import connect
from hloom.cluster.jobs.job import Job
from hloom.cluster.jobs.status import StatusServer, job_status, server_status, show
from hloom.cluster.jobs.submit import PLATFORMS, submit_kubernetes
from hloom.cluster.server import Server
from hloom.cluster.spec import make_key
from hloom.config import config
from hloom.errors import ArgumentError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    submit = actions.add_parser("submit", help="start a job and follow it")
    submit.add_argument("--workers", type=int, default=2, metavar="N", help="worker processes")
    submit.add_argument("--devices", type=int, default=1, metavar="D", help="CPU devices of each")
    submit.add_argument("--ps", type=int, default=0, metavar="N", help="parameter servers; 0: the workers use MPI")
    submit.add_argument("--backup", type=int, default=0, metavar="N", help="workers that a step does not wait for")
    submit.add_argument("--async", dest="asynchronous", action="store_true", help="restart workers one by one")
    submit.add_argument("--elastic", action="store_true", help="go on with fewer workers when one has failed")
    submit.add_argument("--restarts", type=int, default=10, metavar="N", help="how many restarts are allowed")
    submit.add_argument("--hang", type=float, default=300.0, metavar="S", help="seconds without a step; 0: never")
    submit.add_argument("--folder", default="hloom_job", help="of checkpoints, log and status; hosts share it")
    place = submit.add_mutually_exclusive_group()
    place.add_argument("--local", action="store_true", help="on this machine, without Ray")
    place.add_argument("--ray", metavar="ADDRESS", default="", help="a Ray cluster; 'auto': the one around")
    place.add_argument("--kubernetes", action="store_true", help="a RayJob of KubeRay")
    submit.add_argument("--dry-run", action="store_true", help="print the manifest for Kubernetes")
    submit.add_argument("--name", default="hloom-job", help="of the RayJob")
    submit.add_argument("--image", default="", help="of the containers: hloom[cluster] and the program")
    submit.add_argument("--claim", default="", help="the PersistentVolumeClaim that holds --folder on Kubernetes")
    submit.add_argument("--namespace", default="default", help="of the RayJob")
    submit.add_argument("--memory", default="4Gi", help="of each container")
    submit.add_argument("-m", dest="module", action="store_true", help="the program is the name of a module")
    submit.add_argument("program", help="a Python file, or with -m a module")
    submit.add_argument("arguments", nargs=argparse.REMAINDER, help="what the program gets in sys.argv")
    status = actions.add_parser("status", help="what a job, or a cluster's servers, do")
    status.add_argument(
        "target", nargs="?", default="", help="hloom://host:port of a server; none: the job in --folder"
    )
    status.add_argument("--folder", default="hloom_job", help="of the job")
    status.add_argument("--json", action="store_true", help="print JSON")
    status.add_argument("--page", action="store_true", help="serve a page on this machine until Ctrl-C")
    status.add_argument("--port", type=int, default=0, help="of the page; 0: any free one")
    serve = actions.add_parser("serve", help="run the server of a task")
    serve.add_argument("--cluster", required=True, help='JSON: {"worker": ["host:port", ...], "ps": [...]}')
    serve.add_argument("--job", required=True, help="the job of this task")
    serve.add_argument("--task", type=int, default=0, help="its number")
    serve.add_argument("--folder", default=None, help="where its variables are saved")
    key = actions.add_parser("key", help="make a file with a new key, which only its owner may read")
    key.add_argument("file", nargs="?", default=None, help="the file; none: that of HLOOM_CLUSTER_KEY_FILE")


def run(options: argparse.Namespace) -> int:
    return {"submit": _submit, "status": _status, "serve": _serve, "key": _key}[options.action](options)


def _submit(options: argparse.Namespace) -> int:
    if options.dry_run and not options.kubernetes:
        raise ArgumentError("--dry-run prints a manifest", "the job is not for Kubernetes", "add --kubernetes")
    command = [*(["-m"] if options.module else []), options.program, *options.arguments]
    folder = options.folder if options.kubernetes else os.path.abspath(options.folder)
    job = Job(
        folder, command, options.workers, options.devices, options.ps, options.backup, options.elastic,
        options.asynchronous, options.restarts, options.hang, "local" if options.local else "ray", options.ray,
    )  # fmt: skip
    if options.kubernetes:
        return submit_kubernetes(
            job, options.dry_run, name=options.name, image=options.image, claim=options.claim,
            namespace=options.namespace, memory=options.memory,
        )  # fmt: skip
    job.check()
    return PLATFORMS[job.platform](job)


def _status(options: argparse.Namespace) -> int:
    if options.target:
        with connect(options.target, timeout=5.0) as link:
            found = server_status(link)
        print(json.dumps(found, indent=1))
        return 0
    if options.page:
        with StatusServer(os.path.abspath(options.folder), options.port) as page:
            job_status(page.folder)  # raises for a folder that is none
            print(f"status at {page.url}", flush=True)
            page.serve_forever()
        return 0
    status = job_status(os.path.abspath(options.folder))
    if options.json:
        print(json.dumps(status, indent=1))
    else:
        show(status)
    return 0


def _key(options: argparse.Namespace) -> int:
    file = Path(options.file or config.cluster_key_file).expanduser()
    there = file.exists()
    make_key(file)
    print(f"{file} is there already" if there else f"made {file}: copy it to the cluster's other hosts")
    return 0


def _serve(options: argparse.Namespace) -> int:
    try:
        jobs = json.loads(options.cluster)
    except ValueError as error:
        raise ArgumentError("--cluster is JSON", str(error), 'write \'{"worker": ["host:port"]}\'') from error
    with Server(jobs, options.job, options.task, folder=options.folder) as server:
        print(f"{server.task} at {server.target} since {time.strftime('%H:%M:%S')}", flush=True)
        server.join()
    return 0
