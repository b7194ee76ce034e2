"""The table of tiny models that make_families.py makes. A config starts as its neighbour's and changes a few lines.

Sizes are no multiples of 64, and no more than a fixture of about 150 KB needs.
"""

import dataclasses

LLAMA1 = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 56,
    "initializer_range": 0.02,
    "intermediate_size": 52,
    "max_position_embeddings": 256,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "rms_norm_eps": 1e-6,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 152,
}
LLAMA = LLAMA1 | {
    "attention_bias": False,
    "hidden_size": 48,
    "intermediate_size": 100,
    "mlp_bias": False,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "vocab_size": 163,
}
TINYLLAMA = LLAMA | {
    "hidden_size": 32,
    "intermediate_size": 44,
    "num_attention_heads": 8,
    "num_key_value_heads": 1,
    "pretraining_tp": 1,
    "vocab_size": 120,
}
SMOLLM2 = LLAMA | {
    "hidden_size": 36,
    "intermediate_size": 44,
    "is_llama_config": True,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "pad_token_id": 2,
    "rope_interleaved": False,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "vocab_size": 120,
}
LLAMA3_ROPE = {
    "factor": 8.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 64,
    "rope_type": "llama3",
}
LLAMA3 = LLAMA | {
    "eos_token_id": [2, 3],
    "head_dim": 16,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "rope_scaling": LLAMA3_ROPE,
    "tie_word_embeddings": True,
}
QWEN2 = LLAMA1 | {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "bos_token_id": 1,
    "hidden_size": 56,
    "intermediate_size": 92,
    "max_window_layers": 0,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rope_theta": 1000000.0,
    "sliding_window": 16,  # without use_sliding_window it means nothing
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 171,
}
QWEN3 = QWEN2 | {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "attention_bias": False,
    "head_dim": 24,
    "hidden_size": 44,
    "intermediate_size": 84,
    "rope_scaling": None,
    "sliding_window": None,
}
MISTRAL = LLAMA | {
    "architectures": ["MistralForCausalLM"],
    "model_type": "mistral",
    "head_dim": None,
    "intermediate_size": 84,
    "sliding_window": None,
}
for unknown_to_mistral in ("attention_bias", "mlp_bias", "rope_scaling"):
    del MISTRAL[unknown_to_mistral]


def spelled_new(config: dict) -> dict:
    """The transformers 5 spelling: rope_parameters holds rope_theta too, and torch_dtype is dtype."""
    config = dict(config)
    rope = {"rope_theta": config.pop("rope_theta")} | (config.pop("rope_scaling") or {"rope_type": "default"})
    return config | {"rope_parameters": rope, "dtype": config.pop("torch_dtype")}


GRANITE = LLAMA | {
    "architectures": ["GraniteForCausalLM"],
    "attention_multiplier": 0.4,
    "embedding_multiplier": 6.0,
    "hidden_size": 36,
    "intermediate_size": 44,
    "logits_scaling": 1.6,
    "model_type": "granite",
    "residual_multiplier": 0.6,
    "vocab_size": 120,
}
OLMO2 = LLAMA1 | {
    "architectures": ["Olmo2ForCausalLM"],
    "attention_bias": False,
    "hidden_size": 32,
    "intermediate_size": 44,
    "model_type": "olmo2",
    "num_key_value_heads": 2,
    "rope_scaling": None,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "vocab_size": 120,
}
SMOLLM3 = LLAMA | {
    "architectures": ["SmolLM3ForCausalLM"],
    "hidden_size": 36,
    "intermediate_size": 36,
    "max_window_layers": 28,
    "model_type": "smollm3",
    "no_rope_layer_interval": 2,
    "num_hidden_layers": 3,
    "pad_token_id": 0,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 120,
}
PHI3 = LLAMA1 | {
    "architectures": ["Phi3ForCausalLM"],
    "attention_bias": False,
    "embd_pdrop": 0.0,
    "hidden_size": 32,
    "intermediate_size": 44,
    "model_type": "phi3",
    "num_key_value_heads": 2,
    "original_max_position_embeddings": 256,
    "pad_token_id": 0,
    "resid_pdrop": 0.0,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "sliding_window": 20,
    "tie_word_embeddings": False,
    "vocab_size": 120,
}
GEMMA2 = LLAMA1 | {
    "architectures": ["Gemma2ForCausalLM"],
    "attention_bias": False,
    "attn_logit_softcapping": 3.0,
    "bos_token_id": 2,
    "cache_implementation": "hybrid",
    "eos_token_id": 3,
    "final_logit_softcapping": 1.5,
    "head_dim": 8,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 28,
    "intermediate_size": 44,
    "model_type": "gemma2",
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "query_pre_attn_scalar": 12,
    "rope_theta": 10000.0,
    "sliding_window": 20,
    "tie_word_embeddings": False,  # a random tied one would repeat the token that it sees
    "vocab_size": 120,
}
GEMMA3 = GEMMA2 | {
    "architectures": ["Gemma3ForCausalLM"],
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "intermediate_size": 36,
    "model_type": "gemma3_text",
    "num_hidden_layers": 3,
    "num_key_value_heads": 1,
    "rope_local_base_freq": 10000.0,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    "rope_theta": 1000000.0,
    "sliding_window_pattern": 2,
}
del GEMMA3["hidden_act"]
HUNYUAN = LLAMA | {
    "architectures": ["HunYuanDenseV1ForCausalLM"],
    "head_dim": 8,
    "hidden_size": 28,
    "intermediate_size": 44,
    "model_type": "hunyuan_v1_dense",
    "num_attention_heads": 4,
    "rope_scaling": {
        "alpha": 1000.0,
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 0.0,
        "type": "dynamic",
    },
    "tie_word_embeddings": True,
    "use_qk_norm": True,
    "vocab_size": 120,
}
del HUNYUAN["mlp_bias"]


