"""torch's own samples (OpInfo) through the torch backend; `tests/torch_suites.py` runs all of them.

A sample's function is captured by AOTAutograd and compiled as the backend does it, and its results and derivatives are
compared with torch's.
"""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Callable

import torch
from functorch.compile import aot_function, min_cut_rematerialization_partition
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)  # fmt: skip
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

from hloom.bridges.torch import decompositions
from hloom.bridges.torch.backend import _boxed
from hloom.bridges.torch.open_sizes.graphs import callable_of

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
        compare(found, wanted)
    except AssertionError as error:
        return "" if is_free(op, call, tensors, found, wanted) else str(error)
    return ""


LIMITS = {
    torch.bfloat16: 2e-2, torch.float16: 2e-2, torch.float32: 1e-4, torch.complex64: 1e-4, torch.float64: 1e-7,
    torch.complex128: 1e-7,
}  # fmt: skip


def compare(found, wanted) -> None:
    """Raises AssertionError where results differ from torch's in more than rounding."""
    assert len(found) == len(wanted), f"{len(found)} results for {len(wanted)}"
    for a, b in zip(found, wanted, strict=True):
        limit = LIMITS.get(b.dtype)
        limits = {} if limit is None else {"rtol": limit, "atol": limit}
        torch.testing.assert_close(a, b, equal_nan=True, check_layout=True, **limits)


BREAKS = (
    DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode, UnsupportedOperatorException
)  # fmt: skip


class NotThere(Exception):
    """torch itself has no sample, or cannot capture it."""


def dtypes_of(op, gradients: bool) -> list:
    """The dtypes of an op's cases, in a fixed order."""
    if gradients and not op.supports_autograd:
        return []
    known = op.supported_backward_dtypes("cpu") if gradients else op.supported_dtypes("cpu")
    return [d for d in ALL_DTYPES if d in known]


ALL_DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
              torch.float32, torch.float64, torch.complex64, torch.complex128]  # fmt: skip


def captured(call: Callable, *, dynamic: bool = False):
    """A function as AOTAutograd hands it to the backend."""

    def compiler(name: str):
        def compile_graph(graph_module, examples):
            return _boxed(callable_of(graph_module, examples, name))

        return compile_graph

    return aot_function(
        call, compiler("sample_forward"), compiler("sample_backward"),
        partition_fn=min_cut_rematerialization_partition, decompositions=decompositions.table(),
        keep_inference_input_mutations=True, inference_compiler=compiler("sample"), dynamic=dynamic,
    )  # fmt: skip


def check(op, dtype, gradients: bool, dynamic: bool) -> None:
    """The first sample of an op in a dtype. Raises AssertionError where hloom's results, or derivatives, differ from
    torch's, and NotThere where torch has none."""
    torch.manual_seed(0)
    sample = next(iter(op.sample_inputs("cpu", dtype, requires_grad=gradients)), None)
    if sample is None:
        raise NotThere("torch has no sample")
    call, tensors = function_of(op, sample)
    leaves = tree_flatten(((sample.input, *sample.args), sample.kwargs))[0]
    varied = [t.requires_grad for t in leaves if isinstance(t, torch.Tensor)]
    rows = []
    for function in (call, captured(call, dynamic=dynamic)):
        given = [t.clone().requires_grad_(is_varied) for t, is_varied in zip(tensors, varied, strict=True)]
        torch.manual_seed(1)
        try:
            results = function(*given)
        except Exception as error:
            if function is call:
                raise NotThere(f"torch fails: {type(error).__name__}: {error}") from error
            # AOTAutograd called alone takes no sparse tensors.
            if not isinstance(error, BREAKS) and all(
                t.layout == torch.strided for t in leaves if isinstance(t, torch.Tensor)
            ):
                raise
            # Dynamo breaks the graph there.
            results = torch.compile(call, backend="hloom", dynamic=dynamic or None)(*given)
        rows.append((results, _slopes(op, results, given) if gradients else []))
    (wanted, slopes), (found, ours) = rows
    if any(word in op.name for word in ARBITRARY):
        assert [(r.shape, r.dtype) for r in found] == [(r.shape, r.dtype) for r in wanted], "another shape or dtype"
        return
    try:
        compare(found, wanted)
    except AssertionError:
        if not is_free(op, call, tensors, found, wanted):
            raise
    try:
        compare(ours, slopes)
    except AssertionError:

        def exact():
            given = [wide(t).requires_grad_(is_varied) for t, is_varied in zip(tensors, varied, strict=True)]
            return _slopes(op, call(*given), given)

        if not nearer(exact, ours, slopes):
            raise


