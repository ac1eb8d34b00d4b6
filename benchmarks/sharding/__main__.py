"""Measures programs over several devices, and writes the page of the figures.

    python -m benchmarks.sharding [--only bytes,steps,compile,scaling,processes] [--seconds 1] [--jax PYTHON] [--write]

Results are kept in build/sharding.json, each part separately; --write writes benchmarks/SHARDING.md from all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path

from benchmarks.sharding import bytes_sent, compile_time, processes, scaling, steps
from benchmarks.sharding.all_programs import PROGRAMS

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS, PAGE = ROOT / "build" / "sharding.json", ROOT / "benchmarks" / "SHARDING.md"


def measured(part: str, seconds: float, jax: str):
    names = list(PROGRAMS)
    if part == "bytes":
        return bytes_sent.compared(names, jax)
    if part == "steps":
        return steps.compared(names, steps.DEVICES, seconds, jax)
    if part == "compile":
        return compile_time.measured()._asdict()
    if part == "processes":
        plot = ROOT / "benchmarks" / "processes.png"
        return processes.measured(processes.SIZES, seconds / 2, 3, str(plot), RESULTS.with_name("processes.json"))
    return {"two": scaling.two_against_one(4 * seconds), "model": scaling.calibrated(4 * seconds)}


# --- the page -----------------------------------------------------------------------------------------------------


def _kinds(kinds: dict) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in kinds.items()) or "none"


def _bytes(rows) -> list[str]:
    pairs = [(ours["bytes"], theirs["bytes"]) for _, ours, theirs in rows]
    mean = steps.geometric_mean(max(a / b, 1e-3) for a, b in pairs if b)
    more = sum(a > b for a, b in pairs)
    lines = [
        f"Bytes that a device sends, {len(rows)} programs on 8 devices: geometric mean {mean:.2f} of XLA's "
        f"(wanted 0.85); {more or 'none'} sends more.",
        "", "| program | hloom | XLA | ratio | hloom's collectives | XLA's |", "| --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for name, ours, theirs in rows:
        ratio = f"{ours['bytes'] / theirs['bytes']:.2f}" if theirs["bytes"] else ""
        cells = (f"{ours['bytes']:,}", f"{theirs['bytes']:,}", ratio, _kinds(ours["kinds"]), _kinds(theirs["kinds"]))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _steps(rows) -> list[str]:
    ratios = [theirs / ours for _, _, ours, theirs in rows]
    slower = sorted({f"{name} on {n}" for (name, n, *_), r in zip(rows, ratios, strict=True) if r < 1})
    means = {
        n: steps.geometric_mean(r for (_, m, *_), r in zip(rows, ratios, strict=True) if m == n) for n in (2, 4, 8)
    }
    lines = [
        f"Time of a call on virtual devices: hloom is {steps.geometric_mean(ratios):.2f} times as fast as JAX, "
        f"geometric mean (wanted 2); on 2, 4 and 8 devices {', '.join(f'{m:.2f}' for m in means.values())}. "
        f"Slower: {', '.join(slower) or 'none'}.", "",
        "A collective waits for the slowest device, so other load on the machine costs programs of large kernels most: "
        "`transformer_block_gradients` was 0.6 to 0.8 times as fast as JAX at a load of 20 on 2 cores, and 1.9 to 2.4 "
        "times at a load of 0.1.",
        "", "| program | devices | hloom, us | JAX, us | JAX / hloom |", "| --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for (name, n, ours, theirs), ratio in zip(rows, ratios, strict=True):
        lines.append(f"| {name} | {n} | {ours * 1e6:,.0f} | {theirs * 1e6:,.0f} | {ratio:.2f} |")
    return lines


def _compile(found) -> list[str]:
    total = found["propagate"] + found["partition"]
    return [
        f"A training step (Adam) of {compile_time.LAYERS} transformer layers, {found['instructions']:,} instructions, "
        f"over a mesh of 4 x 8: propagated in {found['propagate']:.2f} s, partitioned in "
        f"{found['partition']:.2f} s, together "
        f"{total:.2f} s of processor time (wanted 2). The result has {found['collectives']} collectives."
    ]  # fmt: skip


def _scaling(found) -> list[str]:
    lines = [
        "Two devices against one with both cores, the same batch (wanted 0.95):",
        "", "| model | batch | one, ms | two, ms | one / two |", "| --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for model, batch, one, two in found["two"]:
        lines.append(f"| {model} | {batch} | {one * 1e3:.2f} | {two * 1e3:.2f} | {one / two:.2f} |")
    lines += [
        "", "## Predicted steps of many devices (simulation)", "",
        "Data-parallel training with a batch for each device and a core for each device. The model "
        "(`benchmarks/sharding/scaling.py`): the time in which a device computes, and an all-reduce of the gradients, "
        "whose latency and time per byte are fitted to steps of 2 and 4 virtual devices of this machine. The exchange "
        "is that of shared memory; a network has other figures. Nothing of it was measured on more than 4 devices. "
        "Where other programs load the machine, devices wait for threads that these displace: errors are large then, "
        "and the latency that is fitted is that of the operating system's scheduler.", "",
        "| model | batch of a device | devices | measured, ms | modelled, ms | error |",
        "| --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for name, model in found["model"].items():
        for batch, n, real, modelled in model["rows"]:
            cells = (f"{real * 1e3:.2f}", f"{modelled * 1e3:.2f}", f"{modelled / real - 1:+.0%}")
            lines.append(f"| {name} | {batch} | {n} | {' | '.join(cells)} |")
    head = " | ".join(f"{n:,} devices" for n in scaling.PREDICTED)
    lines += ["", f"| model | batch of a device | {head} |", f"| --- | --- {'| --- ' * len(scaling.PREDICTED)}|"]
    for name, model in found["model"].items():
        model = {**model, "compute": {int(k): v for k, v in model["compute"].items()}}
        for batch in model["compute"]:
            found_steps = [scaling.predicted(model, batch, n) for n in scaling.PREDICTED]
            shown = [f"{step * 1e3:.2f} ms, {efficiency:.0%}" for step, efficiency in found_steps]
            lines.append(f"| {name} | {batch} | {' | '.join(shown)} |")
    lines.append("")
    for name, model in found["model"].items():
        model = {**model, "compute": {int(k): v for k, v in model["compute"].items()}}
        size = scaling.efficient_batch(model)
        lines.append(
            f"- {name}: gradients of {model['bytes']:,} bytes, latency {model['latency'] * 1e6:.0f} us, "
            f"{model['seconds_per_byte'] * 1e9:.2f} ns per byte; an efficiency of 95 % on 64 devices holds "
            f"from a batch "
            f"of {size:,.0f} per device on."
        )
    return lines


def _processes(found) -> list[str]:
    return [
        "Two processes with a device each, hloom and MPI in turns in them; *1 process* has both devices. Of the times "
        "of a call the fastest twentieth, the best of three runs. A call of hloom begins and ends in Python and "
        "returns new arrays; MPI's is mpi4py's `Allreduce`, `Allgather` or `Alltoall` into memory that is there. Bytes "
        "are those of the larger of a device's argument and result.",
        "", "![Times of collectives by size](processes.png)", "", *processes.table(found), "",
        "What remains below 1: at 4 B and 1 KB a call of hloom takes some 1.4 us more than MPI's, the buffers of the "
        "results and the start and end of the devices' frames. All-to-all and all-gather of 25 MB copy the own part "
        "before the messages start.",
    ]  # fmt: skip


SECTIONS = {
    "bytes": ("What devices send", _bytes),
    "steps": ("Time of a call", _steps),
    "compile": ("Time to compile", _compile),
    "scaling": ("Data-parallel scaling", _scaling),
    "processes": ("Several processes", _processes),
}


def page(results: dict) -> str:
    lines = [
        "# Programs over several devices, in figures", "",
        f"Made by `python -m benchmarks.sharding --write` on {os.cpu_count()} cores "
        f"({platform.machine()}), against JAX "
        f"{version('jax')} with as many host devices. Both libraries run in turn, in processes of their own; times are "
        "the least of many calls, because the machine was shared with other work. Programs: "
        "`benchmarks/sharding/programs.py` and "
        "`more_programs.py`.",
    ]  # fmt: skip
    for part, (title, section) in SECTIONS.items():
        if part in results:
            lines += ["", f"## {title}", "", *section(results[part]["found"])]
            load = f"{results[part].get('load', 20):.0f} on {os.cpu_count()} cores"
            lines += ["", f"Measured on {results[part]['date']}; load average {load}."]
        else:
            lines += _before(title)
    return "\n".join(lines) + "\n"


def _before(title: str) -> list[str]:
    """A section as the page has it, where no measurement of it is kept."""
    text = PAGE.read_text() if PAGE.exists() else ""
    _, mark, rest = text.partition(f"\n## {title}\n")
    return ["", f"## {title}", rest.partition("\n## ")[0].rstrip()] if mark else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SECTIONS))
    parser.add_argument("--seconds", type=float, default=1.0, help="for each program and library")
    parser.add_argument("--jax", default=sys.executable, help="an interpreter that has jax")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for part in filter(None, options.only.split(",")):
        if part not in SECTIONS:
            parser.error(f"--only {part}: the parts are {', '.join(SECTIONS)}")
        found = measured(part, options.seconds, options.jax)
        results[part] = {"date": time.strftime("%Y-%m-%d"), "load": os.getloadavg()[1], "found": found}
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results))
    if options.write:
        PAGE.write_text(page(results))
        print(PAGE)


if __name__ == "__main__":
    main()
