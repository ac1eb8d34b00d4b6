"""Jobs on Ray: a detached supervisor, and an agent on each node that starts processes there.

Ray keeps the actors alive and places them; no gradient goes through it (an actor's call takes 0.6 ms). The processes of
the workers are children of the agents, which MPI or the cluster's servers connect.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hloom.cluster.jobs.hosts import HostLost, Line, LocalHost
from hloom.cluster.jobs.job import Job, load_job
from hloom.cluster.jobs.supervisor import Supervisor
from hloom.errors import DistributedError

NAMESPACE = "hloom"
_CALL_SECONDS = 120.0  # an actor imports hloom first
_PLACED_SECONDS = 120.0
_ELASTIC_SECONDS = 20.0  # before a job that may continue with fewer workers does so
_REACH_SECONDS = 10.0


def library() -> Any:
    """The module ray. Raises DistributedError if it is missing."""
    try:
        # Takes half a second, and is an extra.
        import ray
    except ImportError as error:
        raise DistributedError(
            "a job under Ray",
            f"no Ray: {error}",
            "pip install 'hloom[cluster]', or run it without: hloom cluster submit --local ...",
        ) from error
    return ray


def start_ray(address: str, cores: int) -> Any:
    """Connects to a Ray cluster, or starts one on this machine, on the loopback interface. Raises DistributedError."""
    ray = library()
    options: dict[str, Any] = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": "ERROR"}
    if not address:
        # A small store: no arrays go through it.
        options |= {
            "num_cpus": cores, "include_dashboard": _has_dashboard(), "_node_ip_address": "127.0.0.1",
            "object_store_memory": 80 << 20,
        }  # fmt: skip
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    else:
        _reach(address)
        options["address"] = address
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise DistributedError(
            f"a Ray cluster at {address or 'this machine'}",
            str(error).splitlines()[0],
            "check the address: ray status --address ADDRESS",
        ) from error
    return ray


def _reach(address: str) -> None:
    """Raises DistributedError if nothing listens at an address: Ray itself would retry for minutes."""
    place = address.rpartition("//")[2]
    host, _, port = place.rpartition(":")
    if address == "auto":  # Ray looks for the cluster
        return
    if not host or not port.isdecimal():
        raise DistributedError(f"a Ray cluster at {address!r}", "no host and port", "write --ray HOST:6379, or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise DistributedError(
            f"a Ray cluster at {address}", str(error), "check the address: ray status --address ADDRESS"
        ) from error


def _has_dashboard() -> bool:
    return all(find_spec(name) is not None for name in ("aiohttp", "aiohttp_cors", "opencensus", "prometheus_client"))


class Agent:
    """The actor of a host: a LocalHost at the other end."""

    def __init__(self, variables: Mapping[str, str]):
        os.environ.update(variables)
        self._host = LocalHost()

    def call(self, method: str, *arguments):
        return getattr(self._host, method)(*arguments)

    def pid(self) -> int:
        return os.getpid()


class RayHost:
    """A node of Ray's as the supervisor sees it. Raises HostLost."""

    def __init__(self, ray, actor):
        self._ray, self._actor = ray, actor

    def _call(self, method: str, *arguments):
        try:
            return self._ray.get(self._actor.call.remote(method, *arguments), timeout=_CALL_SECONDS)
        except self._ray.exceptions.RayError as error:
            raise HostLost(type(error).__name__) from error

    def start(self, name: str, command: Sequence[str], variables: Mapping[str, str]) -> None:
        self._call("start", name, list(command), dict(variables))

    def poll(self) -> dict[str, int | None]:
        return self._call("poll")

    def kill(self, name: str, number: int) -> None:
        self._call("kill", name, int(number))

    def lines(self) -> list[Line]:
        return self._call("lines")

    def forget(self, name: str) -> None:
        self._call("forget", name)

    def close(self) -> None:
        self._call("close")


