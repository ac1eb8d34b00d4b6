"""torch.compile(backend="hloom") against Inductor: `python -m benchmarks.bridges_torch` writes a table of BRIDGES.md.

Each model runs in a separate process, with empty caches. Both backends compile there (first step), then take turns at
steps; the ratio is that of the medians. Models are those of the usual libraries, written in torch.nn, with random
weights.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

PAGE = pathlib.Path(__file__).with_name("BRIDGES.md")
BEGIN, END = "<!-- generated: torch -->", "<!-- end: torch -->"
MODES = ("inference", "training")
THREADS = os.environ.get("BRIDGES_THREADS", "1")  # of both; on a machine that others use, barriers of more say little
# One thread's CPU time says more there than wall time, too.
CLOCK = time.process_time if THREADS == "1" else time.perf_counter
SECONDS = float(os.environ.get("BRIDGES_SECONDS", "6"))  # of turns for each model and mode


def models() -> dict:
    """name -> (a model, its input)."""
    from benchmarks.torch_models import MODELS  # torch, an optional library

    return MODELS


def measure(name: str) -> dict:
    """First steps and medians of steps of one model, by mode and backend, in this process."""
    import copy

    import torch

    make, inputs = models()[name]
    for backend in ("hloom", "inductor"):  # what the first compilation of any function takes is not the model's
        torch.compile(lambda x: x + 1, backend=backend)(torch.ones(3))
    torch.manual_seed(0)
    original, x = make(), inputs()
    found = {}
    for mode in MODES:
        steps, rows = {}, {}
        for backend in ("hloom", "inductor"):
            torch._dynamo.reset()
            model = copy.deepcopy(original)
            model = model.train() if mode == "training" else model.eval()
            steps[backend] = _step(torch, torch.compile(model, backend=backend), model, x, mode)
            torch.manual_seed(1)
            started = time.perf_counter()
            value = steps[backend]()
            rows[backend] = {"first": time.perf_counter() - started, "value": value}
        times: dict[str, list] = {backend: [] for backend in steps}
        ended = time.perf_counter() + SECONDS
        while time.perf_counter() < ended or len(times["hloom"]) < 5:
            for backend, step in steps.items():
                started = CLOCK()
                step()
                times[backend].append(CLOCK() - started)
        for backend, row in rows.items():
            row["step"] = statistics.median(times[backend][1:])
        found[mode] = rows
    return found


def _step(torch, compiled, model, x, mode: str):
    if mode == "inference":

        def step():
            with torch.no_grad():
                return float(compiled(x).float().square().mean())

    else:

        def step():
            model.zero_grad()
            loss = compiled(x).float().square().mean()
            loss.backward()
            return float(loss.detach())

    return step


def measured(name: str) -> dict:
    """`measure` in a separate process, with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        environment = os.environ | {
            "HLOOM_CACHE_DIR": folder,
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
            "OMP_NUM_THREADS": THREADS,
            "HLOOM_NUM_THREADS": THREADS,
        }
        command = [sys.executable, "-m", "benchmarks.bridges_torch", "--one", name]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr[-3000:], file=sys.stderr)
        raise SystemExit(f"{name} failed")
    return json.loads(done.stdout.splitlines()[-1])


def table(results: dict) -> str:
    """The rows of BRIDGES.md: ratios above 1 are steps in which hloom is faster."""
    heads = (
        "step, hloom | step, Inductor | Inductor / hloom | first step, hloom | first step, Inductor | hloom / Inductor"
    )
    lines = [f"| model | mode | {heads} |", "| --- | --- |" + " ---: |" * 6]
    ratios, firsts = [], []
    for name, modes in results.items():
        for mode, rows in modes.items():
            ours, theirs = rows["hloom"], rows["inductor"]
            ratios.append(theirs["step"] / ours["step"])
            firsts.append(ours["first"] / theirs["first"])
            lines.append(
                f"| {name} | {mode} | {ours['step'] * 1e3:.1f} ms | {theirs['step'] * 1e3:.1f} ms | {ratios[-1]:.2f} "
                f"| {ours['first']:.1f} s | {theirs['first']:.1f} s | {firsts[-1]:.2f} |"
            )
    means = [math.exp(statistics.fmean(map(math.log, values))) for values in (ratios, firsts)]
    lines.append(f"| geometric mean | | | | {means[0]:.2f} | | | {means[1]:.2f} |")
    return "\n".join(lines)


def write(text: str) -> None:
    page = PAGE.read_text() if PAGE.exists() else "# Under other frameworks\n"
    if BEGIN not in page:
        page += f"\n## torch.compile\n\n{BEGIN}\n{END}\n"
    before, rest = page.split(BEGIN)
    PAGE.write_text(before + BEGIN + "\n" + text + "\n" + END + rest.split(END)[1])


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(sys.argv[2])))
        return
    results = {}
    for name in sys.argv[1:] or models():
        results[name] = measured(name)
        print(table({name: results[name]}).splitlines()[2:-1], flush=True)
    print(table(results))
    if not sys.argv[1:]:
        write(table(results))


if __name__ == "__main__":
    main()
