"""`torch.compile(model, backend="hloom")`: AOTAutograd makes graphs of ATen ops, forward and backward; hloom compiles
them."""

from __future__ import annotations

import functools

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch._dynamo.backends.common import AotAutograd
from torch._functorch import config as functorch_config

from hloom.bridges.torch import decompositions
from hloom.bridges.torch.errors import warn
from hloom.bridges.torch.memory import reinterpreted, shares_storage
from hloom.bridges.torch.open_sizes.graphs import callable_of
from hloom.bridges.torch.refusals import is_refused
from hloom.bridges.torch.saved import strides_of_results
from hloom.errors import FallbackWarning

__all__ = ["TESTED", "hloom"]

TESTED = "2.13"


def _boxed(call):
    """A compiled graph as AOTAutograd calls it: with a list of arguments, which it empties."""

    def boxed(arguments: list) -> list:
        results = call(arguments)
        arguments.clear()
        return results

    boxed.__dict__["_boxed_call"] = True
    return boxed


def _compiler(
    name: str, ours: list[BaseException], strides: list | None = None, *, saves: bool = False, tracked: bool = False
):
    """ours: collects errors raised here, not by AOTAutograd. strides: of the user's results, as in eager mode."""

    def compile_graph(graph_module, examples):
        try:
            made = callable_of(graph_module, examples, name, strides=strides, saves=saves, tracked=tracked)
        except Exception as error:
            ours.append(error)
            raise
        return _boxed(made)

    return compile_graph


@functools.cache
def _warn_of_version() -> None:
    if not torch.__version__.startswith(TESTED + "."):
        warn(
            f"hloom's torch backend is tested with torch {TESTED}; this is torch {torch.__version__}. "
            f"Ops may have changed: compare results, or install torch=={TESTED}.*",
            UserWarning,
        )


def _warn_of_options(options: dict) -> None:
    given = {k: v for k, v in options.items() if v}
    if given:
        listed = ", ".join(f"{k}={v!r}" for k, v in given.items())
        warn(f"torch.compile(..., backend='hloom', {listed}): {' and '.join(given)} set up torch's own compiler and "
             "change nothing here; hloom's settings are those of hl.config", UserWarning)  # fmt: skip


def hloom(graph_module, examples, **options):
    """The backend, which `torch.compile(model, backend="hloom")` finds by its name.

    Compiles a graph that Dynamo captured, for calls with and without gradients. Ops without a rule in hloom are
    computed by torch, with a FallbackWarning for each. options: `mode` and `options` of torch.compile, which are those
    of torch's own compiler: they have no effect here except a warning.
    """
    _warn_of_version()
    _warn_of_options(options)
    ours: list[BaseException] = []
    strides = strides_of_results(graph_module)
    backend = AotAutograd(
        fw_compiler=_compiler("torch_forward", ours, strides, saves=True),
        bw_compiler=_compiler("torch_backward", ours),
        inference_compiler=_compiler("torch_inference", ours, strides, tracked=True),
        decompositions=decompositions.table(),
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    if is_refused(graph_module):
        return graph_module.forward  # torch's message says why
    shared = shares_storage(examples)
    if shared and reinterpreted(graph_module):
        return _left_to_torch(graph_module, "results are arguments that share memory, read as another dtype")
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)  # recurrent layers as ATen's ops, not as one of oneDNN's
    try:
        # Of arguments that share memory torch makes one, and replays views of them as if they were views of that one.
        with functorch_config.patch(view_replay_for_aliased_outputs=not shared):
            return backend(graph_module, examples)
    except AssertionError as error:
        if error in ours:
            raise
        return _left_to_torch(graph_module, str(error))
    finally:
        torch._C._set_mkldnn_enabled(before)


def _left_to_torch(graph_module, reason: str):
    """A graph that AOTAutograd does not take: torch runs it op by op."""
    count = sum(node.op.startswith("call") for node in graph_module.graph.nodes)
    warn(
        f"torch computes a graph of {count} op{'s' * (count != 1)} in eager mode for torch.compile with "
        f"backend='hloom', as AOTAutograd does not take it: {reason}",
        FallbackWarning,
    )
    return graph_module.forward
