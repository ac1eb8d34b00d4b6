"""Cases for `op_modules`: functions that the host computes, and random bits."""

from __future__ import annotations

import numpy as np
from op_modules import case, numbers

from hloom.ir.types import Shape, TupleShape

# Domains of the operands; whole numbers where a second bound is missing.
DOMAINS = {
    "igamma": [(0.5, 4.0), (0.5, 4.0)],
    "igammac": [(0.5, 4.0), (0.5, 4.0)],
    "igamma-grad-a": [(0.5, 4.0), (0.5, 4.0)],
    "regularized-incomplete-beta": [(0.5, 4.0), (0.5, 4.0), (0.1, 0.9)],
    "dawsn": [(-4.0, 4.0)],
    "exp1": [(0.2, 4.0)],
    "expi": [(0.2, 4.0)],
    "spence": [(0.2, 4.0)],
    "fresnel-s": [(-2.0, 2.0)],
    "fresnel-c": [(-2.0, 2.0)],
    "sine-integral": [(-4.0, 4.0)],
    "cosine-integral": [(0.2, 4.0)],
    "expn": [(1,), (0.2, 4.0)],
    "bessel-jv": [(0,), (0.2, 4.0)],
    "owens-t": [(-2.0, 2.0), (-2.0, 2.0)],
    "hyp1f1": [(0.5, 2.0), (1.5, 3.0), (-2.0, 2.0)],
    "hyp2f1": [(0.5, 2.0), (0.5, 2.0), (2.5, 4.0), (-0.6, 0.6)],
}


def drawn(dtype, dims, seed, bounds):
    if len(bounds) == 2:
        return numbers(dtype, dims, seed, *bounds)
    return (np.arange(np.prod(dims)) % 4 + bounds[0]).reshape(dims).astype(dtype)


def _functions(dtype):
    def special(b, parameter):
        outputs = []
        for name, domains in DOMAINS.items():
            operands = [parameter(drawn(dtype, (2, 3), k, d), f"{name}_{k}") for k, d in enumerate(domains)]
            outputs.append(b.emit(name, *operands))
        return outputs

    special.__name__ = f"special_functions_{dtype.name}"
    return special


for _dtype in map(np.dtype, ("float32", "float64")):
    case(_functions(_dtype), runs=False)


@case(runs=False)
def generators(b, parameter):
    words = [parameter(numbers("u32", (2, 3), k), f"word{k}") for k in range(4)]
    wide = [parameter(numbers("u64", (2, 3), k), f"wide{k}") for k in range(3)]
    return [b.emit(f"threefry2x32-{which}", *words) for which in ("first", "second")] + [
        b.emit(f"philox4x32-{which}", *wide) for which in ("low", "high")
    ]


@case
def random_bits(b, parameter):
    short, long = parameter(numbers("u64", (2,)), "short"), parameter(numbers("u64", (3,), 1), "long")
    outputs = []
    for state, algorithm, bits in (
        (short, "rng_three_fry", Shape("u32", (3, 4))),
        (short, "rng_three_fry", Shape("u64", (5,))),
        (long, "rng_philox", Shape("u32", (3, 5))),
        (long, "rng_philox", Shape("u64", (3,))),
    ):
        made = b.emit("rng-bit-generator", state, algorithm=algorithm, shape=TupleShape([state.shape, bits]))
        outputs += [b.emit("get-tuple-element", made, index=k) for k in range(2)]
    return outputs
