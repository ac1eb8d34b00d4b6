"""`generate` of small language models of `transformers` through the torch backend, with a dynamic cache:

    python -m benchmarks.measure.torch_generate [llama gpt2] [--lengths 20] [--new 8] [--automatic]

Prompts of many lengths, in sequence, against torch in eager mode: the compiled programs (translations of graphs, and
variants of these for some sizes), the time to the first answer and hloom's share of it, and the time of each further
prompt. The first answer of `backend="aot_eager"` shows torch's time to capture the graphs. Weights are random.
--automatic: torch finds the open sizes by itself; otherwise `dynamic=True` declares them. It needs transformers.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from typing import ClassVar
from unittest import mock

import torch
import transformers

from hloom.bridges.torch.open_sizes import graphs

SIZES = {
    "llama": lambda: transformers.LlamaConfig(
        vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256,
    ),
    "gpt2": lambda: transformers.GPT2Config(vocab_size=512, n_embd=128, n_layer=4, n_head=4, n_positions=256),
}  # fmt: skip


class Noted(graphs.OpenGraph):
    """Open graphs, of which all are kept."""

    made: ClassVar[list[graphs.OpenGraph]] = []
    seconds = 0.0  # in which hloom translated and compiled

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.made.append(self)

    def program(self, numbers):
        started = time.perf_counter()
        try:
            return super().program(numbers)
        finally:
            if self._root is self:
                Noted.seconds += time.perf_counter() - started


def answers(model, prompts, new: int) -> tuple[list, list[float]]:
    """The tokens after each prompt, and the seconds of each."""
    found, seconds = [], []
    for prompt in prompts:
        started = time.perf_counter()
        with torch.no_grad():
            found.append(model.generate(prompt, max_new_tokens=new, do_sample=False, pad_token_id=0, eos_token_id=None))
        seconds.append(time.perf_counter() - started)
    return found, seconds


def measure(name: str, lengths: int, new: int, automatic: bool) -> None:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(SIZES[name]()).eval()
    forward, dynamic = model.forward, None if automatic else True
    prompts = [torch.randint(1, 512, (1, 5 + 3 * k)) for k in range(lengths)]
    wanted, eager = answers(model, prompts, new)
    model.forward = torch.compile(forward, backend="aot_eager", dynamic=dynamic)
    _, (captured,) = answers(model, prompts[:1], new)
    torch._dynamo.reset()
    model.forward = torch.compile(forward, backend="hloom", dynamic=dynamic)
    Noted.seconds = 0.0
    first, (waited,) = answers(model, prompts[:1], new)
    own = Noted.seconds
    found, seconds = answers(model, prompts[1:], new)
    found = first + found
    same = sum(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    _, again = answers(model, prompts, new)
    translations = [one for graph in Noted.made for one in graph.translations]
    variants = [len(one.executable.variants) for one in translations if one.executable is not None]
    print(
        f"{name}: {len(Noted.made)} graphs, {len(translations)} translations, {variants} variants; "
        f"first answer {waited:.2f} s, of which hloom {own:.2f} s (with aot_eager {captured:.2f} s); the other prompts "
        f"{sum(seconds):.2f} s, the slowest {max(seconds):.2f} s, median {statistics.median(seconds):.3f} s; again "
        f"{statistics.median(again):.3f} s, torch eager {statistics.median(eager):.3f} s; "
        f"{same} of {lengths} answers are torch's"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(SIZES))
    parser.add_argument("--lengths", type=int, default=20)
    parser.add_argument("--new", type=int, default=8)
    parser.add_argument("--automatic", action="store_true")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    with warnings.catch_warnings(), mock.patch.object(graphs, "OpenGraph", Noted):
        warnings.simplefilter("default")
        for name in options.models:
            Noted.made.clear()
            torch._dynamo.reset()
            measure(name, options.lengths, options.new, options.automatic)


if __name__ == "__main__":
    main()
