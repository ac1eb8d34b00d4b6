"""The architectures of `transformers`, small and with random weights: `check(name)` compares hloom with torch.

    python tests/support/torch_models_small.py [WORD]

builds them all without compiling one, and says why where it cannot.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import math
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.utils import _pytree
from torch_samples import NotThere

TOLERANCE = {"rtol": 1e-3, "atol": 1e-4, "equal_nan": True}
LARGEST = 16_000_000  # parameters
WORDS = 128  # of a vocabulary

# Which model of an architecture is taken: the first of these mappings that has one.
MAPPINGS = ("CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "SPEECH_SEQ_2_SEQ", "",
            "TEXT_ENCODING", "BACKBONE", "IMAGE", "AUDIO_TOKENIZATION", "TEXT_TO_WAVEFORM", "TEXT_TO_SPECTROGRAM",
            "PRETRAINING", "MASKED_LM", "CTC", "OBJECT_DETECTION", "UNIVERSAL_SEGMENTATION", "MASK_GENERATION",
            "DEPTH_ESTIMATION", "KEYPOINT_DETECTION", "KEYPOINT_MATCHING", "POSE_ESTIMATION", "IMAGE_CLASSIFICATION",
            "TIME_SERIES_PREDICTION", "RETRIEVAL", "TABLE_RECOGNITION", "TEXT_RECOGNITION", "IMAGE_TO_IMAGE",
            "SEMANTIC_SEGMENTATION", "IMAGE_MATTING", "RNNT", "TDT")  # fmt: skip

DEPTHS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "layers", "depth", "encoder_layers",
          "decoder_layers", "num_decoder_layers", "num_encoder_layers", "num_hidden_groups", "encoder_num_layers",
          "decoder_num_layers", "encoder_depth", "decoder_depth", "encoder_num_hidden_layers",
          "decoder_num_hidden_layers", "num_local_layers", "attention_layers")  # fmt: skip
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_experts_per_tok",
           "moe_topk", "moe_k", "num_experts_per_token", "top_k", "top_k_experts")  # fmt: skip
POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_source_positions",
             "max_target_positions", "block_size", "max_sequence_length")  # fmt: skip
GROUPS = ("n_group", "num_group", "topk_group", "num_expert_group")
HIDDEN = ("hidden_size", "d_model", "n_embd", "embed_dim", "dim")
HEADS = ("num_attention_heads", "num_heads", "n_head", "n_heads", "encoder_attention_heads", "decoder_attention_heads")
KEPT = ("image_size", "patch_size", "num_channels", "num_mel_bins", "sampling_rate", "sample_rate", "fft_size",
        "id2label", "label2id", "torch_dtype", "dtype", "kernel_size", "window_size", "stride", "num_labels",
        "tile_size", "upsample_rates", "input_size", "feature_size", "codebook_dim")  # fmt: skip
# Sizes divided by, layers, and whether heads become fewer instead of smaller.
SCALES = ((16, 1, False), (16, 1, True), (8, 2, False), (64, 1, False), (16, 4, False), (4, 2, False), (1, 2, False))
SWITCHES = ("dropout", "drop_rate", "dropout_rate", "layerdrop", "noise")


def _library():
    return importlib.import_module("transformers")  # not a dependency of the tests, and slow to import


def architectures() -> list[str]:
    return sorted(_library().CONFIG_MAPPING)


def _divided(value, by: int):
    """Sizes of a configuration: those that are large become `by` times smaller, so that what hangs together fits."""
    if isinstance(value, dict):  # sections of rotations
        return {k: [n // by for n in v] if _sections(v, by) else v for k, v in value.items()}
    if isinstance(value, bool) or not isinstance(value, (int, list, tuple)):
        return value
    if isinstance(value, (list, tuple)):
        return type(value)(_divided(v, by) for v in value)
    return value // by if value >= 4 * by and value % by == 0 else value


def _sections(value, by: int) -> bool:
    return isinstance(value, list) and all(isinstance(n, int) and n % by == 0 for n in value)


def _small(config, by: int, layers: int, fewer_heads: bool):
    """The configuration, made small in place with all those inside it."""
    base = _library().PreTrainedConfig
    for value in list(vars(config).values()):
        if isinstance(value, base):
            _small(value, by, layers, fewer_heads)
    before = next((v for k in DEPTHS if isinstance(v := vars(config).get(k), int)), 0)
    kinds = vars(config).get("layer_types")
    taken = _one_of_each(kinds, min(before, layers)) if isinstance(kinds, list) else range(min(before, layers))
    for key, value in list(vars(config).items()):
        try:
            new = _changed(key, value, by, before, taken, fewer_heads)
            if new is not value and new != value:
                setattr(config, key, new)
        except Exception:  # derived of others, or one value for each layer
            continue
    hidden = next((v for k in HIDDEN if isinstance(v := vars(config).get(k), int)), 0)
    for key in HEADS:
        value = vars(config).get(key)
        if hidden and isinstance(value, int) and value and hidden % value and "head_dim" not in vars(config):
            setattr(config, key, math.gcd(hidden, 4))
    return config


def _one_of_each(kinds: list, least: int) -> list[int]:
    """Which layers are kept: the first of each kind, and others from the front until they are enough."""
    firsts = {kind: n for n, kind in reversed(list(enumerate(kinds)))}
    rest = [n for n in range(len(kinds)) if n not in firsts.values()]
    return sorted([*firsts.values(), *rest[: max(0, least - len(firsts))]])


def _changed(key: str, value, by: int, before: int, taken, fewer_heads: bool):
    if key.startswith("_") or isinstance(value, (bool, str)) or "theta" in key:
        return value
    if "heads" in key and isinstance(value, int):
        return max(value // by, 1) if fewer_heads else value
    if "head" in key and fewer_heads:
        return value
    if key in EXPERTS and (value is None or isinstance(value, int)):
        return min(value or 4, 2 if "tok" in key or "top" in key or key.endswith("_k") else 4)
    if key in GROUPS and isinstance(value, int):
        return 1
    if key.endswith(("token_id", "token_ids", "token_index")):
        return value % (WORDS - 8) if isinstance(value, int) and value >= WORDS else value
    if "vocab" in key and isinstance(value, int):
        return min(value, WORDS)
    if key in DEPTHS and isinstance(value, int):
        return min(value, max(len(taken), 1))
    if key in POSITIONS and isinstance(value, int):
        return min(value, 512)
    if isinstance(value, list) and before and len(value) == before > len(taken):
        return [_divided(value[n], by) for n in taken]  # one value a layer
    if "layer" in key and ("indices" in key or "indexes" in key or key.endswith("ids")) and isinstance(value, list):
        return [n for n in value if n < len(taken)] or [max(len(taken) - 1, 0)]
    if any(key.endswith(k) for k in KEPT) or isinstance(value, float):
        return 0.0 if isinstance(value, float) and any(k in key for k in SWITCHES) else value
    return _divided(value, by)


def _model_classes(kind: type) -> list[type]:
    """Models of a configuration: those that speak first, then others, or that of a part of an architecture."""
    library, found = _library(), []
    for word in MAPPINGS:
        mapping = getattr(library, f"MODEL_FOR_{word}_MAPPING" if word else "MODEL_MAPPING")
        try:
            model = mapping.get(kind, ())
        except ImportError as error:
            raise NotThere(f"it needs another library: {' '.join(str(error).split())}") from None
        found += [m for m in (model if isinstance(model, (list, tuple)) else [model]) if m not in found]
    if found:
        return found[:3]
    place = kind.__module__.rpartition(".")[0]
    folder = Path(importlib.import_module(place).__file__).parent
    for path in sorted(folder.glob("modeling_*.py")):
        module = importlib.import_module(f"{place}.{path.stem}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, library.PreTrainedModel) and "forward" in vars(value):
                if value.config_class is kind and value.__module__ == module.__name__:
                    return [value]
    raise NotThere("no model belongs to this configuration alone")


def _built(kind: type, chosen: type, by: int, layers: int, fewer_heads: bool):
    torch.manual_seed(0)
    config = _small(kind(), by, layers, fewer_heads)
    with torch.device("meta"):
        count = sum(p.numel() for p in chosen(config).parameters())
    if count > LARGEST:
        raise ValueError(f"it does not become small: {count:,} parameters")
    torch.manual_seed(0)
    return chosen(config).eval()


def _find(config, *names: str, default: int) -> int:
    """The first value of one of these names in a configuration or those inside it."""
    inner = [v for v in vars(config).values() if hasattr(v, "to_dict") and hasattr(v, "model_type")]
    for name in names:
        for place in (config, *inner):
            value = getattr(place, name, None)
            value = value[0] if isinstance(value, (list, tuple)) and value else value
            value = value.get("height") if isinstance(value, dict) else value
            if isinstance(value, int) and value > 0:
                return value
    return default


def _values(config) -> dict[str, torch.Tensor]:
    """A value for each name of an input that models share."""
    ids = torch.randint(3, WORDS - 24, (2, 7))
    side = _find(config, "image_size", "input_size", default=64)
    planes = _find(config, "num_channels", "in_channels", "in_chans", default=3)
    image = torch.randn(1, planes, side, side)
    frames = _find(config, "num_frames", default=4)
    mels = _find(config, "num_mel_bins", "feature_size", "n_mels", "input_dim", default=80)
    steps = 2 * _find(config, "max_source_positions", default=50)
    past = _find(config, "context_length", "prediction_length", default=32)
    series = _find(config, "num_input_channels", "input_size", default=1)
    hidden = _find(config, "hidden_size", "d_model", default=32)
    return {
        "input_ids": ids, "decoder_input_ids": ids[:, :4], "attention_mask": torch.ones_like(ids),
        "pixel_values": image, "pixel_values_videos": torch.randn(1, frames, planes, side, side),
        "pixel_mask": torch.ones(1, side, side, dtype=torch.long),
        "input_features": torch.randn(1, mels, steps), "input_values": torch.randn(1, 1, 4000),
        "audio_values": torch.randn(1, 1, 4000), "inputs_embeds": torch.randn(2, 7, hidden),
        "past_values": torch.randn(2, past, series), "past_observed_mask": torch.ones(2, past, series),
        "bbox": torch.randint(0, 100, (2, 7, 4)).sort(-1).values, "hidden_states": torch.randn(2, 7, hidden),
        "input_points": torch.rand(1, 1, 2, 2) * side, "audio_codes": torch.randint(0, 16, (1, 4, 7)),
        "spectrogram": torch.randn(1, 40, mels), "labels": ids,
    }  # fmt: skip


def _inputs(model) -> Iterator[dict[str, torch.Tensor]]:
    """Inputs that a model may take, the likeliest first."""
    accepted = inspect.signature(model.forward).parameters
    values = _values(model.config)
    needed = {k for k, p in accepted.items() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD}
    main = getattr(model, "main_input_name", "input_ids")
    decodes = {"decoder_input_ids"} if getattr(model.config, "is_encoder_decoder", False) else set()
    for names in ({main}, {main, *decodes}, {*needed, main, *decodes}, {"input_ids", "pixel_values"}):
        names = {n for n in names if n in accepted}
        if names and names <= set(values):
            given = {n: values[n] for n in accepted if n in names}
            yield given
            if "input_features" in given:
                yield given | {"input_features": given["input_features"].mT.contiguous()}
                yield given | {"input_features": torch.randn(1, 100, 128)}
            if "input_values" in given:
                yield given | {"input_values": given["input_values"][:, 0]}
                yield given | {"input_values": torch.randn(1, 64, _find(model.config, "num_mel_bins", default=128))}
            if "pixel_values" in given:
                small = given["pixel_values"][..., :64, :64]
                yield given | {"pixel_values": small}
                yield given | {"pixel_values": values["pixel_values_videos"]}


def built(name: str):
    """(a model, its inputs, torch's results). Raises NotThere where the library has none that runs alone."""
    reason: Exception | None = None
    kind = _library().CONFIG_MAPPING[name]
    for scale, chosen in itertools.product(SCALES, _model_classes(kind)):
        try:
            model = _built(kind, chosen, *scale)
        except Exception as error:  # the library's own, of sizes that do not go together: the next scale is tried
            reason = reason or error
            continue
        for inputs in _inputs(model):
            try:
                with torch.no_grad():
                    wanted = tensors(model(**inputs))
                if wanted and all(w.isfinite().all() for w in wanted):
                    return model, inputs, wanted
                reason = reason or ValueError("its results are not finite")
            except Exception as error:  # eager torch's, of inputs that the model does not take
                reason = reason or error
    raise NotThere(f"the library cannot build or run it so: {type(reason).__name__}: {reason}") from reason


def tensors(output) -> list[torch.Tensor]:
    """The tensors of a model's output, without those of caches."""
    return [leaf for leaf in _pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]


def check_forward(name: str) -> bool:
    """A call of a model against torch. True where the library generates with it."""
    model, inputs, wanted = built(name)
    with torch.no_grad():
        _close(tensors(torch.compile(model, backend="hloom")(**inputs)), wanted)
    return _can_generate(model)


def check_generate(name: str, cache: str) -> None:
    """Tokens and logits that a model generates with a "dynamic" or "static" cache, against torch."""
    model, inputs, _ = built(name)
    given = {k: v for k, v in inputs.items() if k != "decoder_input_ids"}
    if not _can_generate(model) or not _generates(model, given, cache):
        raise NotThere("the library does not generate so with this model")


def _can_generate(model) -> bool:
    return hasattr(model, "generate") and model.can_generate()


def _generates(model, given: dict[str, torch.Tensor], cache: str) -> bool:
    """Compares three steps: the first reads the prompt. False where the library has no such cache for a model."""
    options = {
        "max_new_tokens": 3, "min_new_tokens": 3, "do_sample": False, "pad_token_id": 0, "output_logits": True,
        "return_dict_in_generate": True, "cache_implementation": cache, "disable_compile": True,
    }  # fmt: skip
    if getattr(model.config, "is_encoder_decoder", False):
        options["decoder_start_token_id"] = 1
    torch.manual_seed(0)
    try:
        expected = model.generate(**given, **options)
        logits = list(expected.logits)
    except Exception:  # eager torch itself: it has no such cache, or cannot generate
        return False
    torch._dynamo.reset()
    torch.manual_seed(0)
    plain, model.forward = model.forward, torch.compile(model.forward, backend="hloom")
    try:
        found = model.generate(**given, **options)
    finally:
        model.forward = plain
    try:
        _close(list(found.logits), logits)
        assert torch.equal(found.sequences, expected.sequences), "other tokens"
    except AssertionError as error:
        error.add_note(f"with a {cache} cache")
        raise
    return True


def _close(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> None:
    assert len(found) == len(wanted), f"{len(found)} results for {len(wanted)}"
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, **TOLERANCE)


def main() -> int:
    """Says of each architecture whose name contains the given word whether it can be built, and why not."""
    counts = dict.fromkeys(("built", "not there"), 0)
    for name in architectures():
        if all(word not in name for word in sys.argv[1:] or [""]):
            continue
        try:
            model, inputs, _ = built(name)
            sizes = ", ".join(f"{k} {tuple(v.shape)}" for k, v in inputs.items())
            found, text = "built", f"{type(model).__name__}({sizes}), {sum(p.numel() for p in model.parameters()):,}"
        except NotThere as error:
            found, text = "not there", " ".join(str(error).split())[:300]
        counts[found] += 1
        print(f"{found}: {name}: {text}", flush=True)
    print(counts)
    return 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    raise SystemExit(main())
