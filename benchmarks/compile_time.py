"""Compile time of programs of 100 to 10,000 instructions, and the time of a loop step.

    python benchmarks/compile_time.py [--write] [--most 10000]

Prints two tables; --write stores them in benchmarks/COMPILE_TIME.md. Each program is compiled once in a process with an
empty kernel cache. The loops run with hloom and, where it is installed, with JAX, interleaved.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path

SIZES = (100, 300, 1000, 3000, 10000)


def layers(builder, value, count: int):
    """Products, reductions and elementwise operations, layer by layer."""
    x, w = value(("f32", (32, 64))), value(("f32", (64, 64)))
    plain = {"lhs_batch_dims": (), "rhs_batch_dims": (), "lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,)}
    while len(builder.instructions) < count:
        h = x.op("dot", w, **plain)
        h = h + h.sum([1]).broadcast(h.dims, (0,))
        x = (h.op("tanh") * 0.5 + x).op("logistic")
    return [x]


def wide(builder, value, count: int):
    """Values with near and distant uses, and many results."""
    values = [value(("f32", (64, 8)))]
    while len(builder.instructions) < count:
        number = len(values)
        mixed = values[-1] * values[number // 2]
        values.append(mixed.op("tanh") if number % 40 == 0 else mixed + 0.5)
    return values[-40:]


def chain(builder, value, count: int):
    """One long elementwise expression."""
    x = y = value(("f32", (64, 8)))
    while len(builder.instructions) < count:
        x = (x * y + 0.25).op("maximum", y)
        x = x.op("sine") if len(builder.instructions) % 50 < 5 else x
    return [x]


def compile_times(most: int) -> list[list[str]]:
    import numpy as np

    from hloom.backends.cpu.compilation import compile_module
    from hloom.compiler.pipeline import PIPELINE, run_passes
    from hloom.compiler.schedule.scheduler import make_plan
    from hloom.compiler.targets.cpu.target import host_target
    from hloom.ir.build import Builder, Value
    from hloom.ir.module import Module
    from hloom.ir.types import Shape

    rows = []
    for make in (layers, wide, chain):
        for count in (size for size in SIZES if size <= most):
            builder = Builder("main")
            results = make(builder, lambda s, b=builder: Value(b, b.parameter(Shape(*s))), count)
            module = Module(make.__name__, builder.finish(builder.tuple([r.instruction for r in results])))
            start = time.process_time()
            passed = run_passes(module, PIPELINE)
            middle = time.process_time()
            make_plan(passed, host_target())
            seconds = {"passes": middle - start, "plan": time.process_time() - middle}
            compiled = compile_module(module)
            compiled([np.ones(p.dims, np.float32) for p in module.entry.parameters])
            seconds["kernels"] = compiled.timings["kernels"]
            total = sum(seconds.values())
            rows.append(
                [
                    make.__name__,
                    f"{len(builder.instructions):,}",
                    str(len(compiled.plan.kernels())),
                    *(f"{seconds[k] * 1e3:,.0f}" for k in ("passes", "plan", "kernels")),
                    f"{(seconds['passes'] + seconds['plan']) * 1e6 / len(builder.instructions):,.0f}",
                    f"{total * 1e6 / len(builder.instructions):,.0f}",
                ]
            )
            print("  ".join(rows[-1]), flush=True)
    return rows


def loops(lib, np):
    """name -> (function, arguments, steps)."""
    lax = lib.lax

    def update(i, v):
        return v.at[i % 100].set(v[i % 100] * 0.5 + 1.0)

    def step(h, x):
        h = np.tanh(h @ weights + x)
        return h, h.sum()

    weights = np.ones((32, 32)) * 0.01
    line, rows, one = np.ones(1000), np.ones((1000, 32)), np.asarray(1.0)
    return {
        "scalar: x = x * 0.999 + 1": (lambda x: lax.fori_loop(0, 10000, lambda i, v: v * 0.999 + 1, x), [one], 10000),
        "scan of 1,000 sums": (lambda x: lax.scan(lambda c, v: (c + v, c), 0.0, x), [line], 1000),
        "while with a condition on the value": (
            lambda x: lax.while_loop(lambda v: v[0] < 1e4, lambda v: (v[0] + 1, v[1] * 0.99), (x, x)),
            [one],
            10000,
        ),
        "one element of 100 updated": (lambda x: lax.fori_loop(0, 10000, update, x), [np.ones(100)], 10000),
        "recurrent cell of 32 units": (lambda x: lax.scan(step, np.zeros(32), x), [rows], 1000),
    }


def loop_times(repeat: int = 15) -> list[list[str]]:
    import hloom as hl
    import hloom.numpy as hnp

    ours = loops(hl, hnp)
    theirs = {}
    try:
        import jax

        theirs = loops(jax, jax.numpy)
    except ImportError:
        pass
    rows = []
    for name, (function, arguments, steps) in ours.items():
        runs = {"hloom": (hl.jit(function), arguments)}
        if name in theirs:
            runs["jax"] = (jax.jit(theirs[name][0]), theirs[name][1])
        times: dict[str, list[float]] = {key: [] for key in runs}
        for _ in range(repeat + 2):  # interleaved, so that both run under the same conditions
            for key, (call, given) in runs.items():
                start = time.perf_counter()
                result = call(*given)
                for leaf in hl.tree.leaves(result) if key == "hloom" else jax.tree.leaves(result):
                    leaf.block_until_ready()
                times[key].append((time.perf_counter() - start) / steps * 1e9)
        found = {key: statistics.median(values[2:]) for key, values in times.items()}
        ratio = f"{found['jax'] / found['hloom']:.1f}" if "jax" in found else "-"
        rows.append([name, f"{found['hloom']:,.0f}", f"{found['jax']:,.0f}" if "jax" in found else "-", ratio])
        print("  ".join(rows[-1]), flush=True)
    return rows


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write benchmarks/COMPILE_TIME.md")
    parser.add_argument("--most", type=int, default=SIZES[-1], help="instructions of the largest program")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HLOOM_CACHE_DIR"] = folder
        compiled = compile_times(options.most)
        looped = loop_times()
    columns = ["program", "instructions", "kernels", "passes", "plan", "machine code", "graph us / instruction"]
    compiled_table = table([*columns, "all us / instruction"], compiled)
    text = f"""# Compile time

Written by `python benchmarks/compile_time.py --write`. Machine: {os.cpu_count()} processors, {platform.machine()}.
Times are in milliseconds, with an empty kernel cache; passes and plan are processor time. The last two columns are
microseconds per instruction, without and with the machine code of the distinct kernels (equal kernels are compiled
once, in this process or an earlier one). They stay constant where compile time is linear in the size of the program.

{compiled_table}

- layers: {layers.__doc__} wide: {wide.__doc__} chain: {chain.__doc__}

# Time per loop step

Nanoseconds per step, including the call; median of 15 interleaved runs.

{table(["loop", "hloom", "jax", "jax / hloom"], looped)}
"""
    if options.write:
        Path(__file__).with_name("COMPILE_TIME.md").write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