class RaySupervisor(Supervisor):
    """A Supervisor whose hosts are agents in a placement group: all of a job's processes get their cores, or none."""

    def __init__(self, ray, job: Job, say):
        super().__init__(job, [], say=say)
        self._ray = ray
        self._group: Any = None

    def _attempt(self, started: float) -> int:
        try:
            self._place()
            return super()._attempt(started)
        finally:
            self._release()

    def _place(self) -> None:
        """Agents on the nodes where Ray put the bundles of the job. Raises DistributedError if there is no room."""
        ray = self._ray
        while True:
            count = self.workers + self.job.ps
            group = ray.util.placement_group([{"CPU": self.job.devices}] * count, strategy="PACK")
            if group.wait(_ELASTIC_SECONDS if self._may_shrink() else _PLACED_SECONDS):
                break
            ray.util.remove_placement_group(group)
            if self._may_shrink():
                self.workers -= 1
                self._say(f"hloom cluster: Ray has no room for {count} processes; the job continues with {count - 1}")
                continue
            whole, free = (found.get("CPU", 0) for found in (ray.cluster_resources(), ray.available_resources()))
            raise DistributedError(
                f"{count} processes with {self.job.devices} cores each",
                f"Ray has {whole:g} cores, {free:g} free",
                "submit with fewer --workers or --devices, or add nodes",
            )
        self._group = group
        bundles = ray.util.placement_group_table(group)["bundles_to_node_id"]
        nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
        first = {node: bundle for bundle, node in sorted(bundles.items(), reverse=True)}
        strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
        actor = ray.remote(Agent)
        variables = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self._actors = [
            actor.options(
                num_cpus=self.job.devices,
                scheduling_strategy=strategy(placement_group=group, placement_group_bundle_index=bundle),
            ).remote(variables)
            for node, bundle in sorted(first.items(), key=lambda pair: pair[1])
        ]
        self.hosts = [RayHost(ray, one) for one in self._actors]
        addresses = [nodes[node] for node, _ in sorted(first.items(), key=lambda pair: pair[1])]
        # One node needs no names: its processes talk over the loopback interface.
        self.names = addresses if len(addresses) > 1 else []

    def _release(self) -> None:
        for actor in getattr(self, "_actors", ()):
            with contextlib.suppress(Exception):  # it may already be dead, which is fine
                self._ray.kill(actor)
        self._actors = []
        if self._group is not None:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.util.remove_placement_group(self._group)
            self._group = None


class SupervisorActor:
    """The supervisor as an actor that Ray starts again when it dies: it begins with the last checkpoint, as after any
    other fault. Its log is in memory for followers, and in the job's folder."""

    def __init__(self, folder: str, path: list[str]):
        sys.path[:] = path
        os.environ["PYTHONPATH"] = os.pathsep.join(p for p in path if p)
        self._lines: list[str] = []
        self._job = load_job(folder)
        self._log = open(Path(folder) / "log.txt", "a", encoding="utf-8")  # noqa: SIM115  (open as long as it lives)
        self._supervisor = RaySupervisor(library(), self._job, self._say)

    def _say(self, line: str) -> None:
        self._lines.append(line)
        with contextlib.suppress(OSError):
            self._log.write(line + "\n")
            self._log.flush()

    def run(self) -> int:
        return self._supervisor.run()

    def lines(self, start: int) -> list[str]:
        return self._lines[start:]

    def stop(self) -> None:
        self._supervisor.stop()

    def pid(self) -> int:
        return os.getpid()


def submit(job: Job) -> int:
    """Runs a job under Ray, with its log on standard output; the exit status. Raises DistributedError."""
    ray = start_ray(job.address, (job.workers + job.ps) * job.devices + 1)
    try:
        name = "supervisor-" + Path(job.folder).name
        actor = (
            ray.remote(SupervisorActor)
            .options(
                name=name, lifetime="detached", max_restarts=-1, max_task_retries=-1, max_concurrency=4, num_cpus=0,
                get_if_exists=True,
            )
            .remote(job.folder, sys.path)
        )  # fmt: skip
        return _follow(ray, actor)
    finally:
        ray.shutdown()


def _follow(ray, actor) -> int:
    ended, shown = actor.run.remote(), 0
    try:
        while True:
            done, _ = ray.wait([ended], timeout=0.3)
            with contextlib.suppress(ray.exceptions.RayError):  # the supervisor is being started again
                lines = ray.get(actor.lines.remote(shown), timeout=_CALL_SECONDS)
                for line in lines:
                    print(line, flush=True)
                shown += len(lines)
            if done:
                status = ray.get(ended)
                ray.kill(actor)
                return int(status)
    except KeyboardInterrupt:
        ray.get(actor.stop.remote(), timeout=_CALL_SECONDS)
        deadline = time.monotonic() + _CALL_SECONDS
        while time.monotonic() < deadline and not ray.wait([ended], timeout=1.0)[0]:
            pass
        ray.kill(actor)
        return 130


__all__ = ["RaySupervisor", "submit"]