def by_layer_type(config: dict) -> dict:
    """Gemma 3 in the transformers 5 spelling: layer_types, and rope_parameters by layer type."""
    config = {k: v for k, v in config.items() if not k.startswith("rope_") and k != "sliding_window_pattern"}
    return config | {
        "_sliding_window_pattern": 6,
        "dtype": config.pop("torch_dtype"),
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {"rope_theta": 300000.0, "rope_type": "default"},
            "sliding_attention": {"rope_theta": 5000.0, "rope_type": "default"},
        },
        "use_bidirectional_attention": False,
    }


VISION = {
    "head_dim": 8,
    "hidden_size": 8,
    "image_size": 8,
    "intermediate_size": 8,
    "num_attention_heads": 1,
    "num_hidden_layers": 1,
    "patch_size": 4,
}


def beside_vision(text: dict, outer: dict) -> dict:
    """The folder of a model that sees: the language model's fields in text_config."""
    shared = {k: text[k] for k in ("eos_token_id", "tie_word_embeddings", "torch_dtype")}
    inner = {k: v for k, v in text.items() if k not in (*shared, "architectures")}
    return shared | {"text_config": inner} | outer


GEMMA3_VISION = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "boi_token_index": 4,
    "eoi_token_index": 5,
    "image_token_index": 6,
    "initializer_range": 0.02,
    "mm_tokens_per_image": 4,
    "model_type": "gemma3",
    "vision_config": VISION | {"model_type": "siglip_vision_model", "vision_use_head": False},
}
MISTRAL3_VISION = {
    "architectures": ["Mistral3ForConditionalGeneration"],
    "image_token_index": 6,
    "model_type": "mistral3",
    "multimodal_projector_bias": False,
    "projector_hidden_act": "gelu",
    "spatial_merge_size": 2,
    "vision_config": VISION | {"model_type": "pixtral"},
    "vision_feature_layer": -1,
}
MINISTRAL3 = MISTRAL | {
    "architectures": ["Ministral3ForCausalLM"],
    "head_dim": 8,
    "hidden_size": 32,
    "intermediate_size": 44,
    "model_type": "ministral3",
    "num_attention_heads": 4,
    "rope_parameters": {
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "factor": 16.0,
        "llama_4_scaling_beta": 0.8,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 16,
        "rope_theta": 1000000.0,
        "rope_type": "yarn",
        "type": "yarn",
    },
    "vocab_size": 120,
}
del MINISTRAL3["rope_theta"]


LINEAR = {"factor": 4.0, "type": "linear"}
DYNAMIC = {"factor": 2.0, "type": "dynamic"}
YARN = {"factor": 4.0, "original_max_position_embeddings": 32, "type": "yarn"}
YARN_MSCALE = {
    "factor": 8.0,
    "mscale": 1.2,
    "mscale_all_dim": 0.4,
    "original_max_position_embeddings": 32,
    "rope_type": "yarn",
    "truncate": False,
}
LONGROPE = {
    "long_factor": [1.5, 3.0, 5.5, 8.0],
    "short_factor": [1.0, 1.1, 1.4, 1.9],
    "type": "longrope",
}
LONGROPE_PARTIAL = {
    "attention_factor": 1.25,
    "long_factor": [2.0, 9.0],
    "rope_type": "longrope",
    "short_factor": [1.0, 1.7],
}
YARN_ATTENTION_FACTOR = {
    "attention_factor": 1.3,
    "beta_fast": 16.0,
    "beta_slow": 2.0,
    "factor": 8.0,
    "original_max_position_embeddings": 32,
    "rope_type": "yarn",
}


