"""Networks that NNSmith, a generator of others, makes from a seed, through the torch backend, against eager torch.

NNSmith (`pip install nnsmith`) chooses operators, dtypes and shapes so that a solver finds them valid, 3 to 12 of them.
"""

from __future__ import annotations

import functools
import logging
import random
import warnings

import nnsmith.graph_gen
import numpy as np
import torch
from nnsmith.materialize import Model
from nnsmith.narrow_spec import auto_opset

import hloom.bridges.torch  # noqa: F401  the backend
from hloom.errors import FallbackWarning

SOLVER_MS = 3000  # of the solver, for one node
TOLERANCE = {torch.float16: 1e-2, torch.float32: 1e-4, torch.float64: 1e-9}


@functools.cache
def _model() -> tuple[type, list]:
    logging.disable(logging.WARNING)
    kind = Model.init("torch")
    kind.add_seed_setter()
    return kind, auto_opset(kind, None)


def made(seed: int) -> tuple[torch.nn.Module, list[torch.Tensor], list[str]]:
    """(a network, its inputs, the names of its operators). Raises nnsmith's errors where it finds none."""
    kind, operators = _model()
    rng = random.Random(seed)
    found = nnsmith.graph_gen.model_gen(
        opset=operators, method="symbolic-cinit", seed=seed, max_nodes=rng.randrange(3, 13), timeout_ms=SOLVER_MS
    )
    graph = found.make_concrete()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    model = kind.from_gir(graph)
    oracle = model.make_oracle()
    inputs = [torch.as_tensor(value) for value in oracle.input.values()]
    return model.native_model.eval(), inputs, [i.iexpr.op.name().split(".")[-1] for i in graph.insts]


def _differ(got: torch.Tensor, want: torch.Tensor) -> str:
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)} for {want.dtype}{list(want.shape)}"
    if not (want.is_floating_point() or want.is_complex()):
        return "" if torch.equal(got, want) else f"{int((got != want).sum())} of {want.numel()} elements"
    tolerance = TOLERANCE[want.dtype.to_real()]
    scale = float(want[want.isfinite()].abs().max()) if want.isfinite().any() else 0.0
    close = torch.isclose(got, want, rtol=tolerance, atol=tolerance * min(scale, 1.0), equal_nan=True)
    return "" if close.all() else f"{int((~close).sum())} of {want.numel()} elements"


def _nudged(tensor: torch.Tensor, bits: int) -> torch.Tensor:
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor
    return tensor * (1 + bits * torch.finfo(tensor.dtype.to_real()).eps)


def checked(network: torch.nn.Module, inputs: list[torch.Tensor]) -> tuple[str, str]:
    """('' or what is wrong, 'computed', 'with calls of torch', or 'unstable': so are inputs with other last bits)."""
    torch._dynamo.reset()
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        want = [t.clone() for t in network(*[t.clone() for t in inputs])]
        got = torch.compile(network, backend="hloom")(*[t.clone() for t in inputs])
        faults = [found for g, w in zip(got, want, strict=True) if (found := _differ(g, w))]
        if not faults:
            called = any(issubclass(w.category, FallbackWarning) for w in caught)
            return "", "with calls of torch" if called else "computed"
        # Before floor, a comparison, argmax or a cast the last bit decides a whole step.
        for bits in (-2, 2, 8):
            nearby = [_nudged(t, bits) for t in inputs]
            if any(_differ(n, w) for n, w in zip(network(*nearby), want, strict=True)):
                return "", "unstable"
    return "; ".join(faults), "computed"
