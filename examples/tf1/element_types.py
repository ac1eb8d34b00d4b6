"""TensorFlow 1.0's element types, in arrays and in programs, and memory that is freed with the last reference.

python examples/tf1/element_types.py [--elements 4]
"""

import argparse
import gc

import numpy as np

import hloom as hl
import hloom.numpy as hnp
from hloom.sessions import Program, Session

NAMES = (
    "bool int4 uint4 int8 int16 int32 int64 uint8 uint16 uint32 uint64 float8_e4m3fn float8_e5m2 float16 bfloat16 "
    "float32 float64 complex64 complex128"
).split()


def main(elements=4, report=print):
    """Returns how many types there are, text included, and the arrays that were alive before, during and after."""
    for name in NAMES:
        x = hnp.asarray(np.arange(elements), dtype=name)
        y = hl.jit(lambda a: (a == a) if a.dtype == bool else a + a)(x)
        report(f"{name:14s} {np.asarray(y)}")
    program = Program("texts")
    program.constant(np.array(["text", "of any length"]), "words")
    words = Session(program).run("words")
    report(f"{'string':14s} {words}")
    [hnp.ones(2) + k for k in range(5)]  # numbers become arrays once, and stay
    gc.collect()
    alive = [len(hl.live_arrays())]
    kept = [hnp.ones(1000) + k for k in range(5)]
    alive.append(len(hl.live_arrays()))
    del kept
    gc.collect()
    alive.append(len(hl.live_arrays()))
    report(f"live arrays: {alive}")
    return len(NAMES) + (len(words) > 0), alive


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--elements", type=int, default=4)
    main(arguments.parse_args().elements)