INT8 = {"num_bits": 8, "type": "int", "symmetric": True}
GROUP = {
    "input_activations": INT8 | {"dynamic": True, "observer": None, "strategy": "token"},
    "output_activations": None,
    "targets": ["Linear"],
    "weights": INT8 | {"dynamic": False, "group_size": None, "observer": "minmax", "strategy": "channel"},
}
QUANTISED = {
    "config_groups": {"group_0": GROUP},
    "format": "int-quantized",
    "ignore": ["lm_head"],
    "kv_cache_scheme": None,
    "quant_method": "compressed-tensors",
    "quantization_status": "compressed",
}
QUANTISED_NEW = QUANTISED | {
    "config_groups": {"group_0": GROUP | {"format": "int-quantized", "targets": [r"re:.*_proj$"]}},
    "ignore": ["re:lm_h.*d$", r"re:.*layers\.1\.mlp\.down_proj", "model.layers.0.self_attn.o_proj"],
    "sparsity_config": {},
}
del QUANTISED_NEW["format"]


@dataclasses.dataclass(frozen=True)
class Codes:
    """A checkpoint with int8 codes: its quantization_config and how it stores scales."""

    config: dict
    scale: str = "bfloat16"
    scale_axes: int = 2


@dataclasses.dataclass(frozen=True)
class Case:
    config: dict
    long_prompt: int = 77  # tokens
    shards: int = 1
    dtypes: tuple[str, ...] = ()  # of the tensors in turn, where not all have the config's
    codes: Codes | None = None
    notes: str = ""
    use_cache: bool = True  # for the greedy continuations
    jitter: str = "embed_tokens"  # parts of the names of weights that a rounding step may move
    norm_mean: float = 1.0  # of the norms' weights; Gemma stores them less one
    published_names: bool = False  # of tensors beside a vision model: transformers has changed them since


def heads(query: int, key_value: int, dim: int) -> dict:
    return {"num_attention_heads": query, "num_key_value_heads": key_value, "head_dim": dim}


def mlp(intermediate: int) -> dict:
    return {"intermediate_size": intermediate}


