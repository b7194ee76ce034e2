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
YARN_ATTENTION_FACTOR = {
    "attention_factor": 1.3,
    "beta_fast": 16.0,
    "beta_slow": 2.0,
    "factor": 8.0,
    "original_max_position_embeddings": 32,
    "rope_type": "yarn",
}


@dataclasses.dataclass(frozen=True)
class Case:
    config: dict
    long_prompt: int = 77  # tokens
    shards: int = 1
    notes: str = ""


def heads(query: int, key_value: int, dim: int) -> dict:
    return {"num_attention_heads": query, "num_key_value_heads": key_value, "head_dim": dim}


def mlp(intermediate: int) -> dict:
    return {"intermediate_size": intermediate}


CASES = {
    "llama": Case(LLAMA1),
    "llama_gqa": Case(LLAMA | {"max_position_embeddings": 512}, long_prompt=300),
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
    "mistral": Case(MISTRAL),
    "mistral_window": Case(
        MISTRAL | heads(5, 1, 10) | {"max_position_embeddings": 512, "sliding_window": 20}, long_prompt=300
    ),
}
