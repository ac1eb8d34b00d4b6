"""The names of processes: tasks of jobs."""

import pytest

from hloom.distributed.tasks import assigned, tasks_of_cluster
from hloom.errors import DistributedError

pytestmark = pytest.mark.quick
CLUSTER = [("ps", 0), ("worker", 0), ("worker", 1)]


class Spec:
    def as_dict(self):
        return {"ps": ["a:1"], "worker": {0: "b:1", 1: "c:1"}}


@pytest.mark.parametrize("cluster", [{"ps": 1, "worker": 2}, {"ps": ["a:1"], "worker": ["b:1", "c:1"]}, Spec()])
def test_clusters_are_read(cluster):
    assert tasks_of_cluster(cluster) == CLUSTER


@pytest.mark.parametrize("cluster", [["ps"], {}, {"ps": "a:1"}, {"p s": 1}, {"ps": True}, {1: 2}])
def test_what_is_no_cluster(cluster):
    with pytest.raises(DistributedError, match="write it as"):
        tasks_of_cluster(cluster)


@pytest.mark.parametrize(
    ("claims", "cluster", "expected"),
    [
        ([(None, None)] * 2, None, [("worker", 0), ("worker", 1)]),
        ([(None, None)] * 3, CLUSTER, CLUSTER),
        ([("worker", None), ("ps", None), ("worker", None)], None, [("worker", 0), ("ps", 0), ("worker", 1)]),
        ([("worker", None), ("worker", 0), (None, None)], CLUSTER, [("worker", 1), ("worker", 0), ("ps", 0)]),
        ([("ps", 7), ("ps", None)], None, [("ps", 7), ("ps", 0)]),
    ],
)
def test_each_process_is_a_task(claims, cluster, expected):
    assert assigned(claims, cluster) == expected


@pytest.mark.parametrize(
    ("claims", "cluster", "message"),
    [
        ([("ps", 0)] * 2, None, "2 processes are /job:ps/task:0"),
        ([(None, None)] * 2, CLUSTER, "hloom launch -n 3"),
        ([("worker", 0), ("worker", 1), ("sp", 0)], CLUSTER, "job='ps'"),
        ([("worker", 0), ("worker", 1), ("worker", None)], CLUSTER, "the cluster has /job:ps/task:0"),
        ([("worker", 0), ("worker", 5), ("ps", 0)], CLUSTER, "this process is /job:worker"),
    ],
)
def test_tasks_that_do_not_fit(claims, cluster, message):
    with pytest.raises(DistributedError, match=message):
        assigned(claims, cluster)
