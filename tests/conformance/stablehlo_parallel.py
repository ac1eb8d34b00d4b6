"""StableHLO's tests of collectives: functions that `interpreter.run_parallel` runs on replicas and partitions.

    python tests/conformance/stablehlo_parallel.py FILE...

They are compiled for as many CPU devices, which run them together. A line for each module of each file.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np

SPLIT = re.compile(r"^// -----.*$", re.MULTILINE)
_MAIN = re.compile(r"func\.func (?:public )?@main\(\).*?\n  \}\n", re.DOTALL)
_CONSTANT = re.compile(r"(%\w+) = stablehlo\.constant (dense<.*?>) : (tensor<[^>]*>)", re.DOTALL)
_RUN = re.compile(
    r'(?:%\w+(?::\d+)? = )?"interpreter\.run_parallel"\((?P<inputs>[^)]*)\) \{\s*(?:\w+ = \[\[[^\]]*\]\],?\s*)?'
    r"programs\s*=\s*\[(?P<programs>\[.*?\])\]\s*\} : \((?P<types>.*?)\) ->",
    re.DOTALL,
)
_CHECK = re.compile(r"check\.(expect_\w+)_const %\w+(?:#(\d+))?, (dense<.*?>) : (tensor<[^>]*>)", re.DOTALL)


def check(text: str, file: str = "") -> int:
    """Runs a module's `main`; the number of its checks. Raises AssertionError for one that does not hold."""
    from hloom.backends.spmd.backend import SpmdBackend
    from hloom.ir.stablehlo import parse_program, to_module
    from hloom.platforms.backend import CompileOptions

    main = _MAIN.search(text)
    assert main is not None, "no @main"
    found = _RUN.search(main[0])
    assert found is not None, "no run_parallel"
    constants = {name: _value(dense, shape) for name, dense, shape in _CONSTANT.findall(main[0])}
    grid = [re.findall(r"@(\w+)", row) for row in re.findall(r"\[(.*?)\]", found["programs"], re.DOTALL)]
    names = {name for row in grid for name in row}
    assert len(names) == 1, f"devices that run different functions: {names}"
    program = parse_program(text.replace(main[0], ""), file)
    module = to_module(program, names.pop())
    module.replicas, module.partitions = len(grid), len(grid[0])
    count = module.replicas * module.partitions
    inputs = [constants[name] for name in re.findall(r"%\w+", found["inputs"])]
    each = len(inputs) // count
    shards = [[inputs[device * each + k] for device in range(count)] for k in range(each)]
    results = SpmdBackend().compile(module, CompileOptions(partitioned=True))(shards)
    flat = [result[device] for device in range(count) for result in results]
    checks = _CHECK.findall(main[0])
    for name, number, dense, shape in checks:
        assert name == "expect_eq", name
        np.testing.assert_array_equal(flat[int(number or 0)], _value(dense, shape))
    return len(checks)


def _value(dense: str, shape: str) -> np.ndarray:
    from hloom.ir.interpret import run
    from hloom.ir.stablehlo import parse_program, to_module

    text = f"func.func @main() -> {shape} {{\n  %0 = stablehlo.constant {dense} : {shape}\n  return %0 : {shape}\n}}\n"
    return np.asarray(run(to_module(parse_program(text, "constant"), "main"), []))


def main(files) -> int:
    wrong = 0
    for file in files:
        for number, text in enumerate(SPLIT.split(Path(file).read_text(encoding="utf-8"))):
            if "run_parallel" not in text:
                continue
            called = "".join(re.findall(r"module @(\w+)", text)[:1])
            name = f"{Path(file).name} {number} {called}"
            try:
                print(f"pass  {name}: {check(text, str(file))} checks")
            except Exception as error:
                wrong += 1
                print(f"fail  {name}: {type(error).__name__}: {str(error)[:300]}".replace("\n", " "))
    print(f"{wrong} wrong")
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