def _slopes(op, results, given) -> list:
    """The derivatives of a sum over the results that depend on what is given. The results are scaled to at most 1, as
    the cosine of a large one is that of its rounding error; of vectors whose directions are free the moduli count."""

    def weighted(r):
        r = r.to_dense() if r.layout != torch.strided else r
        if op.name in DIRECTIONS:
            r = r.abs()
        r = (torch.view_as_real(r.resolve_conj()) if r.is_complex() else r).double()
        finite = r.detach()[r.detach().isfinite()].abs()
        return (r / finite.amax().clamp(min=1) if finite.numel() else r).cos().sum()

    total = sum(weighted(r) for r in results if r.requires_grad)
    wanted = [t for t in given if t.requires_grad]
    if not isinstance(total, torch.Tensor) or not wanted:
        raise NotThere("nothing to differentiate")
    slopes = torch.autograd.grad(total, wanted, allow_unused=True)
    return [torch.zeros_like(t) if s is None else s for t, s in zip(wanted, slopes, strict=True)]


DIRECTIONS = ("linalg.eig", "linalg.eigh", "svd_lowrank", "pca_lowrank")


def is_free(op, call, tensors, found, wanted) -> bool:
    """Whether results differ from torch's only in what is as good as torch's."""
    return (
        nearer(lambda: call(*map(wide, tensors)), found, wanted)
        or same_order(op, tensors, found)
        or (op.name in DIRECTIONS and same_directions(found, wanted))
    )


def same_directions(found, wanted) -> bool:
    """Whether vectors, the columns of the results of most dimensions, differ from torch's by factors of modulus 1
    alone, which left and right singular vectors share."""
    dimensions = max(r.ndim for r in wanted)
    first = next(k for k, r in enumerate(wanted) if r.ndim == dimensions)
    place = wanted[first].abs().argmax(-2, keepdim=True)

    def turned(results):
        largest = torch.gather(results[first], -2, place)
        return [r / (largest / largest.abs()) if r.ndim == dimensions else r for r in results]

    try:
        compare(turned(found), turned(wanted))
    except AssertionError:
        return False
    return True


def wide(t):
    return t.double() if t.dtype in (torch.bfloat16, torch.float16) else t.clone()


def nearer(exact, found, wanted) -> bool:
    """Whether results in narrow floats are as near to those in f64, which `exact` computes, as torch's are, which
    rounds some steps to them."""
    if not any(t.dtype in (torch.bfloat16, torch.float16) for t in wanted):
        return False
    return all(
        (a.double() - e.double()).abs().max() <= 1.1 * (b.double() - e.double()).abs().max()
        for a, b, e in zip(found, wanted, exact(), strict=True)
        if a.numel()
    )


def same_order(op, tensors, found) -> bool:
    """Whether positions differ from torch's at equal elements only, whose order is not said."""
    if op.name not in ("sort", "argsort", "topk", "kthvalue") or not tensors[0].ndim:
        return False
    x, places = tensors[0], found[-1]
    if places.ndim < x.ndim:  # of one element of each row, without the dimension of the rows
        return any(
            torch.equal(torch.gather(x, dim, places.unsqueeze(dim)).squeeze(dim), found[0])
            for dim in range(x.ndim)
            if places.shape == (*x.shape[:dim], *x.shape[dim + 1 :])
        )
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
