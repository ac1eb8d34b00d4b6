"""`torch.compile(model, backend="hloom")`: AOTAutograd makes graphs of ATen ops, forward and backward; hloom compiles
them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch._dynamo.backends.common import AotAutograd
from torch._functorch import config as functorch_config

from hloom.bridges.torch import decompositions
from hloom.bridges.torch.errors import caller, warn
from hloom.bridges.torch.memory import reinterpreted, shares_storage
from hloom.bridges.torch.open_sizes.graphs import callable_of
from hloom.bridges.torch.refusals import is_refused
from hloom.bridges.torch.saved import strides_of_results
from hloom.errors import ArgumentError, FallbackWarning
from hloom.platforms.backend import CompileOptions

__all__ = ["TESTED", "hloom"]

TESTED = "2.13"
# `mode` of torch.compile, and whether programs are tuned by it. What "reduce-overhead" asks for always holds here.
_MODES = {"default": False, "reduce-overhead": False, "max-autotune": True, "max-autotune-no-cudagraphs": True}
_OPTIONS = ("autotune", "fusion")  # as of `hl.jit`


def _boxed(call):
    """A compiled graph as AOTAutograd calls it: with a list of arguments, which it empties."""

    def boxed(arguments: list) -> list:
        results = call(arguments)
        arguments.clear()
        return results

    boxed.__dict__["_boxed_call"] = True
    return boxed


def _compiler(
    name: str, ours: list[BaseException], options: CompileOptions, strides: list | None = None, *, saves: bool = False,
    tracked: bool = False,
):  # fmt: skip
    """ours: collects errors raised here, not by AOTAutograd. strides: of the user's results, as in eager mode."""

    def compile_graph(graph_module, examples):
        try:
            made = callable_of(graph_module, examples, name, options, strides=strides, saves=saves, tracked=tracked)
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


def _options_of(mode: str | None, options: Mapping[str, Any] | None) -> CompileOptions:
    """How programs are compiled. Raises ArgumentError for a mode or an option that has no meaning here."""
    if mode is not None and mode not in _MODES:
        raise ArgumentError(
            f"torch.compile(..., backend='hloom', mode={mode!r})",
            f"the modes are {', '.join(map(repr, _MODES))}",
            "pass one of these, or none",
            caller(),
        )
    for name, value in (options or {}).items():
        if name not in _OPTIONS or not isinstance(value, bool):
            raise ArgumentError(
                f"torch.compile(..., backend='hloom', options={{{name!r}: {value!r}}})",
                f"the options are {' and '.join(map(repr, _OPTIONS))}, True or False, as of hl.jit",
                "leave out the options of other compilers",
                caller(),
            )
    return CompileOptions(**{"autotune": mode is not None and _MODES[mode], **(options or {})})


def hloom(graph_module, examples, *, mode: str | None = None, options: Mapping[str, Any] | None = None):
    """The backend, which `torch.compile(model, backend="hloom")` finds by its name.

    Compiles a graph that Dynamo captured, for calls with and without gradients. Ops without a rule in hloom are
    computed by torch, with a FallbackWarning for each. mode, options: those of torch.compile; "max-autotune" times
    candidates of each program of known sizes, as `hl.jit(autotune=True)` does, and options are "autotune" and "fusion",
    as of `hl.jit`. Raises ArgumentError for others.
    """
    _warn_of_version()
    asked = _options_of(mode, options)
    ours: list[BaseException] = []
    strides = strides_of_results(graph_module)
    backend = AotAutograd(
        fw_compiler=_compiler("torch_forward", ours, asked, strides, saves=True),
        bw_compiler=_compiler("torch_backward", ours, asked),
        inference_compiler=_compiler("torch_inference", ours, asked, strides, tracked=True),
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
