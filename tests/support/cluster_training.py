"""A small regression that several workers train, as threads of the tests' process."""

import threading

import numpy as np

import hloom as hl
import hloom.numpy as hnp
from hloom import optim, training

KEY = b"a key of the tests, 32 bytes....."
_rng = np.random.default_rng(0)
X = _rng.normal(size=(256, 8)).astype(np.float32)
Y = X @ _rng.normal(size=(8, 2)).astype(np.float32)
OPTIMIZER = optim.adam(0.05)


def model():
    return {"w": hnp.zeros((8, 2)), "b": hnp.zeros(2)}


def loss(m, batch):
    return hnp.mean((batch["x"] @ m["w"] + m["b"] - batch["y"]) ** 2)


def batch(step: int, worker: int) -> dict:
    rows = np.random.default_rng((step, worker)).integers(0, len(X), 16)
    return {"x": X[rows], "y": Y[rows]}


def batches(worker: int):
    """The data of a worker: the same for each step, whenever it is read."""
    return lambda epoch: (batch(20 * epoch + k, worker) for k in range(20))


def state() -> training.TrainState:
    return training.TrainState.of(model(), OPTIMIZER)


def cluster(workers: int, servers: int) -> hl.cluster.ClusterSpec:
    addresses = hl.cluster.free_addresses(workers + servers)
    return hl.cluster.ClusterSpec({"worker": addresses[:workers], "ps": addresses[workers:]}, key=KEY)


def in_threads(function, count: int, timeout: float = 60.0) -> list:
    """function(k) for each k at the same time; what went wrong in one is raised."""
    results: list = [None] * count

    def one(k: int):
        try:
            results[k] = function(k)
        except BaseException as error:
            results[k] = error

    threads = [threading.Thread(target=one, args=(k,), daemon=True) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
        assert not thread.is_alive(), "a worker did not come to its end"
    for found in results:
        if isinstance(found, BaseException):
            raise found
    return results


def reference(steps: int, workers: int) -> dict:
    """The model after synchronous steps, computed in one place."""
    value = state()
    params, opt = value.model, value.optimizer
    gradient = hl.jit(hl.grad(loss))

    @hl.jit
    def update(params, opt, total):
        updates, opt = OPTIMIZER.update(total, opt, params)
        return optim.apply_updates(params, updates), opt

    for step in range(steps):
        found = [gradient(params, batch(step, w)) for w in range(workers)]
        total = hl.tree.map(lambda *g: sum(g[1:], g[0]) * np.float32(1 / workers), *found)
        params, opt = update(params, opt, total)
    return hl.tree.map(np.asarray, params)


def same_bits(a, b) -> bool:
    return all(np.array_equal(np.asarray(x), np.asarray(y)) for x, y in zip(*map(hl.tree.leaves, (a, b)), strict=True))
