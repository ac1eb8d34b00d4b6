"""The op table's cases as one exported library for another machine, run by an emulator and compared with the jitted
calls: `python tests/support/exported_cases.py aarch64-linux-musl qemu-aarch64 [--parts 4]` runs all of them.
"""

import argparse
import inspect
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from op_modules import cases

import hloom as hl
from hloom.errors import HloomError
from hloom.export.functions import State, plan_of, refuse_python, requests_of, traced
from hloom.export.targets import TARGETS, target_of
from hloom.ir.text import print_module

PROGRAMS = Path(__file__).parents[1] / "hloom" / "export" / "programs"


def exportable(wanted, part=0, parts=1):
    """The op table's cases whose names begin with `wanted` and that can be exported, as functions of named arguments,
    and the names of those that cannot. part, parts: every so many of them."""
    _, _, machine = target_of("aarch64-linux")
    functions, arguments, refused = {}, {}, []
    for number, case in enumerate(cases()):
        if not case.name.startswith(wanted) or number % parts != part:
            continue
        try:
            program = hl.from_hlo(print_module(case.module))
            names = [f"c{number}_{k}" for k in range(len(case.arguments))]

            def run(*values, program=program):
                return program(*values)

            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            run.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in names])
            run.__name__ = "case" + str(number) + "_" + re.sub(r"\W", "_", case.name)
            (request,) = requests_of(run, case.arguments, {}, (), ())
            function = traced(request, State(()))
            refuse_python({case.name: plan_of(function, machine, function.lowered.module)})
        except HloomError:
            refused.append(case.name)
            continue
        functions[run.__name__] = run
        arguments |= dict(zip(names, case.arguments, strict=True))
    return functions, arguments, refused


def run_under(emulator, target, wanted, folder, part=0, parts=1):
    """(name, result there, result of the jitted call here) of the cases, how many there are, and the names of
    those that cannot be exported."""
    functions, arguments, refused = exportable(wanted, part, parts)
    library = hl.export(functions, folder=folder, name="cases", target=target, kind="static", **arguments)
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", TARGETS[target].zig]
    shutil.copyfile(PROGRAMS / "run_all.c", folder / "run_all.c")
    done = subprocess.run(
        [*zig, "-O1", "run_all.c", library.path.name, "-o", "run_all", "-lm"],
        cwd=folder, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    jitted, data = [], b""
    for name, function in functions.items():
        given = [arguments[n] for n in inspect.signature(function).parameters]
        data += b"".join(np.ascontiguousarray(a).tobytes() for a in given)
        jitted.append((name, hl.tree.leaves(hl.jit(function)(*given))))
    (folder / "in.bin").write_bytes(data)
    done = subprocess.run([emulator, "./run_all"], cwd=folder, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    data = (folder / "out.bin").read_bytes()
    pairs = []
    for name, results in jitted:
        for result in map(np.asarray, results):
            got = np.frombuffer(data[: result.nbytes], result.dtype).reshape(result.shape)
            data = data[result.nbytes :]
            pairs.append((name, got, result))
    assert not data
    return pairs, len(functions), refused


def check(pairs):
    for name, got, wanted in pairs:
        if wanted.dtype.kind in "biu":
            assert np.array_equal(got, wanted), name
            continue
        wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
        limit = {2: 2e-2, 4: 2e-5, 8: 1e-11, 16: 1e-11}[wanted.dtype.itemsize // (1 + (wanted.dtype.kind == "c"))]
        assert np.allclose(got.astype(wide), wanted.astype(wide), rtol=limit, atol=limit, equal_nan=True), name


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("emulator")
    parser.add_argument("--cases", default="", help="what their names begin with")
    parser.add_argument("--parts", type=int, default=1, help="libraries that the cases are divided among")
    options = parser.parse_args()
    ran, same, refused, wrong = 0, 0, [], []
    for part in range(options.parts):
        with tempfile.TemporaryDirectory() as folder:
            pairs, count, left = run_under(
                options.emulator, options.target, options.cases, Path(folder), part, options.parts
            )
        ran, refused = ran + count, refused + left
        for pair in pairs:
            same += pair[1].tobytes() == pair[2].tobytes()
            try:
                check([pair])
            except AssertionError:
                wrong.append(pair[0])
                print(f"differs: {pair[0]}: {pair[1].ravel()[:4]}, jitted here {pair[2].ravel()[:4]}", flush=True)
        print(f"part {part}: {count} cases, {len(pairs)} results", flush=True)
    print(f"{options.target}: {ran} cases ran, {len(set(wrong))} differ, {same} results have the same bits")
    print(f"{len(refused)} cannot be exported: {', '.join(refused)}")


if __name__ == "__main__":
    main()
