"""ONNX models with named sizes, called with many sizes: `python -m benchmarks.measure.onnx_sizes [encoder decoder]`.

An encoder (BERT) of batches and lengths, and a decoder (GPT-2) whose past grows by one token each call, as torch
exports them, with random weights: one program for all sizes, a program for each set of shapes, and ONNX Runtime.
Prints the programs that were compiled, the seconds of all calls together, and the milliseconds of one of sizes seen
before: CPU time, of one thread each and of the compilers that it starts. Each has a process and an empty cache of its
own. It needs torch, transformers and onnxruntime.
"""

from __future__ import annotations

import argparse
import io
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import onnxruntime
import torch
import transformers
from torch import nn

import hloom as hl

HEADS, DEPTH, LAYERS, WORDS = 4, 32, 4, 1000
WAYS = ("ONNX Runtime", "one program", "a program for each")
Run = Callable[[dict[str, np.ndarray]], list[np.ndarray]]
Feeds = Callable[[], Generator[dict[str, np.ndarray], list[np.ndarray], None]]  # a call's, from the results of the last


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        config = transformers.BertConfig(
            vocab_size=WORDS, hidden_size=HEADS * DEPTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
            intermediate_size=512, max_position_embeddings=512, attn_implementation="eager",
        )  # fmt: skip
        self.model = transformers.BertModel(config).eval()

    def forward(self, ids, mask):
        return self.model(input_ids=ids, attention_mask=mask).last_hidden_state


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        config = transformers.GPT2Config(
            vocab_size=WORDS, n_embd=HEADS * DEPTH, n_layer=LAYERS, n_head=HEADS, n_positions=512, eos_token_id=0,
            bos_token_id=0, attn_implementation="eager",
        )  # fmt: skip
        self.model = transformers.GPT2LMHeadModel(config).eval()

    def forward(self, ids, mask, *past):
        pairs = [(past[2 * k], past[2 * k + 1]) for k in range(LAYERS)]
        cache = transformers.cache_utils.DynamicCache(ddp_cache_data=pairs)
        found = self.model(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True)
        return (
            found.logits,
            *[value for layer in found.past_key_values.layers for value in (layer.keys, layer.values)],
        )


def exported(module: nn.Module, arguments: tuple, names: list[str], axes: dict[str, dict[int, str]]) -> bytes:
    file = io.BytesIO()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, arguments, file, input_names=names, dynamic_axes=axes, dynamo=False, opset_version=17)
    return file.getvalue()


def encoder() -> tuple[bytes, Feeds]:
    axes = {0: "batch", 1: "sequence"}
    ids = torch.ones((3, 7), dtype=torch.int64)
    model = exported(Encoder(), (ids, ids), ["ids", "mask"], {"ids": axes, "mask": axes})

    def feeds():
        draws = np.random.default_rng(0)
        for _ in range(20):
            shape = int(draws.integers(1, 9)), int(draws.integers(4, 129))
            yield {"ids": draws.integers(0, WORDS, shape), "mask": np.ones(shape, np.int64)}

    return model, feeds


def decoder() -> tuple[bytes, Feeds]:
    """A prompt of 9 tokens, and 64 further ones."""
    names = [f"past_{k}" for k in range(2 * LAYERS)]
    axes = {name: {0: "batch", 2: "past"} for name in names}
    axes |= {"ids": {0: "batch", 1: "sequence"}, "mask": {0: "batch", 1: "total"}}
    ids, mask = (torch.ones((2, n), dtype=torch.int64) for n in (7, 12))
    past = [torch.randn(2, HEADS, 5, DEPTH) for _ in names]
    model = exported(Decoder(), (ids, mask, *past), ["ids", "mask", *names], axes)

    def feeds():
        ids = np.arange(1, 10)[None]
        past = dict.fromkeys(names, np.zeros((1, HEADS, 0, DEPTH), np.float32))
        for _ in range(65):
            total = past[names[0]].shape[2] + ids.shape[1]
            logits, *values = yield {"ids": ids, "mask": np.ones((1, total), np.int64), **past}
            ids, past = logits[:, -1:].argmax(-1), dict(zip(names, values, strict=True))

    return model, feeds


def clock() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def seconds(run: Run, feeds: Feeds) -> list[float]:
    """The time of each call."""
    times, source = [], feeds()
    feed = next(source)
    while True:
        start = clock()
        results = run(feed)
        times.append(clock() - start)
        try:
            feed = source.send(results)
        except StopIteration:
            return times


def runner(model: Any) -> Run:
    def run(feed):
        found = model(**feed)
        return [np.asarray(value) for value in (found if isinstance(found, tuple) else (found,))]

    return run


def counted(model: Any) -> str:
    """The programs of a model: those with dimensions, and their variants."""
    program = model._program
    opened = [one.plan for several in program.open._programs.values() for one in several]
    made = [s.executable for plan in opened for s in plan.function._specializations.values()]
    variants = sum(len(executable.variants) for executable in made)
    total = len({id(plan) for plan in program.plans.values()})
    return f"{total}" + (f", {len(opened)} of them open with {variants} variants" if opened else "")


def measure(name: str, how: str) -> None:
    torch.manual_seed(0)
    content, feeds = {"encoder": encoder, "decoder": decoder}[name]()
    start, model = clock(), None
    if how == "ONNX Runtime":
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        run: Run = lambda feed: session.run(None, feed)  # noqa: E731
    else:
        model = hl.onnx.load(content)
        run = runner(model)
        if how != "one program":
            model._program.open.reason = "it is measured"
    loading, first = clock() - start, seconds(run, feeds)
    again = np.min([seconds(run, feeds) for _ in range(3)], 0)
    print(
        f"{name}, {how}: loading {loading:.2f} s, {len(first)} calls {sum(first):.2f} s, "
        f"the first two {first[0]:.2f} and {first[1]:.2f}, median {statistics.median(first) * 1e3:.2f} ms; "
        f"again all {sum(again) * 1e3:.1f} ms, median {statistics.median(again) * 1e3:.2f}; "
        f"programs: {'-' if model is None else counted(model)}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["encoder", "decoder"])
    parser.add_argument("--how", choices=WAYS, help="measured in this process")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    hl.config.num_threads = 1
    for name in options.models:
        if options.how:
            measure(name, options.how)
            continue
        for how in WAYS:
            with tempfile.TemporaryDirectory() as cache:
                command = [sys.executable, "-m", "benchmarks.measure.onnx_sizes", name, "--how", how]
                subprocess.run(command, env={**os.environ, "HLOOM_CACHE_DIR": cache}, check=True)


if __name__ == "__main__":
    main()
