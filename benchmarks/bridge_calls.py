"""A million small calls through the doors of torch and ONNX, by several threads.

    python -m benchmarks.bridge_calls torch    (or onnx; then, if wanted, the number of calls)

Prints memory after each tenth of the calls. Exits with 1 where a call raised, a result was wrong, or memory grew by
more than a few MB after the first tenth.
"""

from __future__ import annotations

import gc
import pathlib
import sys
import threading
import time

__all__: list[str] = []

CALLS, THREADS, TENTHS = 1_000_000, 4, 10
CHECKED = 100  # every such call's result is compared
ALLOWED = 8.0  # MB of growth


def torch_call():
    """(a call, whether its result is right)."""
    import torch  # an optional library

    function = torch.compile(lambda x, y: x * 2 + y, backend="hloom")
    x, y = torch.arange(8.0), torch.ones(8)
    wanted = x * 2 + y
    return lambda: function(x, y), lambda found: torch.equal(found, wanted)


def onnx_call():
    """(a call, whether its result is right)."""
    import numpy as np
    from onnx import TensorProto, helper  # an optional library

    import hloom as hl

    shapes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8]) for name in "xyz"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "y"], ["z"])], "add", shapes[:2], shapes[2:])
    model = hl.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    x, y = np.arange(8, dtype=np.float32), np.ones(8, np.float32)

    def right(found) -> bool:
        found = found[0] if isinstance(found, (list, tuple)) else found
        return np.array_equal(np.asarray(found), x + y)

    return lambda: model(x, y), right


def memory() -> float:
    """The process's resident memory in MB."""
    gc.collect()
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def run(call, right, count: int, errors: list) -> None:
    """`count` calls by one thread; failures are recorded."""
    try:
        for k in range(count):
            found = call()
            if k % CHECKED == 0 and not right(found):
                raise AssertionError(f"a wrong result: {found}")
    except BaseException as error:
        errors.append(error)


def main() -> int:
    door = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else CALLS
    call, right = {"torch": torch_call, "onnx": onnx_call}[door]()
    call()
    errors: list[BaseException] = []
    sizes = [memory()]
    for _ in range(TENTHS):
        threads = [
            threading.Thread(target=run, args=(call, right, count // TENTHS // THREADS, errors)) for _ in range(THREADS)
        ]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        each = (time.perf_counter() - started) / (count // TENTHS) * 1e6
        sizes.append(memory())
        print(f"{door}: {sizes[-1]:.1f} MB, {each:.1f} µs a call, {len(errors)} errors", flush=True)
    grown = sizes[-1] - sizes[1]
    print(f"{door}: {count:,} calls by {THREADS} threads: {grown:+.1f} MB after the first tenth, {len(errors)} errors")
    for error in errors[:3]:
        print(repr(error))
    return int(bool(errors) or grown > ALLOWED)


if __name__ == "__main__":
    raise SystemExit(main())
