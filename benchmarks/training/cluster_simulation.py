"""Simulates up to 1,000 workers: synchronous training with backup workers, and asynchronous training.

    python -m benchmarks.training.cluster_simulation --plot cluster_simulation.png

A simulation, not a measurement. Its model is calibrated on this machine: 2 and 4 workers with a parameter server give
the times of pulls, pushes and gradients, from which the simulated ones, stragglers among them, are drawn with
replacement. Servers are queues: each serves one request at a
time; with more workers there are more servers, one for each 16. In synchronous training a step ends when the first n of
n + b workers have pushed; all pull then.
"""

import argparse
import heapq
import json
import threading
import time

import numpy as np

WORKERS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
SHARE = 16  # workers of a server
STEPS = 60


def measured(workers: int, steps: int = 60) -> dict:
    """Step times of workers, as threads that sleep for a gradient's time and push to one server: seconds."""
    import hloom as hl  # the simulation alone needs none of it
    import hloom.numpy as hnp
    from hloom import cluster, optim
    from hloom.cluster.parameters import ParameterServers

    model = {"w": hnp.zeros((224, 1024)), "b": hnp.zeros(1024)}  # 0.9 MB
    addresses = cluster.free_addresses(workers + 1)
    spec = cluster.ClusterSpec({"worker": addresses[:workers], "ps": addresses[workers:]}, key=b"0" * 32)
    gradient = hl.tree.map(lambda x: np.full(x.shape, 1e-6, np.float32), model)
    x = np.random.default_rng(0).normal(size=(32, 224)).astype(np.float32)
    compute = hl.jit(hl.grad(lambda m, x: hnp.mean(hnp.tanh(x @ m["w"] + m["b"]))))
    compute(model, x)
    times: dict[str, list[float]] = {"compute": [], "pull": [], "push": []}
    with cluster.Server(spec, "ps", 0):
        made = [ParameterServers(spec, model, optim.sgd(0.1), worker=k, workers=workers) for k in range(workers)]

        def work(k: int) -> None:
            made[k].start(60)
            for step in range(steps):
                marks = [time.perf_counter()]
                found = made[k].pull(step)
                marks.append(time.perf_counter())
                compute(found, x)
                marks.append(time.perf_counter())
                made[k].push(step, gradient)
                marks.append(time.perf_counter())
                for name, a, b in zip(("pull", "compute", "push"), marks, marks[1:], strict=False):
                    times[name].append(b - a)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(workers)]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - started
        for one in made:
            one.leave()
    return {"times": times, "steps per second": workers * steps / seconds}


def calibrated() -> dict:
    """The times of a request at a server, and of a gradient with its stragglers."""
    found = {workers: measured(workers) for workers in (2, 4)}
    model: dict = {name: np.array(found[2]["times"][name]) for name in ("compute", "pull", "push")}

    def speeds() -> dict[int, float]:
        return {workers: asynchronous(model, workers, 400, np.random.default_rng(1), 1) for workers in found}

    # The times of requests contain waits for the other worker, and all share this machine's cores: one factor for all
    # times makes the model right on average over 2 and 4 workers.
    ratios = [simulated / found[workers]["steps per second"] for workers, simulated in speeds().items()]
    scale = float(np.exp(np.mean(np.log(ratios))))
    model = {name: times * scale for name, times in model.items()}
    model["checks"] = {w: (found[w]["steps per second"], simulated) for w, simulated in speeds().items()}
    return model


def asynchronous(model: dict, workers: int, steps: int, rng, servers: int | None = None) -> float:
    """Gradients per second: each worker pulls, computes, pushes; a server does one request after the other."""
    count = servers or max(workers // SHARE, 1)
    free = np.zeros(count)
    # (time, number, worker, whether it pulls next). Variables are spread: a request costs each server its share.
    waiting = [(0.0, k, k, True) for k in range(workers)]
    heapq.heapify(waiting)
    done, last, number = 0, 0.0, workers
    while done < steps * workers:
        now, _, worker, pulls = heapq.heappop(waiting)
        share = float(rng.choice(model["pull" if pulls else "push"])) / count
        free = np.maximum(free, now) + share
        end = float(free.max())
        if pulls:
            end += float(rng.choice(model["compute"]))
        else:
            done, last = done + 1, end
        number += 1
        heapq.heappush(waiting, (end, number, worker, not pulls))
    return done / last


def synchronous(model: dict, workers: int, backup: int, steps: int, rng) -> float:
    """Gradients that count per second: a step ends when the first workers - backup have pushed."""
    count = max(workers // SHARE, 1)
    total = 0.0
    for _ in range(steps):
        pulls, pushes = (rng.choice(model[name], workers) / count for name in ("pull", "push"))
        ready = np.cumsum(pulls) + rng.choice(model["compute"], workers)
        free = 0.0
        for arrived, push in zip(np.sort(ready)[: workers - backup], pushes, strict=False):
            free = max(free, arrived) + push
        total += free
    return steps * (workers - backup) / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot")
    parser.add_argument("--json")
    options = parser.parse_args()
    model = calibrated()
    print(
        "calibrated, median and mean: "
        + ", ".join(
            f"{name} {1e3 * np.median(model[name]):.2f} and {1e3 * np.mean(model[name]):.2f} ms"
            for name in ("compute", "pull", "push")
        )
        + f"; slowest gradient {np.max(model['compute']) / np.median(model['compute']):.1f} times the median"
    )
    for workers, (found, simulated) in model["checks"].items():
        print(f"check, {workers} workers asynchronous: measured {found:.0f} steps/s, simulated {simulated:.0f}")
    print("\nSIMULATED, gradients per second:\n")
    print("| workers | servers | synchronous | 2 % backup | 5 % backup | 10 % backup | asynchronous |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    rows = []
    for workers in WORKERS:
        rng = np.random.default_rng(workers)
        row: list[float] = [workers, max(workers // SHARE, 1)]
        row += [
            synchronous(model, workers, int(np.ceil(workers * b)) if b else 0, STEPS, rng) for b in (0, 0.02, 0.05, 0.1)
        ]
        row.append(asynchronous(model, workers, 20 if workers > 100 else STEPS, rng))
        rows.append(row)
        print("| " + " | ".join(f"{v:.0f}" if isinstance(v, float) else str(v) for v in row) + " |", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"rows": rows, "model": {k: model[k].tolist() for k in ("compute", "pull", "push")}}, file)
    if options.plot:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(7, 4.5))
        names = (
            "synchronous",
            "synchronous, 2 % backup",
            "synchronous, 5 % backup",
            "synchronous, 10 % backup",
            "asynchronous",
        )
        for k, name in enumerate(names):
            axes.loglog([r[0] for r in rows], [r[2 + k] for r in rows], marker="o", label=name)
        axes.set(xlabel="workers", ylabel="gradients per second", title="Simulation (calibrated on 2 and 4 workers)")
        axes.legend()
        axes.grid(alpha=0.3)
        figure.savefig(options.plot, dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main()