CASES = {
    "llama": Case(LLAMA1),
    "llama_gqa": Case(LLAMA | {"max_position_embeddings": 512}, long_prompt=300),
    "tinyllama": Case(TINYLLAMA, long_prompt=45),
    "smollm2": Case(SMOLLM2, long_prompt=45),
    "llama3_rope_scaling": Case(LLAMA3),
    "llama3_rope_parameters": Case(spelled_new(LLAMA3)),
    "llama_linear": Case(LLAMA | {"rope_scaling": LINEAR}),
    "llama_dynamic": Case(
        LLAMA | heads(3, 3, 16) | mlp(84) | {"max_position_embeddings": 64, "rope_scaling": DYNAMIC},
        notes="As transformers' generate() with a cache: all positions of a prompt are rotated with the base for "
        "max(prompt length, max_position_embeddings), each later token with the base for the length that it makes, "
        "and a key keeps its rotation. The long prompt exceeds max_position_embeddings (64).",
    ),
    "llama_yarn_mscale": Case(LLAMA | heads(3, 1, 16) | {"rope_scaling": YARN_MSCALE}),
    "llama_bias": Case(LLAMA | heads(3, 3, 20) | mlp(76) | {"attention_bias": True, "mlp_bias": True}),
    "llama_sharded": Case(LLAMA | mlp(60) | {"num_hidden_layers": 3}, shards=3),
    "llama_f16": Case(
        LLAMA | {"torch_dtype": "float16"},
        notes="Mode none: matrices rounded to bf16, norms as stored. w8a8: codes from the stored fp16 values.",
    ),
    "llama_f32": Case(
        LLAMA | mlp(68) | {"hidden_size": 36, "torch_dtype": "float32"},
        notes="Mode none: matrices rounded to bf16, norms as stored. w8a8: codes from the stored fp32 values.",
    ),
    "llama_mixed": Case(
        LLAMA | mlp(76),
        dtypes=("bfloat16", "float32", "float16", "bfloat16"),
        notes="Tensors of all three types in one file, each taken as stored.",
    ),
    "llama_codes": Case(
        LLAMA | mlp(60) | {"torch_dtype": "float16"},
        shards=2,
        codes=Codes(QUANTISED_NEW, "float32", 1),
        notes="int8 codes with fp32 scales [n], chosen by expressions; three matrices have none, two of them linear "
        "layers that w8a8 quantises from the stored fp16 values.",
    ),
    "qwen2": Case(QWEN2),
    "qwen2_window": Case(
        QWEN2
        | mlp(84)
        | {"hidden_size": 40, "num_hidden_layers": 3, "max_window_layers": 1, "use_sliding_window": True}
    ),
    "qwen2_yarn": Case(
        QWEN2 | {"max_position_embeddings": 32, "rope_scaling": YARN},
        notes="max_position_embeddings stays at the trained length, as Qwen2.5's model cards advise; the context that "
        "yarn serves is factor * original_max_position_embeddings = 128.",
    ),
    "qwen3": Case(QWEN3),
    "qwen3_yarn": Case(spelled_new(QWEN3 | {"rope_scaling": YARN_ATTENTION_FACTOR})),
    "qwen3_codes": Case(
        QWEN3,
        codes=Codes(QUANTISED),
        notes="int8 codes in [-128, 127] with bf16 scales [n, 1], taken as they are. Mode none: code * scale in fp32, "
        "rounded to bf16.",
    ),
    "mistral": Case(MISTRAL),
    "mistral_window": Case(
        MISTRAL | heads(5, 1, 10) | {"max_position_embeddings": 512, "sliding_window": 20}, long_prompt=300
    ),
    "granite": Case(GRANITE, long_prompt=45),
    "granite_bias": Case(
        spelled_new(
            GRANITE
            | heads(3, 1, 12)
            | mlp(36)
            | {
                "attention_bias": True,
                "embedding_multiplier": 1.5,
                "logits_scaling": 0.4,
                "mlp_bias": True,
                "tie_word_embeddings": True,
            }
        ),
        long_prompt=45,
        notes="The biases of o_proj and down_proj are under residual_multiplier too.",
    ),
    "olmo2": Case(
        OLMO2, long_prompt=45, jitter="norm", notes="Layer 0 quantises embeddings as they are: those bits are exact."
    ),
    "smollm3": Case(
        SMOLLM3, long_prompt=45, notes="Layer 1 does not know positions: no_rope_layer_interval 2, 1 means with rope."
    ),
    "smollm3_window": Case(
        spelled_new(SMOLLM3 | {"no_rope_layers": [0, 1, 0, 1], "sliding_window": 20, "use_sliding_window": True}),
        long_prompt=45,
        notes="no_rope_layers may be longer than the model. Layers that do not know positions slide.",
    ),
    "phi3": Case(PHI3 | {"partial_rotary_factor": 0.5}, long_prompt=45),
    "phi3_longrope": Case(
        PHI3 | {"original_max_position_embeddings": 64, "rope_scaling": LONGROPE, "sliding_window": 300},
        notes="The long prompt takes the long factors from its first token on. The short prompt's continuation stays "
        "below original_max_position_embeddings (64).",
    ),
    "phi3_crossing": Case(
        spelled_new(
            PHI3
            | mlp(36)
            | {
                "original_max_position_embeddings": 20,
                "partial_rotary_factor": 0.5,
                "rope_scaling": LONGROPE_PARTIAL,
                "sliding_window": None,
            }
        ),
        long_prompt=45,
        use_cache=False,
        notes="When the short prompt's continuation outgrows original_max_position_embeddings (20), all of it is "
        "evaluated anew with the long factors. transformers' generate() drops its cache there too, but since 5.12 at "
        "the latest keeps only the last token of the input beside it: recorded without a cache.",
    ),
    "gemma2": Case(GEMMA2, long_prompt=45, norm_mean=0.0),
    "gemma3": Case(GEMMA3, long_prompt=45, norm_mean=0.0),
    "gemma3_layer_types": Case(
        by_layer_type(GEMMA3 | {"final_logit_softcapping": 1.5}), long_prompt=45, norm_mean=0.0
    ),
    "gemma3_beside_vision": Case(
        beside_vision(GEMMA3, GEMMA3_VISION),
        long_prompt=45,
        norm_mean=0.0,
        published_names=True,
        notes="The vision tower and its projector are there, of zeros.",
    ),
    "hunyuan": Case(HUNYUAN, long_prompt=45),
    "mistral_beside_vision": Case(
        beside_vision(MISTRAL | heads(4, 2, 8) | mlp(44) | {"hidden_size": 32, "vocab_size": 120}, MISTRAL3_VISION),
        long_prompt=45,
        published_names=True,
        notes="The vision tower and its projector are there, of zeros.",
    ),
    "ministral3": Case(MINISTRAL3, long_prompt=45, notes="The factor of the queries grows every 16 positions."),
}
