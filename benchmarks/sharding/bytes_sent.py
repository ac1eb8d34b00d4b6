"""Bytes that a device sends: hloom's partition of a program against XLA's of the same program and layouts.

    python -m benchmarks.sharding.bytes_sent [--jax PYTHON] [names ...]

PYTHON: an interpreter that has jax; hloom's own by default. Counts collectives as `hloom.compiler.communication` does,
each once.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys

from benchmarks.sharding.all_programs import PROGRAMS

SIZES = {"pred": 1, "s8": 1, "u8": 1, "f16": 2, "bf16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "f64": 8}


# --- XLA ----------------------------------------------------------------------------------------------------------


def _xla(names: list[str]) -> dict[str, dict]:
    """Runs where jax is: partitions with 8 host devices, and counts."""
    import jax  # of another interpreter than hloom's, perhaps
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    found = {}
    for name in names:
        sizes, make = PROGRAMS[name]
        function, shapes, specs, results = make(jax)
        count = math.prod(sizes.values())
        mesh = Mesh(__import__("numpy").array(jax.devices()[:count]).reshape(tuple(sizes.values())), tuple(sizes))
        given = [NamedSharding(mesh, PartitionSpec(*s)) for s in specs]
        outs = tuple(NamedSharding(mesh, PartitionSpec(*s)) for s in results)
        arguments = [jax.ShapeDtypeStruct(s, "float32") for s in shapes]
        out = outs if len(outs) > 1 else outs[0]
        with jax.set_mesh(mesh):
            compiled = jax.jit(function, in_shardings=tuple(given), out_shardings=out).lower(*arguments).compile()
        found[name] = count_hlo(str(compiled.as_text()))
    return found


KINDS = "all-reduce all-gather reduce-scatter all-to-all collective-permute".split()
LINE = re.compile(rf"= (.*?) ({'|'.join(KINDS)})(?:-start)?\((.*?)\), (.*)")


def count_hlo(text: str) -> dict:
    """{bytes, collectives by kind} of partitioned HLO text."""
    total = 0.0
    kinds: dict[str, int] = {}
    for line in text.splitlines():
        if (m := LINE.search(line)) is None:
            continue
        shapes, kind, _, rest = m.groups()
        size = sum(
            SIZES[t] * math.prod(int(d) for d in dims.split(",") if d)
            for t, dims in re.findall(r"(\w+)\[([\d,]*)\]", shapes)
            if t in SIZES
        )
        n = _group_size(rest)
        if kind == "collective-permute":
            pairs = re.findall(r"\{(\d+),(\d+)\}", rest.split("source_target_pairs=")[1])
            size = size if any(s != t for s, t in pairs) else 0
            sent = float(size)
        elif kind == "all-reduce":
            sent = 2 * size * (n - 1) / n
        elif kind == "all-gather":
            sent = size * (n - 1) / n
        elif kind == "reduce-scatter":
            sent = size * (n - 1)
        else:
            sent = size * (n - 1) / n
        total += sent
        kinds[kind] = kinds.get(kind, 0) + 1
    return {"bytes": round(total), "kinds": kinds}


def _group_size(text: str) -> int:
    if m := re.search(r"replica_groups=\[(\d+),(\d+)\]", text):
        return int(m[2])
    m = re.search(r"replica_groups=\{\{([\d,]*)\}", text)
    return len(m[1].split(",")) if m else 8


# --- hloom --------------------------------------------------------------------------------------------------------


def partitioned(name: str):
    """(the partitioned module of a program, its mesh)."""
    import numpy as np

    import hloom
    from hloom.compiler.pipeline import SPMD_PIPELINE, run_passes
    from hloom.ir.module import Module
    from hloom.ir.spmd.sharding import DeviceMesh, Sharding

    sizes, make = PROGRAMS[name]
    function, shapes, specs, results = make(hloom)
    mesh = DeviceMesh(tuple(sizes), tuple(sizes.values()))

    def sharding(spec) -> Sharding:
        return Sharding(mesh, tuple(() if a is None else (a,) for a in spec))

    with hloom.config(num_cpu_devices=mesh.size):
        grid = hloom.sharding.Mesh(np.array(hloom.devices("cpu")[: mesh.size]).reshape(mesh.sizes), mesh.names)
        with hloom.set_mesh(grid):
            traced = hloom.jit(function).trace(*[hloom.numpy.zeros(s, "float32") for s in shapes])
    entry = traced.entry
    for parameter, spec in zip(entry.parameters, specs, strict=True):
        parameter.sharding = sharding(spec)
    outs = tuple(sharding(s) for s in results)
    entry.root.sharding = outs if entry.root.opcode == "tuple" else outs[0]
    module = Module(name, entry, partitions=mesh.size)
    return run_passes(module, SPMD_PIPELINE), mesh


def _hloom(names: list[str]) -> dict[str, dict]:
    from hloom.compiler.communication import bytes_sent, collective_uses

    found = {}
    for name in names:
        uses = collective_uses(*partitioned(name))
        kinds: dict[str, int] = {}
        for use in uses:
            kinds[use.kind] = kinds.get(use.kind, 0) + 1
        found[name] = {"bytes": round(bytes_sent(uses)), "kinds": kinds}
    return found


def compared(names: list[str], jax: str = sys.executable) -> list[tuple[str, dict, dict]]:
    """(program, hloom's {bytes, kinds}, XLA's) of each."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [jax, "-m", "benchmarks.sharding.bytes_sent", "--xla-only", *names], env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(done.stderr)
    theirs, ours = json.loads(done.stdout.splitlines()[-1]), _hloom(names)
    return [(name, ours[name], theirs[name]) for name in names]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jax", default=sys.executable)
    parser.add_argument("--xla-only", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    names = options.names or list(PROGRAMS)
    if options.xla_only:
        print(json.dumps(_xla(names)))
        return
    rows = compared(names, options.jax)
    ratios = []
    for name, mine, other in rows:
        ratio = mine["bytes"] / other["bytes"] if other["bytes"] else float(mine["bytes"] > 0)
        if other["bytes"]:
            ratios.append(max(ratio, 1e-3))
        print(f"{name:42} {mine['bytes']:>12,} {other['bytes']:>12,} {ratio:7.3f}  {mine['kinds']} | {other['kinds']}")
    print(f"geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.3f}")


if __name__ == "__main__":
    main()
