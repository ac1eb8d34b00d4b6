"""`generate` of transformers with prompts of many lengths: torch captures a few graphs, and the tokens are torch's."""

import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'hloom[torch]'")
transformers = pytest.importorskip("transformers")

from hloom.bridges.torch import hloom  # noqa: E402
from hloom.errors import FallbackWarning  # noqa: E402

LENGTHS = [5, 9, 12, 7, 16, 23, 3, 31, 40, 8, 11, 50, 64, 2, 33, 17, 48, 6, 100, 1]
SIZES = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 96, "max_position_embeddings": 160,
}  # fmt: skip
MODELS = {
    "groups of heads": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)),
    "experts": lambda: transformers.MixtralForCausalLM(transformers.MixtralConfig(**SIZES, num_local_experts=4)),
}


@pytest.mark.parametrize(
    ("name", "cache", "dynamic", "lengths"),
    [
        ("groups of heads", "dynamic", True, LENGTHS),
        ("groups of heads", "static", True, LENGTHS),
        ("groups of heads", "dynamic", None, LENGTHS[:-1]),
        ("experts", "dynamic", True, LENGTHS[10:]),
    ],
)
def test_prompts_of_many_lengths_recompile_three_times_at_most(name, cache, dynamic, lengths):
    model = MODELS[name]().eval()
    plain, compiled = model.forward, torch.compile(model.forward, backend=hloom, dynamic=dynamic)
    options = {
        "max_new_tokens": 3, "min_new_tokens": 3, "do_sample": False, "pad_token_id": 0, "cache_implementation": cache,
        "disable_compile": True,
    }  # fmt: skip
    torch._dynamo.utils.counters.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        for length in lengths:
            ids = torch.randint(3, 96, (1, length))
            model.forward = plain
            wanted = model.generate(ids, **options)
            model.forward = compiled
            assert torch.equal(model.generate(ids, **options), wanted)
    counters = torch._dynamo.utils.counters
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] <= 1 + 3
