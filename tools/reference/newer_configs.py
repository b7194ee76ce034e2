"""Configs of tiny models, as in configs.py: of families that came later."""

from configs import GEMMA2, GRANITE, HUNYUAN, LLAMA, LLAMA3_ROPE, OLMO2, QWEN2, QWEN3, QWEN3_5, SMOLLM2, spelled_new

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
OLMOE = OLMO2 | {
    "architectures": ["OlmoeForCausalLM"],
    "clip_qkv": None,
    "intermediate_size": 20,
    "model_type": "olmoe",
    "norm_topk_prob": False,
    "num_experts": 7,
    "num_experts_per_tok": 3,
    "output_router_logits": False,
    "pad_token_id": 1,
    "rope_theta": 10000.0,
    "router_aux_loss_coef": 0.01,
}
GEMMA = {
    k: v
    for k, v in GEMMA2.items()
    if k not in ("cache_implementation", "hidden_activation", "query_pre_attn_scalar", "sliding_window")
    and "softcapping" not in k
} | {
    "architectures": ["GemmaForCausalLM"],
    "hidden_act": "gelu",
    "model_type": "gemma",
    "num_key_value_heads": 1,
    "rope_scaling": None,
}
VAULTGEMMA = spelled_new(
    {k: v for k, v in GEMMA2.items() if k not in ("cache_implementation", "hidden_act")}
    | {
        "architectures": ["VaultGemmaForCausalLM"],
        "layer_types": ["sliding_attention", "full_attention"],
        "model_type": "vaultgemma",
        "num_key_value_heads": 4,
        "rope_scaling": None,
    }
)
SEED_OSS = {k: v for k, v in LLAMA.items() if k != "rope_scaling"} | {
    "architectures": ["SeedOssForCausalLM"],
    "attention_bias": True,
    "attention_dropout": 0.1,
    "attention_out_bias": False,
    "head_dim": 12,
    "hidden_size": 32,
    "intermediate_size": 44,
    "model_type": "seed_oss",
    "num_attention_heads": 4,
    "pad_token_id": 1,
    "pretraining_tp": 1,
    "residual_dropout": 0.1,
    "rope_scaling": {"rope_type": "default"},
    "rope_theta": 10000000.0,
    "vocab_size": 120,
}
CWM = {k: v for k, v in LLAMA.items() if k != "attention_bias"} | {
    "architectures": ["CwmForCausalLM"],
    "head_dim": 12,
    "hidden_size": 32,
    "intermediate_size": 44,
    "model_type": "cwm",
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "rope_scaling": LLAMA3_ROPE,
    "rope_theta": 1000000.0,
    "sliding_window": 20,
    "vocab_size": 120,
}
QWEN3_VL = {k: v for k, v in QWEN3.items() if k not in ("max_window_layers", "sliding_window", "use_sliding_window")} | {
    "model_type": "qwen3_vl_text",
    "rope_scaling": {"mrope_interleaved": True, "mrope_section": [6, 3, 3], "rope_type": "default"},
    "rope_theta": 5000000,
}
SMOLVLM_TEXT = SMOLLM2 | {
    "pixel_shuffle_factor": 4,
    "qk_layer_norms": False,
    "tie_word_embeddings": False,
    "use_resampler": False,
}
GRANITE_MOE = {k: v for k, v in GRANITE.items() if k != "mlp_bias"} | {
    "architectures": ["GraniteMoeForCausalLM"],
    "intermediate_size": 20,
    "model_type": "granitemoe",
    "num_experts_per_tok": 3,
    "num_local_experts": 5,
    "output_router_logits": False,
    "router_aux_loss_coef": 0.001,
}
GRANITE_MOE_HYBRID = {k: v for k, v in GRANITE.items() if k != "mlp_bias"} | {
    "architectures": ["GraniteMoeHybridForCausalLM"],
    "embedding_multiplier": 1.5,
    "init_method": "mup",
    "layer_types": ["attention", "attention"],
    "logits_scaling": 0.4,
    "mamba_chunk_size": 256,
    "mamba_conv_bias": True,
    "mamba_d_conv": 4,
    "mamba_d_head": 18,
    "mamba_d_state": 8,
    "mamba_expand": 2,
    "mamba_n_groups": 1,
    "mamba_n_heads": 4,
    "mamba_proj_bias": False,
    "model_type": "granitemoehybrid",
    "normalization_function": "rmsnorm",
    "num_experts_per_tok": 0,
    "num_local_experts": 0,
    "output_router_logits": False,
    "position_embedding_type": "rope",
    "router_aux_loss_coef": 0.01,
    "shared_intermediate_size": 28,
    "tie_word_embeddings": True,
}
ERNIE4_5 = {k: v for k, v in LLAMA.items() if k not in ("attention_bias", "mlp_bias", "rope_scaling")} | {
    "architectures": ["Ernie4_5_ForCausalLM"],
    "head_dim": 12,
    "hidden_size": 32,
    "intermediate_size": 44,
    "model_type": "ernie4_5",
    "num_attention_heads": 4,
    "pad_token_id": 0,
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "use_bias": False,
    "vocab_size": 120,
}
HELIUM = {k: v for k, v in LLAMA.items() if k != "rope_scaling"} | {
    "architectures": ["HeliumForCausalLM"],
    "head_dim": 16,
    "intermediate_size": 44,
    "model_type": "helium",
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "pad_token_id": 3,
    "rms_norm_eps": 1e-08,
    "rope_theta": 100000.0,
    "vocab_size": 120,
}
GLM = {k: v for k, v in LLAMA.items() if k not in ("mlp_bias", "rope_scaling")} | {
    "architectures": ["GlmForCausalLM"],
    "attention_bias": True,
    "eos_token_id": [2, 3],
    "head_dim": 16,
    "hidden_size": 40,
    "intermediate_size": 44,
    "model_type": "glm",
    "num_attention_heads": 4,
    "pad_token_id": 2,
    "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1.5625e-07,
    "vocab_size": 120,
}
# GLM-edge's: all of a head is rotated.
GLM_EDGE = spelled_new(GLM | {"rope_scaling": {"partial_rotary_factor": 1.0, "rope_type": "default"}}) | {
    "attention_bias": False,
    "head_dim": 12,
}
GLM4 = GLM | {
    "architectures": ["Glm4ForCausalLM"],
    "model_type": "glm4",
    "rms_norm_eps": 1e-05,
}
BITNET_MODEL = {k: v for k, v in LLAMA.items() if k != "rope_scaling"} | {
    "architectures": ["BitNetForCausalLM"],
    "head_dim": 32,
    "hidden_act": "relu2",
    "hidden_size": 128,
    "intermediate_size": 256,
    "model_type": "bitnet",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rope_theta": 500000.0,
    "vocab_size": 120,
}
ARCEE = LLAMA | {
    "architectures": ["ArceeForCausalLM"],
    "head_dim": 12,
    "hidden_act": "relu2",
    "hidden_size": 32,
    "intermediate_size": 76,
    "model_type": "arcee",
    "num_attention_heads": 4,
    "rope_scaling": {
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "factor": 4.0,
        "mscale": 1.0,
        "original_max_position_embeddings": 64,
        "rope_type": "yarn",
    },
    "vocab_size": 120,
}
APERTUS = {k: v for k, v in LLAMA.items() if k != "rope_scaling"} | {
    "architectures": ["ApertusForCausalLM"],
    "hidden_act": "xielu",
    "hidden_size": 32,
    "intermediate_size": 76,
    "model_type": "apertus",
    "num_attention_heads": 4,
    "pad_token_id": 3,
    "post_norm": False,
    "qk_norm": True,
    "rope_scaling": LLAMA3_ROPE | {"type": "llama3"},
    "rope_theta": 12000000,
    "vocab_size": 120,
}
NEMOTRON = {k: v for k, v in LLAMA.items() if k != "rms_norm_eps"} | {
    "architectures": ["NemotronForCausalLM"],
    "bos_token_id": 2,
    "eos_token_id": 3,
    "head_dim": 16,
    "hidden_act": "relu2",
    "hidden_size": 40,
    "intermediate_size": 76,
    "model_type": "nemotron",
    "norm_eps": 1e-05,
    "num_attention_heads": 4,
    "partial_rotary_factor": 0.5,
    "vocab_size": 120,
}
QWEN2_MOE = QWEN2 | {
    "architectures": ["Qwen2MoeForCausalLM"],
    "decoder_sparse_step": 1,
    "hidden_size": 40,
    "intermediate_size": 52,
    "model_type": "qwen2_moe",
    "moe_intermediate_size": 20,
    "norm_topk_prob": False,
    "num_experts": 7,
    "num_experts_per_tok": 3,
    "output_router_logits": False,
    "router_aux_loss_coef": 0.001,
    "shared_expert_intermediate_size": 44,
    "tie_word_embeddings": False,
    "vocab_size": 120,
}
GRANITE_MOE_SHARED = GRANITE_MOE | {
    "architectures": ["GraniteMoeSharedForCausalLM"],
    "model_type": "granitemoeshared",
    "shared_intermediate_size": 28,
}
HUNYUAN_MOE = HUNYUAN | {
    "architectures": ["HunYuanMoEV1ForCausalLM"],
    "intermediate_size": 20,
    "model_type": "hunyuan_v1_moe",
    "moe_intermediate_size": [20, 20],
    "moe_layer_num_skipped": 0,
    "moe_topk": [3, 3],
    "norm_topk_prob": True,
    "num_experts": 7,
    "num_shared_expert": [1, 1],
    "use_mixed_mlp_moe": True,
}
GLM4_MOE = {k: v for k, v in LLAMA.items() if k != "mlp_bias"} | {
    "architectures": ["Glm4MoeForCausalLM"],
    "attention_bias": True,
    "eos_token_id": [2, 3],
    "first_k_dense_replace": 1,
    "head_dim": 16,
    "hidden_size": 36,
    "intermediate_size": 52,
    "model_type": "glm4_moe",
    "moe_intermediate_size": 20,
    "n_group": 1,
    "n_routed_experts": 7,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 4,
    "num_experts_per_tok": 3,
    "num_nextn_predict_layers": 1,
    "pad_token_id": 2,
    "partial_rotary_factor": 0.5,
    "routed_scaling_factor": 1.5,
    "topk_group": 1,
    "use_qk_norm": False,
    "vocab_size": 120,
}
QWEN3_5_MOE = {k: v for k, v in QWEN3_5.items() if k != "intermediate_size"} | {
    "architectures": ["Qwen3_5MoeForCausalLM"],
    "model_type": "qwen3_5_moe_text",
    "moe_intermediate_size": 20,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "output_router_logits": False,
    "router_aux_loss_coef": 0.001,
    "shared_expert_intermediate_size": 24,
}
