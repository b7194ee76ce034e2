"""Tiny models of Gemma 4: other heads in full layers, experts beside the mlp, embeddings of each layer."""

from case import Case, heads

SLIDING, FULL = "sliding_attention", "full_attention"

# As the 31B model: keys of full layers are values, too.
DENSE = heads(4, 2, 8) | {
    "architectures": ["Gemma4ForCausalLM"],
    "attention_bias": False,
    "attention_k_eq_v": True,
    "bos_token_id": 2,
    "dtype": "bfloat16",
    "enable_moe_block": False,
    "eos_token_id": 1,
    "final_logit_softcapping": 1.5,
    "global_head_dim": 16,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 28,
    "hidden_size_per_layer_input": 0,
    "initializer_range": 0.02,
    "intermediate_size": 36,
    "layer_types": [SLIDING, SLIDING, FULL, SLIDING, FULL],
    "max_position_embeddings": 512,
    "model_type": "gemma4_text",
    "moe_intermediate_size": None,
    "num_experts": None,
    "num_global_key_value_heads": 1,
    "num_hidden_layers": 5,
    "num_kv_shared_layers": 0,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-06,
    "rope_parameters": {
        FULL: {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
        SLIDING: {"rope_theta": 10000.0, "rope_type": "default"},
    },
    "sliding_window": 20,
    "tie_word_embeddings": True,
    "top_k_experts": None,
    "use_bidirectional_attention": "vision",
    "use_cache": True,
    "use_double_wide_mlp": False,
    "vocab_size": 120,
    "vocab_size_per_layer_input": 120,
}
# As E2B: two layers read keys and values of earlier ones and have wider mlps.
E2B = (
    DENSE
    | heads(2, 1, 12)
    | {
        "attention_k_eq_v": False,
        "global_head_dim": 24,
        "hidden_size_per_layer_input": 12,
        "layer_types": [SLIDING, FULL, SLIDING, SLIDING, FULL],
        "num_global_key_value_heads": None,
        "num_kv_shared_layers": 2,
        "use_bidirectional_attention": None,
        "use_double_wide_mlp": True,
    }
)
# As the 26B-A4B model, written by transformers 5.24.
EXPERTS = {k: v for k, v in DENSE.items() if k not in ("global_head_dim", "num_global_key_value_heads")} | {
    "enable_moe_block": True,
    "layer_types": [SLIDING, FULL, SLIDING, FULL],
    "moe_intermediate_size": 20,
    "num_experts": 6,
    "num_hidden_layers": 4,
    "per_layer_config": {str(i): {"head_dim": 16, "num_key_value_heads": 1} for i in (1, 3)},
    "top_k_experts": 2,
}
NOT_UNIFIED = (
    "enable_moe_block",
    "hidden_size_per_layer_input",
    "moe_intermediate_size",
    "num_experts",
    "top_k_experts",
    "vocab_size_per_layer_input",
)
UNIFIED_TEXT = {k: v for k, v in DENSE.items() if k not in NOT_UNIFIED + ("architectures", "dtype")} | {
    "model_type": "gemma4_unified_text"
}
UNIFIED = {
    "architectures": ["Gemma4UnifiedForConditionalGeneration"],
    "audio_config": {"audio_embed_dim": 8, "model_type": "gemma4_unified_audio", "output_proj_dims": 28},
    "dtype": "bfloat16",
    "image_token_id": 3,
    "audio_token_id": 3,
    "video_token_id": 3,
    "model_type": "gemma4_unified",
    "text_config": UNIFIED_TEXT,
    "tie_word_embeddings": True,
    "vision_config": {
        "mm_embed_dim": 8,
        "mm_posemb_size": 4,
        "model_type": "gemma4_unified_vision",
        "output_proj_dims": 28,
        "patch_size": 2,
        "pooling_kernel_size": 1,
    },
}
BESIDE_VISION = {
    "architectures": ["Gemma4ForConditionalGeneration"],
    "audio_config": {
        "hidden_size": 8,
        "model_type": "gemma4_audio",
        "num_attention_heads": 1,
        "num_hidden_layers": 1,
        "output_proj_dims": 8,
        "subsampling_conv_channels": [2, 2],
    },
    "audio_token_id": 7,
    "dtype": "bfloat16",
    "image_token_id": 6,
    "model_type": "gemma4",
    "text_config": {k: v for k, v in E2B.items() if k not in ("architectures", "dtype")},
    "tie_word_embeddings": True,
    "video_token_id": 8,
    "vision_config": heads(1, 1, 8)
    | {
        "hidden_size": 8,
        "intermediate_size": 8,
        "model_type": "gemma4_vision",
        "num_hidden_layers": 1,
        "patch_size": 2,
        "position_embedding_size": 4,
    },
}

GEMMA4_CASES = {
    "gemma4": Case(DENSE, long_prompt=200, notes="Full layers have wider heads, one kv head, and no values."),
    "gemma4_e2b": Case(
        E2B,
        long_prompt=200,
        beside=(
            "model.layers.3.self_attn.k_proj.weight",
            "model.layers.3.self_attn.v_proj.weight",
            "model.layers.3.self_attn.k_norm.weight",
        ),
        notes="Layers 3 and 4 read the keys and values of 2 and 1; files have some of their own nevertheless.",
    ),
    "gemma4_moe": Case(EXPERTS, long_prompt=45, notes="Experts beside the mlp. per_layer_config names the full layers."),
    "gemma4_unified": Case(UNIFIED, long_prompt=45, notes="Embedders of images and sound are there, of zeros. No prompt has an image."),
    "gemma4_beside_vision": Case(BESIDE_VISION, long_prompt=45, notes="The towers are there, of zeros."),
}
