"""Configs of tiny models. One starts as its neighbour's and changes a few lines.

Sizes are no multiples of 64, and no more than a fixture of about 150 KB needs.
"""

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
QWEN3_MOE = QWEN3 | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "decoder_sparse_step": 1,
    "head_dim": 8,
    "hidden_size": 36,
    "intermediate_size": 44,
    "mlp_only_layers": [],
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 20,
    "norm_topk_prob": True,
    "num_experts": 7,
    "num_experts_per_tok": 3,
    "output_router_logits": False,
    "router_aux_loss_coef": 0.001,
    "tie_word_embeddings": False,
    "vocab_size": 120,
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
MIXTRAL = MISTRAL | {
    "architectures": ["MixtralForCausalLM"],
    "head_dim": 8,
    "hidden_size": 36,
    "intermediate_size": 28,
    "model_type": "mixtral",
    "num_attention_heads": 4,
    "num_experts_per_tok": 2,
    "num_local_experts": 5,
    "output_router_logits": False,
    "rope_theta": 1e6,
    "router_aux_loss_coef": 0.02,
    "router_jitter_noise": 0.0,
    "vocab_size": 120,
}


def spelled_new(config: dict) -> dict:
    """The transformers 5 spelling: rope_parameters holds rope_theta too, and torch_dtype is dtype."""
    config = dict(config)
    rope = {"rope_theta": config.pop("rope_theta")} | (config.pop("rope_scaling") or {"rope_type": "default"})
    return config | {"rope_parameters": rope, "dtype": config.pop("torch_dtype")}


# Every second layer would have experts, but one of them is listed as one without.
QWEN3_MOE_MIXED = spelled_new(QWEN3_MOE) | {
    "decoder_sparse_step": 2,
    "mlp_only_layers": [3],
    "norm_topk_prob": False,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 4,
    "num_local_experts": 5,
}
del QWEN3_MOE_MIXED["num_experts"]
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


QWEN3_5 = LLAMA1 | {
    "architectures": ["Qwen3_5ForCausalLM"],
    "attention_bias": False,
    "attn_output_gate": True,
    "full_attention_interval": 3,
    "head_dim": 16,
    "hidden_size": 28,
    "intermediate_size": 36,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 12,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_value_head_dim": 20,
    "mamba_ssm_dtype": "float32",
    "model_type": "qwen3_5_text",
    "mtp_num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "partial_rotary_factor": 0.25,
    "rope_parameters": {
        "mrope_interleaved": True,
        "mrope_section": [1, 1, 0],
        "partial_rotary_factor": 0.25,
        "rope_theta": 10000000.0,
        "rope_type": "default",
    },
    "tie_word_embeddings": True,
    "vocab_size": 120,
}


GPT_OSS = LLAMA1 | {
    "architectures": ["GptOssForCausalLM"],
    "attention_bias": True,
    "experts_per_token": 2,
    "head_dim": 8,
    "hidden_size": 36,
    "initial_context_length": 32,
    "intermediate_size": 20,
    "model_type": "gpt_oss",
    "num_attention_heads": 4,
    "num_experts_per_tok": 2,
    "num_key_value_heads": 2,
    "num_local_experts": 5,
    "output_router_logits": False,
    "rms_norm_eps": 1e-5,
    "rope_scaling": {
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "factor": 8.0,
        "original_max_position_embeddings": 32,
        "rope_type": "yarn",
        "truncate": False,
    },
    "rope_theta": 5000.0,
    "router_aux_loss_coef": 0.9,
    "sliding_window": 20,
    "swiglu_limit": 7.0,
    "tie_word_embeddings": False,
    "vocab_size": 120,
}
# Blocks of 32 numbers: sizes are multiples of it. The other layer slides.
GPT_OSS_MXFP4 = spelled_new(
    {k: v for k, v in GPT_OSS.items() if k not in ("experts_per_token", "initial_context_length", "swiglu_limit")}
) | {
    "head_dim": 16,
    "hidden_size": 64,
    "intermediate_size": 32,
    "layer_types": ["full_attention", "sliding_attention"],
    "num_experts_per_tok": 3,
    "num_local_experts": 4,
}


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
