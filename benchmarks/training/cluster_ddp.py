"""Two workers in synchronous training against torch's DistributedDataParallel (gloo): same network, batch and machine.

    python -m benchmarks.training.cluster_ddp

A multilayer perceptron with 0.9 MB and one with 25 MB of parameters, SGD with momentum, one thread per process. The
two take turns: each round starts two processes of one and two of the other. The comparison uses the fastest twentieth
of the steps of the slower process: on a machine with other load, the uninterrupted steps.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

SIZES = {"0.9 MB": (256, 448, 224, 10), "25 MB": (1024, 2048, 2048, 10)}  # widths of the layers
BATCH = 32  # examples of each worker


def data(widths, rank: int):
    import numpy as np  # in the processes that compute

    rng = np.random.default_rng(rank)
    return rng.normal(size=(BATCH, widths[0])).astype(np.float32), rng.integers(0, widths[-1], BATCH).astype(np.int32)


def hloom_worker(size: str, steps: int) -> list[float]:
    import numpy as np

    import hloom as hl
    import hloom.numpy as hnp
    from hloom import optim, training
    from hloom.cluster.strategies import AllReduce

    hl.distributed.initialize()
    widths = SIZES[size]
    rng = np.random.default_rng(0)
    model = [
        {"w": rng.normal(0, 0.03, (a, b)).astype(np.float32), "b": np.zeros(b, np.float32)}
        for a, b in itertools.pairwise(widths)
    ]

    def loss(model, batch):
        x, y = batch
        for layer in model[:-1]:
            x = hnp.maximum(x @ layer["w"] + layer["b"], 0)
        logits = x @ model[-1]["w"] + model[-1]["b"]
        return hnp.mean(hl.nn.losses.softmax_cross_entropy_with_integer_labels(logits, y))

    optimizer = optim.sgd(0.01, momentum=0.9)
    step = AllReduce(loss, optimizer)
    state = training.TrainState.of(hl.tree.map(hnp.asarray, model), optimizer)
    batch = data(widths, hl.process_index())
    return timed(steps, lambda state: step(state, batch)[0], state, lambda: hl.distributed.barrier())


def torch_worker(size: str, steps: int) -> list[float]:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    widths = SIZES[size]
    layers: list = []
    for a, b in itertools.pairwise(widths):
        layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
    model = DistributedDataParallel(torch.nn.Sequential(*layers[:-1]))
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    x, y = (torch.from_numpy(a) for a in data(widths, dist.get_rank()))
    y = y.long()

    def step(state):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        return state

    return timed(steps, step, None, dist.barrier)


def timed(steps: int, step, state, barrier) -> list[float]:
    for _ in range(10):
        state = step(state)
    barrier()
    found = []
    for _ in range(steps):
        started = time.perf_counter()
        state = step(state)
        found.append(time.perf_counter() - started)
    return found


def run(which: str, size: str, steps: int, folder: Path) -> float:
    """The fastest twentieth of the steps of the slower of two processes, in seconds."""
    own = [sys.executable, "-m", "benchmarks.training.cluster_ddp", "--worker", which, "--size", size]
    own += ["--steps", str(steps), "--out", str(folder)]
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HLOOM_NUM_THREADS": "1"}
    environment = os.environ | threads | {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
    if which == "hloom":
        from hloom.distributed.launcher import mpiexec

        subprocess.run([mpiexec(), "-n", "2", *own], check=True, env=environment, timeout=300)
    else:
        from hloom.cluster import free_addresses

        environment |= {"MASTER_PORT": free_addresses(1)[0].rpartition(":")[2], "WORLD_SIZE": "2"}
        started = [subprocess.Popen(own, env=environment | {"RANK": str(k)}) for k in range(2)]
        assert [p.wait(300) for p in started] == [0, 0]
    found = [sorted(json.loads((folder / f"{which}-{k}.json").read_text())) for k in range(2)]
    return max(statistics.median(times[: max(len(times) // 20, 1)]) for times in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", choices=["hloom", "torch"])
    parser.add_argument("--size", choices=list(SIZES))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out")
    options = parser.parse_args()
    if options.worker:
        found = {"hloom": hloom_worker, "torch": torch_worker}[options.worker](options.size, options.steps)
        rank = os.environ.get("RANK", os.environ.get("PMI_RANK", "0"))
        (Path(options.out) / f"{options.worker}-{rank}.json").write_text(json.dumps(found))
        return
    import tempfile

    for size in SIZES:
        times: dict[str, list[float]] = {"hloom": [], "torch": []}
        with tempfile.TemporaryDirectory(prefix="hloom-ddp-") as folder:
            for _ in range(options.rounds):
                for which in times:
                    times[which].append(run(which, size, options.steps, Path(folder)))
        ours, theirs = (statistics.median(times[w]) for w in ("hloom", "torch"))
        ratios = [b / a for a, b in zip(times["hloom"], times["torch"], strict=True)]
        print(
            f"{size}: hloom {1e3 * ours:.2f} ms, torch DDP (gloo) {1e3 * theirs:.2f} ms, "
            f"ratio {statistics.median(ratios):.2f} ({', '.join(f'{r:.2f}' for r in ratios)})",
            flush=True,
        )


if __name__ == "__main__":
    main()
