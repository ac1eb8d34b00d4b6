"""The architectures of `transformers`, small and with random weights: `check(name)` compares hloom with torch."""

from __future__ import annotations

import importlib
import inspect

import torch
from torch_samples import NotThere

SIZES = {
    "hidden_size": 32, "d_model": 32, "n_embd": 32, "embed_dim": 32, "dim": 32, "word_embed_proj_dim": 32,
    "embedding_size": 32, "emb_dim": 32, "intermediate_size": 48, "ffn_dim": 48, "d_ff": 48, "n_inner": 48,
    "hidden_dim": 48, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "num_hidden_layers": 2, "n_layer": 2, "num_layers": 2, "encoder_layers": 2, "decoder_layers": 2, "n_layers": 2,
    "num_decoder_layers": 2, "num_attention_heads": 4, "n_head": 4, "num_heads": 4, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "n_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "d_kv": 8, "vocab_size": 64,
    "max_position_embeddings": 64, "n_positions": 64, "n_ctx": 64, "num_experts": 4, "num_local_experts": 4,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
    "kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
    "sliding_window": 8, "state_size": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 1, "lru_width": 32, "moe_num_experts": 4, "moe_topk": 2, "max_seq_len": 64,
    "rotary_dim": 8, "attention_window": 4, "dropout": 0.0, "attention_dropout": 0.0,
}  # fmt: skip
TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}


# What architectures derive from other sizes: left as they are where a model of the sizes above cannot run.
DERIVED = ("head_dim", "d_kv", "kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim",
           "rotary_dim", "state_size", "lru_width", "n_group", "topk_group")  # fmt: skip
LARGEST = 2_000_000  # parameters


def _library():
    return importlib.import_module("transformers")  # not a dependency of the tests, and slow to import


def architectures() -> list[str]:
    return sorted(_library().CONFIG_MAPPING)


def _built(name: str, left: tuple[str, ...]):
    """A small model of an architecture with a language model's head, or without a head."""
    library = _library()
    torch.manual_seed(0)
    kind = library.CONFIG_MAPPING[name]
    accepted, default = inspect.signature(kind.__init__).parameters, kind()
    given = {k: v for k, v in SIZES.items() if (k in accepted or hasattr(default, k)) and k not in left}
    config = kind(**given)
    maps = (library.MODEL_FOR_CAUSAL_LM_MAPPING, library.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, library.MODEL_MAPPING)
    model = next((m[kind] for m in maps if kind in m), None)
    if model is None:
        raise NotThere("it is no model of words")
    model = model[0] if isinstance(model, (list, tuple)) else model
    with torch.device("meta"):
        count = sum(p.numel() for p in model(config).parameters())
    if count > LARGEST:
        raise NotThere(f"it does not become small: {count:,} parameters")
    return model(config).eval()


def built(name: str):
    """(a model that runs on words, its inputs, torch's result). Raises NotThere where the library has none."""
    reason: Exception | None = None
    for left in ((), DERIVED):
        try:
            model = _built(name, left)
            ids = torch.randint(3, 60, (2, 7))
            encodes = bool(getattr(model.config, "is_encoder_decoder", False))
            inputs = {"input_ids": ids, **({"decoder_input_ids": ids[:, :4]} if encodes else {})}
            with torch.no_grad():
                return model, inputs, _first(model(**inputs))
        except NotThere:
            raise
        except Exception as error:
            reason = error
    raise NotThere(f"the library cannot build or run it so: {type(reason).__name__}: {reason}") from reason


def _first(output):
    found = getattr(output, "logits", None)
    return found if isinstance(found, torch.Tensor) else output[0]


def check(name: str) -> None:
    """A forward of a model, and tokens that it generates with a dynamic and with a static cache, against torch."""
    model, inputs, wanted = built(name)
    ids = inputs["input_ids"]
    with torch.no_grad():
        found = _first(torch.compile(model, backend="hloom")(**inputs))
        torch.testing.assert_close(found, wanted, **TOLERANCE)
        if not (hasattr(model, "generate") and model.can_generate()):
            return
        options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
        for cache in ("dynamic", "static"):
            torch._dynamo.reset()
            try:
                expected = model.generate(ids, cache_implementation=cache, **options)
            except Exception:  # the library has no such cache for it
                continue
            plain, model.forward = model.forward, torch.compile(model.forward, backend="hloom")
            try:
                tokens = model.generate(ids, cache_implementation=cache, **options)
            finally:
                model.forward = plain
            assert torch.equal(tokens, expected), f"other tokens with a {cache} cache"
