"""Two hosts in two network namespaces of this machine (root on Linux): a parameter server and a worker.

    sudo python examples/two_hosts.py

The link between them is a pair of virtual interfaces. Half way it is cut for some seconds: the worker waits, and goes
on when the link is back. Each push counts once.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import hloom as hl

KEY = b"both hosts have this secret....."
JOBS = {"ps": ["10.77.13.1:2222"], "worker": ["10.77.13.2:2222"]}
STEPS = 40


def serve() -> None:
    hl.cluster.Server(hl.cluster.ClusterSpec(JOBS, key=KEY), "ps", 0).join()


def train(out: str) -> None:
    import numpy as np

    import hloom.numpy as hnp
    from hloom import cluster, optim, training

    def batches(epoch):
        for step in range(10):
            Path(out + ".step").write_text(str(10 * epoch + step))
            time.sleep(0.05)
            yield np.random.default_rng(step).normal(size=(32, 4)).astype(np.float32)

    optimizer = optim.sgd(0.05)
    state = training.TrainState.of({"w": hnp.ones(4)}, optimizer)
    hl.config.distributed_timeout = 60
    result = cluster.fit(
        state, lambda model, x: hnp.mean((x @ model["w"]) ** 2), optimizer, batches, mode="async",
        cluster=hl.cluster.ClusterSpec(JOBS, key=KEY), task=0, steps=STEPS, progress=False,
    )  # fmt: skip
    Path(out).write_text(json.dumps({"step": result.step, "w": np.asarray(result.state.model["w"]).tolist()}))


def ip(command: str) -> None:
    subprocess.run(["ip", *command.split()], check=True)


def main(out: str, cut: float) -> dict:
    """What the worker came to, after its link was cut for some seconds. Raises CalledProcessError without the right to
    make namespaces."""
    names = [f"hloom{os.getpid()}{host}" for host in "ab"]
    links = [f"hl{os.getpid() % 100000}{host}" for host in "ab"]
    started: list[subprocess.Popen] = []
    try:
        for name in names:
            ip(f"netns add {name}")
        ip(f"link add {links[0]} netns {names[0]} type veth peer name {links[1]} netns {names[1]}")
        for name, link, address in zip(names, links, ("10.77.13.1", "10.77.13.2"), strict=True):
            ip(f"-n {name} addr add {address}/24 dev {link}")
            ip(f"-n {name} link set {link} up")
            ip(f"-n {name} link set lo up")
        for name, what in zip(names, ("serve", "train"), strict=True):
            command = ["ip", "netns", "exec", name, sys.executable, __file__, "--run", what, "--out", out]
            started.append(subprocess.Popen(command))
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not (
            Path(out + ".step").exists() and int(Path(out + ".step").read_text() or 0) >= STEPS // 2
        ):
            time.sleep(0.1)
        ip(f"-n {names[0]} link set {links[0]} down")
        print(f"the link is cut for {cut:g} s", flush=True)
        time.sleep(cut)
        ip(f"-n {names[0]} link set {links[0]} up")
        assert started[1].wait(120) == 0
    finally:
        for process in started:
            process.kill()
            process.wait()
        for name in names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)
    return json.loads(Path(out).read_text())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", choices=["serve", "train"])
    parser.add_argument("--out", default="two_hosts.json")
    parser.add_argument("--cut", type=float, default=3.0, help="seconds without a link")
    options = parser.parse_args()
    if options.run == "serve":
        serve()
    elif options.run == "train":
        train(options.out)
    else:
        found = main(options.out, options.cut)
        print(found)
        assert found["step"] == STEPS
