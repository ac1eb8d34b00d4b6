"""Clusters: tasks in other processes and on other hosts, which run parts of programs, keep variables, and train.

cluster = hl.cluster.ClusterSpec({"worker": ["a:2222", "b:2222"], "ps": ["c:2222"]})
hl.cluster.Server(cluster, "ps", 0).join()                # on host c

hl.cluster.connect(cluster)                               # in a client
with hl.device("/job:worker/task:1"):
    y = hl.jit(f)(x)

hl.cluster.fit(state, loss, optimizer, batches, mode="async", cluster=cluster, task=0, steps=1000)
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from hloom.ir.process import lazy as _lazy

if _TYPE_CHECKING:  # the names of _HOMES, for type checkers
    # fmt: off
    # isort: off
    from hloom.cluster.client import Connection, RemoteData, connect
    from hloom.cluster.modes import fit, worker, workers
    from hloom.cluster.parameters import ParameterServers
    from hloom.cluster.server import Server
    from hloom.cluster.spec import ClusterSpec, Task, Tls, free_addresses, make_key, own_task
    # isort: on
    # fmt: on

# Where the public names are defined.
_HOMES = {
    "hloom.cluster.client": "Connection RemoteData connect",
    "hloom.cluster.modes": "fit worker workers",
    "hloom.cluster.parameters": "ParameterServers",
    "hloom.cluster.server": "Server",
    "hloom.cluster.spec": "ClusterSpec Task Tls free_addresses make_key own_task",
}
__getattr__ = _lazy.lazy_names(globals(), _HOMES)

__all__ = " ".join(_HOMES.values()).split()
__dir__ = __all__.copy
