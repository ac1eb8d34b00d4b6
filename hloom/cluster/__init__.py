"""Clusters: tasks in other processes and on other hosts, which run parts of programs, keep variables, and train.

cluster = hl.cluster.ClusterSpec({"worker": ["a:2222", "b:2222"], "ps": ["c:2222"]})
hl.cluster.Server(cluster, "ps", 0).join()                # on host c

hl.cluster.connect(cluster)                               # in a client
with hl.device("/job:worker/task:1"):
    y = hl.jit(f)(x)
"""

from __future__ import annotations

from hloom.cluster.client import Connection, RemoteData, connect
from hloom.cluster.server import Server
from hloom.cluster.spec import ClusterSpec, Task, Tls, free_addresses, own_task

__all__ = ["ClusterSpec", "Connection", "RemoteData", "Server", "Task", "Tls", "connect", "free_addresses", "own_task"]
__dir__ = __all__.copy
