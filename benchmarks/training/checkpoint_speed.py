"""Writes and restores a checkpoint of 1 GB against `dd` on the same disk; how long a save blocks the step.

    python -m benchmarks.training.checkpoint_speed [--gigabytes 1] [--repeats 3] [--folder /tmp]

Both sides alternate. `dd` writes with fsync and reads after its pages were dropped from the cache, as hloom does.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

import hloom as hl
import hloom.numpy as hnp

PARTS, STEP = 16, 0.1  # arrays; seconds of a step


def dropped(path: Path) -> None:
    """Has a file's pages leave the page cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def timed(function) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def dd(*arguments: str) -> None:
    subprocess.run(["dd", "bs=64M", "status=none", *arguments], check=True)


def bandwidth(folder: Path, state, count: int, repeats: int) -> None:
    rates: dict[str, list[float]] = {"write": [], "restore": []}
    data, source, target = folder / "dd", folder / "source", folder / "checkpoint"
    with open(source, "wb") as file:  # numbers, not zeros, which a disk may compress
        file.writelines(np.asarray(array).data for array in state.values())
    for k in range(repeats):
        dd(f"if={source}", "of=/dev/null")  # into the cache, as the arrays are in memory
        # Each goes first every second time: disks of virtual machines slow down after some gigabytes.
        both = {
            "theirs": lambda: dd(f"if={source}", f"of={data}", "conv=fsync"),
            "ours": lambda: hl.checkpoints.save(target, state),
        }
        seconds = {name: timed(both[name]) for name in (sorted(both) if k % 2 else sorted(both, reverse=True))}
        theirs, ours = seconds["theirs"], seconds["ours"]
        rates["write"].append(theirs / ours)
        dropped(data)
        their_read = timed(lambda: dd(f"if={data}", "of=/dev/null"))
        for written in target.iterdir():
            dropped(written)
        our_read = timed(lambda: hl.checkpoints.restore(target, like=state))
        rates["restore"].append(their_read / our_read)
        print(f"{k}: write {count / ours / 1e6:.0f} MB/s, dd {count / theirs / 1e6:.0f}; "
              f"restore {count / our_read / 1e6:.0f} MB/s, dd {count / their_read / 1e6:.0f}", flush=True)  # fmt: skip
        shutil.rmtree(target)
    for name, found in rates.items():
        print(f"{name}: {statistics.median(found):.0%} of dd (median of {repeats})")


def stall(folder: Path, state, repeats: int) -> None:
    """How much longer than 100 ms a step takes in which a save begins, and the steps while it is being written."""
    spin = hl.jit(lambda x: hl.fori_loop(0, 40, lambda i, y: hnp.tanh(y @ y * 0.01), x))
    x = hnp.asarray(np.random.default_rng(0).random((256, 256), np.float32))

    def step() -> float:
        """A step that computes and then waits for its 100 ms, as one that waits for a device."""
        began = time.perf_counter()
        spin(x).block_until_ready()
        time.sleep(max(0.0, STEP - (time.perf_counter() - began)))
        return time.perf_counter() - began

    step()
    calls, during, quiet = [], [], []
    with hl.checkpoints.Manager(folder / "run", keep=1) as manager:
        for k in range(repeats):
            quiet += [step() for _ in range(5)]
            calls.append(timed(lambda: manager.save(k, state)))  # noqa: B023  (called here)
            while manager.saving:
                during.append(step())
            manager.wait()
    middle = statistics.median(calls)
    print(f"save() holds the loop for {middle * 1e3:.2f} ms ({min(calls) * 1e3:.2f} to {max(calls) * 1e3:.2f}), "
          f"{middle / STEP:.2%} of a step; steps while it writes {statistics.median(during) * 1e3:.1f} ms, before "
          f"{statistics.median(quiet) * 1e3:.1f} ms")  # fmt: skip


def donating(folder: Path, state, repeats: int) -> None:
    """How long a step takes that overwrites the whole state, and right after a save, which still holds it."""
    update = hl.jit(lambda s: hl.tree.map(lambda w: w * 0.999, s), donate_argnums=0)
    apart = hl.jit(lambda s: hl.tree.map(lambda w: w * 0.999, s))
    quiet: list[float] = []
    after: list[float] = []
    copies: list[float] = []
    state = update(update(state))
    with hl.checkpoints.Manager(folder / "donating", keep=1) as manager:
        for k in range(repeats):
            for found in (quiet, after):
                if found is after:
                    manager.save(k, state)
                began = time.perf_counter()
                state = update(state)
                found.append(time.perf_counter() - began)
            manager.wait()
            began = time.perf_counter()
            state = apart(state)
            copies.append(time.perf_counter() - began)
    print(f"a step that overwrites the state takes {min(quiet) * 1e3:.0f} ms, right after a save "
          f"{min(after) * 1e3:.0f} ms; one that does not, {min(copies) * 1e3:.0f} ms")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--folder", default=None, help="on the disk to be measured")
    arguments = parser.parse_args()
    count = int(arguments.gigabytes * 1e9) // (4 * PARTS)
    source = np.random.default_rng(0)
    state = {f"w{k}": hnp.asarray(source.random(count, np.float32)) for k in range(PARTS)}
    folder = Path(tempfile.mkdtemp(dir=arguments.folder, prefix="hloom-checkpoint-"))
    try:
        bandwidth(folder, state, 4 * PARTS * count, arguments.repeats)
        stall(folder, state, arguments.repeats)
        donating(folder, state, arguments.repeats)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
