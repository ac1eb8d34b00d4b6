"""The status of a job, as a table, as JSON, and as a page that refreshes itself."""

from __future__ import annotations

import html
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hloom.cluster.client import Connection
from hloom.cluster.jobs.job import Job, load_job
from hloom.cluster.peers import Peers
from hloom.cluster.report import read_reports
from hloom.cluster.spec import own_task, parse_task
from hloom.config import config
from hloom.errors import DistributedError

COLUMNS = ("process", "state", "step", "loss", "input wait", "waits for peers", "last checkpoint", "waits now", "seen")
OLD = 10.0  # seconds after which a report of a running process is called silent


def job_status(folder: str) -> dict[str, Any]:
    """The reports of the supervisor and the workers, and the servers' answers. Raises DistributedError."""
    job = load_job(folder)
    reports = {report["name"]: report for report in read_reports(folder)}
    supervisor = reports.pop("supervisor", {"state": "not started"})
    supervisor.pop("name", None)
    found = {"folder": folder, "command": job.command, **supervisor, "processes": []}
    now = time.time()
    for report in reports.values():
        report["seen"] = round(now - report.get("time", now), 1)
        if report.get("state") == "running" and report["seen"] > OLD:
            report["state"] = "silent"
        found["processes"].append(report)
    if job.ps and supervisor.get("state") == "running":
        found["processes"] += [_server_status(job, index) for index in range(job.ps)]
    return found


def _server_status(job: Job, index: int) -> dict[str, Any]:
    name = f"ps-{index}"
    try:
        with config(cluster_task=f"{job.folder}/tasks/{name}.json"):
            told = own_task()
        assert told is not None  # the path was just set
        task = parse_task(f"/job:ps/task:{index}")
        answer = Peers(told.spec())[task].request({"op": "status"}, (), 2.0)[0]
    except (DistributedError, OSError) as error:
        return {"name": name, "state": "no answer", "problem": getattr(error, "found", str(error))}
    groups = answer["variables"].values()
    return {
        "name": name, "state": "running", "step": max((g["step"] for g in groups), default=None),
        "saved": max((g["saved"] for g in groups), default=None), "waits": answer["waits"], "pid": answer["pid"],
        "problem": "; ".join(g["save_error"].splitlines()[0] for g in groups if g["save_error"]),
    }  # fmt: skip


def server_status(link: Connection) -> list[dict[str, Any]]:
    """The answers of all servers of a cluster; those that do not answer are named."""
    found = []
    for task in link.spec.tasks:
        try:
            found.append(link.status(task, 2.0))
        except DistributedError as error:
            found.append({"task": str(task), "state": "no answer", "problem": error.found})
    return found


def _row(one: dict[str, Any]) -> list[str]:
    def share(name: str) -> str:
        return "" if one.get(name) is None else f"{100 * one[name]:.0f} %"

    waits = ", ".join(f"{w['for']} ({w['seconds']:.1f} s)" for w in one.get("waits", ()))
    loss = "" if one.get("loss") is None else f"{one['loss']:.5g}"
    return [
        one["name"].replace("-", " "), str(one.get("state", "")), _text(one.get("step")), loss, share("input_wait"),
        share("peer_wait"), _text(one.get("saved")), waits or one.get("problem", ""),
        "" if one.get("seen") is None else f"{one['seen']:.1f} s ago",
    ]  # fmt: skip


def _text(value) -> str:
    return "" if value is None or value == -1 else str(value)


def _headline(found: dict[str, Any]) -> str:
    restarts = f", {found['restarts']} restarts" if found.get("restarts") else ""
    problem = f" ({found['problem']})" if found.get("problem") else ""
    workers = f", {found['workers']} workers" if "workers" in found else ""
    return f"{' '.join(found['command'])}: {found['state']}{problem}{workers}{restarts}"


def show(found: dict[str, Any], console: Console | None = None) -> None:
    """Prints a job's status as a table."""
    console = console or Console()
    console.print(_headline(found), highlight=False, markup=False)
    table = Table(*COLUMNS)
    for one in found["processes"]:
        table.add_row(*map(Text, _row(one)))  # names are not markup
    console.print(table)


def page(found: dict[str, Any]) -> str:
    """The same as HTML."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in COLUMNS)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in _row(one)) + "</tr>" for one in found["processes"]
    )
    title = html.escape(_headline(found))
    made = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="2">'
        f"<title>{title}</title><style>body{{font:15px system-ui;margin:2em}}td,th{{padding:.3em .8em;text-align:left;"
        f"border-bottom:1px solid #ccc}}</style><h1>{title}</h1><table><tr>{head}</tr>{rows}</table></html>"
    )
    return made.encode(errors="replace").decode()


class StatusServer(ThreadingHTTPServer):
    """The page at `/` and the JSON at `/status.json`, on this machine only."""

    daemon_threads = True

    def __init__(self, folder: str, port: int = 0):
        """Raises DistributedError for a port in use."""
        self.folder = folder
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            raise DistributedError(
                f"a page at 127.0.0.1:{port}", str(error.strerror), "pass another --port, or none"
            ) from error

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    server: StatusServer

    def do_GET(self) -> None:
        if self.path not in ("/", "/status.json"):
            self.send_error(404)
            return
        found = job_status(self.server.folder)
        text = page(found) if self.path == "/" else json.dumps(found)
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8" if self.path == "/" else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args) -> None:  # noqa: A002  (http.server's name)
        """Prints nothing: requests are not logged."""


__all__ = ["StatusServer", "job_status", "page", "server_status", "show"]
