"""How data-parallel training scales: two devices against one on the same cores, and a model of many devices.

    python -m benchmarks.sharding.scaling

The model is a simulation. A step takes the time that a device computes, and that of the all-reduce of its gradients:

    step(n) = compute(batch) + latency x log2(n) + seconds_per_byte x 2 bytes (n - 1) / n

compute is measured on one device with one thread. Latency and seconds per byte are fitted to steps of 2 and 4 virtual
devices of this machine, whose threads share its cores: n devices on c cores compute in ceil(n / c) turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import numpy as np

MODELS = ("LeNet", "transformer")
BATCHES = {"LeNet": (2, 8, 32), "transformer": (1, 2, 4)}  # of a device: images, sequences of 64 tokens
PREDICTED = (8, 64, 1024)
ROUNDS = 8


def make_step(hl, model: str):
    """(the step, its state, a function batch size -> arguments) of a model."""
    hnp = hl.numpy
    random = np.random.default_rng(0)

    def dense(*shape):
        return (random.normal(size=shape) / np.sqrt(shape[-2] if len(shape) == 2 else np.prod(shape[:-1]))).astype("f4")

    if model == "LeNet":
        weights = [dense(5, 5, 1, 6), dense(5, 5, 6, 16), dense(400, 120), dense(120, 84), dense(84, 10)]

        def logits(w, x):
            for k, padding in ((0, "SAME"), (1, "VALID")):
                x = hl.lax.conv_general_dilated(x, w[k], (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))
                x = hl.nn.max_pool(hl.nn.relu(x), (2, 2), (2, 2))
            x = x.reshape(len(x), -1)
            for k in (2, 3, 4):
                x = x @ w[k] if k == 4 else hl.nn.relu(x @ w[k])
            return x

        def batch(size):
            return random.random((size, 28, 28, 1), np.float32), random.integers(0, 10, size).astype(np.int32)

    else:
        width, heads, layers, length, words = 128, 4, 2, 64, 256
        block = [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)]
        weights = [dense(words, width), dense(length, width), *(dense(*s) for _ in range(layers) for s in block)]

        def logits(w, codes):
            x = w[0][codes] + w[1]
            mask = np.triu(np.full((length, length), -1e9, np.float32), 1)
            for k in range(2, len(w), 4):
                split = (hl.nn.standardize(x) @ w[k]).reshape(*codes.shape, 3, heads, width // heads)
                q, key, v = (split[:, :, n] for n in range(3))
                scores = hl.nn.softmax(hnp.einsum("bqhe,bkhe->bhqk", q, key) / (width // heads) ** 0.5 + mask)
                x = x + hnp.einsum("bhqk,bkhe->bqhe", scores, v).reshape(x.shape) @ w[k + 1]
                x = x + hl.nn.gelu(hl.nn.standardize(x) @ w[k + 2]) @ w[k + 3]
            return x @ w[0].T

        def batch(size):
            codes = random.integers(0, words, (2, size, length)).astype(np.int32)
            return codes[0], codes[1]

    def loss(w, x, y):
        return hnp.mean(hl.nn.losses.softmax_cross_entropy_with_integer_labels(logits(w, x), y))

    @hl.jit
    def step(w, x, y):
        return [p - 0.01 * g for p, g in zip(w, hl.grad(loss)(w, x, y), strict=True)]

    return step, weights, batch


def serve() -> None:
    """Answers requests on the standard input: {model, batch (of a device), devices, seconds}, with times of a step."""
    import hloom as hl

    known: dict = {}
    for line in sys.stdin:
        request = json.loads(line)
        key = request["model"], request["batch"], request["devices"]
        if key not in known:
            step, weights, batch = make_step(hl, key[0])
            x, y = batch(key[1] * key[2])
            if key[2] > 1:
                mesh = hl.sharding.Mesh(np.array(hl.devices("cpu")[: key[2]]), ("data",))
                whole, split = (hl.NamedSharding(mesh, hl.P(*s)) for s in ((), ("data",)))
                weights, (x, y) = hl.device_put(weights, whole), hl.device_put((x, y), split)
            else:
                weights, x, y = (hl.tree.map(hl.numpy.asarray, v) for v in (weights, x, y))
            known[key] = step, weights, x, y
            for _ in range(3):
                step(weights, x, y)
        step, *given = known[key]
        times: list[float] = []
        end = time.perf_counter() + request["seconds"]
        while time.perf_counter() < end or len(times) < 3:
            start = time.perf_counter()
            hl.block_until_ready(step(*given))
            times.append(time.perf_counter() - start)
        print(json.dumps(times), flush=True)


class Server:
    """hloom with this number of devices and threads, in a separate process."""

    def __init__(self, devices: int, threads: int):
        environment = {**os.environ, "HLOOM_NUM_CPU_DEVICES": str(devices), "HLOOM_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.sharding.scaling", "--serve"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env=environment, text=True,
        )  # fmt: skip
        self.devices = devices

    def times(self, model: str, batch: int, seconds: float) -> list[float]:
        assert self.process.stdin is not None and self.process.stdout is not None
        request = {"model": model, "batch": batch, "devices": self.devices, "seconds": seconds}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


def measured(servers: dict[str, Server], model: str, batches: dict[str, int], seconds: float) -> dict[str, float]:
    """The least of the times of a step by each server, which run in turn."""
    found: dict[str, list[float]] = {name: [] for name in servers}
    for _ in range(ROUNDS):
        for name, server in servers.items():
            found[name] += server.times(model, batches[name], seconds / ROUNDS)
    return {name: min(times) for name, times in found.items()}


def two_against_one(seconds: float = 4.0) -> list[tuple[str, int, float, float]]:
    """(model, batch, seconds on one device with two threads, on two devices) of the same batch."""
    servers = {"one": Server(1, 2), "two": Server(2, 2)}
    rows = []
    for model in MODELS:
        for size in BATCHES[model]:
            found = measured(servers, model, {"one": 2 * size, "two": size}, seconds)
            rows.append((model, 2 * size, found["one"], found["two"]))
            print(*rows[-1], file=sys.stderr, flush=True)
    for server in servers.values():
        server.end()
    return rows


def gradient_bytes(model: str) -> int:
    import hloom as hl

    return sum(w.nbytes for w in make_step(hl, model)[1])


def calibrated(seconds: float = 3.0) -> dict:
    """{model: {bytes, latency, seconds_per_byte, compute by batch, measured and modelled steps on 2 and 4}}."""
    cores = min(os.cpu_count() or 1, 2)
    servers = {"1": Server(1, 1), "2": Server(2, cores), "4": Server(4, cores)}
    found = {}
    for model in MODELS:
        steps = {size: measured(servers, model, dict.fromkeys(servers, size), seconds) for size in BATCHES[model]}
        total = gradient_bytes(model)
        # Unknowns: latency, seconds per byte; an equation for each batch size and number of devices.
        left, right = [], []
        for times in steps.values():
            for n in (2, 4):
                turns = -(-n // cores)
                weight = 1 / times[str(n)]
                left.append([np.log2(n) * weight, 2 * total * (n - 1) / n * turns * weight])
                right.append((times[str(n)] - turns * times["1"]) * weight)
        solution = np.maximum(np.linalg.lstsq(np.array(left), np.array(right), rcond=None)[0], 0.0)
        rows = []
        for size, times in steps.items():
            for n in (2, 4):
                turns = -(-n // cores)
                modelled = turns * times["1"] + _exchange(n, total, turns, *solution)
                rows.append((size, n, times[str(n)], float(modelled)))
        found[model] = {
            "bytes": total, "latency": float(solution[0]), "seconds_per_byte": float(solution[1]),
            "compute": {size: times["1"] for size, times in steps.items()}, "rows": rows,
        }  # fmt: skip
        print(model, found[model], file=sys.stderr, flush=True)
    for server in servers.values():
        server.end()
    return found


def _exchange(devices: int, total: int, turns: int, latency: float, seconds_per_byte: float) -> float:
    return latency * np.log2(devices) + seconds_per_byte * 2 * total * (devices - 1) / devices * turns


def predicted(model: dict, batch: int, devices: int) -> tuple[float, float]:
    """(seconds of a step, efficiency) with a core for each device."""
    compute = model["compute"][batch]
    step = compute + _exchange(devices, model["bytes"], 1, model["latency"], model["seconds_per_byte"])
    return step, compute / step


def efficient_batch(model: dict, devices: int = 64, efficiency: float = 0.95) -> float:
    """The batch of a device from which on the efficiency is at least this, by a line through the measured times."""
    sizes = sorted(model["compute"])
    slope, start = np.polyfit(sizes, [model["compute"][s] for s in sizes], 1)
    exchange = _exchange(devices, model["bytes"], 1, model["latency"], model["seconds_per_byte"])
    return max((exchange * efficiency / (1 - efficiency) - start) / slope, 1.0)


if __name__ == "__main__":
    if "--serve" in sys.argv:
        serve()
    else:
        two_against_one()
        print(calibrated())
