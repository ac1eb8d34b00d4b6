"""torch's own samples (OpInfo) through the torch backend: `python tests/support/torch_samples.py [dtypes] [ops]`.

A sample's function is traced to a graph of ATen ops, translated and compiled as the backend does it, and its results
are compared with torch's. Those ops count whose graphs have ATen's core ops only.
"""

from __future__ import annotations

import itertools
import pathlib
import sys
import time
from collections import Counter

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

from hloom.bridges.torch import decompositions
from hloom.bridges.torch.calls import callable_of

CORE = frozenset(pathlib.Path(__file__).with_name("torch_core_ops.txt").read_text().split())
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "s64": torch.int64}
# Their results are arbitrary: compared by shape and dtype only.
ARBITRARY = ("empty", "rand", "normal", "bernoulli", "multinomial", "dropout", "uniform", "cauchy", "exponential",
             "geometric", "log_normal", "rrelu", "gumbel")  # fmt: skip


def function_of(op, sample):
    """(a function of tensors alone, the tensors)."""
    flat, spec = tree_flatten(((sample.input, *sample.args), sample.kwargs))
    places = [k for k, v in enumerate(flat) if isinstance(v, torch.Tensor)]

    def call(*tensors):
        values = list(flat)
        for k, tensor in zip(places, tensors, strict=True):
            values[k] = tensor
        args, kwargs = tree_unflatten(values, spec)
        return [r for r in tree_flatten(op(*args, **kwargs))[0] if isinstance(r, torch.Tensor)]

    return call, [flat[k].detach() for k in places]


def traced(call, tensors, table):
    functional = torch.func.functionalize(call, remove="mutations_and_views")
    graph = make_fx(functional, decomposition_table=table, tracing_mode="fake")(*tensors)
    graph.graph.eliminate_dead_code()
    return graph


def names(graph) -> set[str]:
    return {str(n.target) for n in graph.graph.nodes if n.op == "call_function" and "getitem" not in str(n.target)}


def is_core(found: set[str]) -> bool:
    """Whether a graph as ATen has it is of core ops. Copies of views, as functionalization makes them, are views."""
    plain = {n.replace("_copy.", ".") if n.replace("_copy.", ".") in CORE else n for n in found}
    return bool(plain) and plain <= CORE


def samples(op, dtype, limit=None):
    torch.manual_seed(0)
    return itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), limit)


def difference(op, sample) -> str:
    """How hloom's results of a sample differ from torch's; '' where they agree."""
    call, tensors = function_of(op, sample)
    wanted = call(*[t.clone() for t in tensors])
    graph = traced(call, tensors, decompositions.table())
    found = callable_of(graph, tensors, "sample")([t.clone() for t in tensors])
    if any(word in op.name for word in ARBITRARY):
        same = all(a.shape == b.shape and a.dtype == b.dtype for a, b in zip(found, wanted, strict=True))
        return "" if same else "another shape or dtype"
    try:
        for a, b in zip(found, wanted, strict=True):
            narrow = b.dtype in (torch.bfloat16, torch.float16)
            limits = (
                {"rtol": 2e-2, "atol": 2e-2}
                if narrow
                else {"rtol": 1e-4, "atol": 1e-4}
                if b.dtype == torch.float32
                else {}
            )
            torch.testing.assert_close(a, b, equal_nan=True, **limits)
    except AssertionError as error:
        return "" if nearer(call, tensors, found, wanted) or same_order(op, tensors, found) else str(error)
    return ""


def nearer(call, tensors, found, wanted) -> bool:
    """Whether results in bf16 are as near to those in f64 as torch's are, which computes some steps in bf16."""
    if not any(t.dtype == torch.bfloat16 for t in wanted):
        return False
    exact = call(*[t.double() if t.dtype == torch.bfloat16 else t for t in tensors])
    return all(
        (a.double() - e.double()).abs().max() <= 1.1 * (b.double() - e.double()).abs().max()
        for a, b, e in zip(found, wanted, exact, strict=True)
        if a.numel()
    )


def same_order(op, tensors, found) -> bool:
    """Whether positions differ from torch's at equal elements only, whose order is not said."""
    if op.name not in ("sort", "argsort", "topk") or not tensors[0].ndim:
        return False
    x, places = tensors[0], found[-1]
    for dim in range(x.ndim):
        if all(places.shape[k] == x.shape[k] for k in range(x.ndim) if k != dim):
            values = torch.gather(x, dim, places)
            if len(found) == 1 and not torch.equal(values, torch.sort(x, dim)[0]):
                continue
            if len(found) == 1 or torch.equal(values, found[0]):
                return True
    return False


def core_infos():
    """The OpInfos whose first sample in f32 (or s64) is a graph of core ops."""
    for op in op_db:
        dtype = next((d for d in DTYPES.values() if d in op.supported_dtypes("cpu")), None)
        if dtype is None or op.name.startswith(("_refs", "ops.", "fft.", "linalg", "sparse")):
            continue
        try:
            sample = next(samples(op, dtype))
            call, tensors = function_of(op, sample)
            if is_core(names(traced(call, tensors, {}))):
                yield op
        except Exception:  # samples that do not trace: data-dependent, sparse, nested
            continue


def main() -> None:
    asked = sys.argv[1].split(",") if len(sys.argv) > 1 else list(DTYPES)
    chosen = set(sys.argv[2].split(",")) if len(sys.argv) > 2 else None
    good, bad, started = Counter(), Counter(), time.time()
    for op in [o for o in op_db if o.name in chosen] if chosen else core_infos():
        for name in asked:
            if DTYPES[name] not in op.supported_dtypes("cpu"):
                continue
            for k, sample in enumerate(samples(op, DTYPES[name])):
                try:
                    text = difference(op, sample)
                except Exception as error:
                    text = f"{type(error).__name__}: {error}"
                (bad if text else good)[name] += 1
                if text:
                    print(f"{op.name} {op.variant_test_name} {name} {k}: {' '.join(text.split())[:300]}", flush=True)
    print("good", dict(good), "bad", dict(bad), f"{time.time() - started:.0f} s")


if __name__ == "__main__":
    main()
