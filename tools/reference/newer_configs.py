"""Configs of tiny models, as in configs.py: of families that came later."""

from configs import LLAMA, LLAMA3_ROPE, OLMO2

EXAONE4 = LLAMA | {
    "architectures": ["Exaone4ForCausalLM"],
    "head_dim": 8,
    "hidden_size": 32,
    "intermediate_size": 44,
    "layer_types": ["full_attention", "full_attention"],
    "model_type": "exaone4",
    "num_attention_heads": 4,
    "pad_token_id": 0,
    "rope_scaling": LLAMA3_ROPE,
    "rope_theta": 1000000,
    "sliding_window": None,
    "sliding_window_pattern": None,
    "tie_word_embeddings": True,
    "vocab_size": 120,
}
for unknown_to_exaone4 in ("attention_bias", "mlp_bias"):
    del EXAONE4[unknown_to_exaone4]
EXAONE4_HYBRID = EXAONE4 | {
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "num_hidden_layers": 3,
    "num_key_value_heads": 1,
    "sliding_window": 20,
    "sliding_window_pattern": "LGL",
    "tie_word_embeddings": False,
}
OLMO3 = OLMO2 | {
    "architectures": ["Olmo3ForCausalLM"],
    "layer_types": ["sliding_attention", "full_attention"],
    "model_type": "olmo3",
    "pad_token_id": 1,
    "rope_scaling": {
        "attention_factor": 1.2079441541679836,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "factor": 8.0,
        "original_max_position_embeddings": 32,
        "rope_type": "yarn",
    },
    "sliding_window": 20,
}
OLMO3_PATTERN = {k: v for k, v in OLMO3.items() if k not in ("layer_types", "rope_scaling", "rope_theta")} | {
    "num_hidden_layers": 4,
    "rope_parameters": {
        "full_attention": OLMO3["rope_scaling"] | {"rope_theta": 20000.0},
        "sliding_attention": {"rope_theta": 5000.0, "rope_type": "default"},
    },
}
