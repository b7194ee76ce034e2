"""Tiny models of families with their own rules for experts, heads or chunks: rows of families.py's table."""

from case import Case
from further_families import GPTJ, MOE, SMALL, without
from configs import LLAMA
from latent_configs import DEEPSEEK_V3
from layer_norm_configs import COHERE2, GPT_NEOX
from sliding_families import ROPES
from vision_configs import beside_vision

LLAMA4 = without(LLAMA, "mlp_bias", "rope_scaling") | SMALL | {
    "architectures": ["Llama4ForCausalLM"],
    "attention_chunk_size": 20,
    "attn_scale": 0.3,
    "attn_temperature_tuning": True,
    "floor_scale": 16,
    "head_dim": 8,
    "interleave_moe_layer_step": 2,
    "intermediate_size": 20,
    "intermediate_size_mlp": 44,
    "max_position_embeddings": 512,
    "model_type": "llama4_text",
    "no_rope_layer_interval": 3,
    "num_experts_per_tok": 1,
    "num_hidden_layers": 4,
    "num_local_experts": 5,
    "rope_parameters": {
        "factor": 8.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 64,
        "rope_theta": 500000.0,
        "rope_type": "llama3",
    },
    "use_qk_norm": True,
}
LLAMA4.pop("rope_theta", None)
LLAMA4_LISTED = without(LLAMA4, "interleave_moe_layer_step", "no_rope_layer_interval") | {
    "attn_temperature_tuning": False,
    "layer_types": ["full_attention", "chunked_attention"],
    "moe_layers": [1],
    "no_rope_layers": [0, 1],
    "num_experts_per_tok": 2,
    "num_hidden_layers": 2,
    "use_qk_norm": False,
}
COHERE2_MOE = without(
    COHERE2, "cache_implementation", "layer_switch", "order_of_interleaved_layers", "position_embedding_type", "rotary_pct",
    "use_embedding_sharing", "use_gated_activation", "use_parallel_block", "use_parallel_embedding", "use_qk_norm",
) | {
    "architectures": ["Cohere2MoeForCausalLM"],
    "expert_selection_fn": "sigmoid",
    "first_k_dense_replace": 1,
    "hidden_size": 36,
    "intermediate_size": 20,
    "model_type": "cohere2_moe",
    "norm_topk_prob": True,
    "num_experts": 6,
    "num_experts_per_tok": 3,
    "num_shared_experts": 2,
    "prefix_dense_intermediate_size": 44,
    "shared_expert_combination_strategy": "average",
}
COHERE2_MOE_RMS = without(COHERE2_MOE, "first_k_dense_replace", "layer_norm_eps", "norm_topk_prob") | {
    "expert_selection_fn": "softmax",
    "layer_types": ["full_attention", "sliding_attention"],
    "mlp_layer_types": ["sparse", "sparse"],
    "num_experts": 4,
    "num_hidden_layers": 2,
    "num_shared_experts": 0,
    "prefix_dense_intermediate_size": None,
    "rms_norm_eps": 1e-05,
}
MIMO_V2_FLASH = without(MOE, "first_k_dense_replace", "n_shared_experts") | {
    "architectures": ["MiMoV2FlashForCausalLM"],
    "attention_value_scale": 0.707,
    "head_dim": 12,
    "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    "mlp_layer_types": ["dense", "sparse", "sparse"],
    "model_type": "mimo_v2_flash",
    "n_routed_experts": 6,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 1,
    "rope_parameters": {kind: rope | {"partial_rotary_factor": 0.334} for kind, rope in ROPES.items()},
    "routed_scaling_factor": None,
    "sliding_window": 20,
    "v_head_dim": 10,
}
GPT_NEOX_JAPANESE = without(GPT_NEOX, "classifier_dropout", "intermediate_size", "rotary_pct", "use_parallel_residual") | {
    "architectures": ["GPTNeoXJapaneseForCausalLM"],
    "hidden_size": 36,
    "intermediate_multiple_size": 4,
    "model_type": "gpt_neox_japanese",
    "num_attention_heads": 3,
    "rotary_pct": 0.5,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
AXK1 = without(DEEPSEEK_V3, "ep_size", "moe_layer_freq", "num_nextn_predict_layers", "scoring_func", "topk_method") | {
    "architectures": ["AXK1ForCausalLM"],
    "model_type": "axk1",
}
DBRX = {
    "architectures": ["DbrxForCausalLM"],
    "attn_config": {"clip_qkv": 1.5, "kv_n_heads": 2, "rope_theta": 500000},
    "bos_token_id": 1,
    "d_model": 32,
    "eos_token_id": 2,
    "ffn_config": {"ffn_hidden_size": 20, "hidden_size": 32, "moe_num_experts": 6, "moe_top_k": 3},
    "max_seq_len": 512,
    "model_type": "dbrx",
    "n_heads": 4,
    "n_layers": 2,
    "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"},
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 120,
}
CODEGEN = without(GPTJ, "rotary", "scale_attn_weights") | {
    "architectures": ["CodeGenForCausalLM"],
    "model_type": "codegen",
    "n_embd": 48,
    "n_head": 8,
    "rotary_dim": 4,
}
PERSIMMON = without(LLAMA, "attention_bias", "mlp_bias", "num_key_value_heads", "rms_norm_eps", "rope_scaling") | {
    "architectures": ["PersimmonForCausalLM"],
    "hidden_act": "relu2",
    "hidden_size": 36,
    "intermediate_size": 52,
    "layer_norm_eps": 1e-05,
    "model_type": "persimmon",
    "num_attention_heads": 3,
    "partial_rotary_factor": 0.5,
    "qk_layernorm": True,
    "vocab_size": 120,
}
FUYU = {
    "architectures": ["FuyuForCausalLM"],
    "image_token_id": 6,
    "model_type": "fuyu",
    "num_channels": 1,
    "patch_size": 2,
}
BEAM = without(LLAMA, "mlp_bias", "rope_scaling", "rope_theta") | {
    "architectures": ["BeamForCausalLM"],
    "final_logit_softcapping": 30.0,
    "head_dim": 8,
    "hidden_size": 36,
    "intermediate_size": 44,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "max_position_embeddings": 512,
    "mlp_layer_types": ["dense", "sparse", "sparse"],
    "model_type": "beam",
    "moe_intermediate_size": 12,
    "n_group": 3,
    "norm_topk_prob": True,
    "num_attention_heads": 4,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 3,
    "output_router_logits": False,
    "rope_parameters": {"full_attention": None, "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}},
    "routed_scaling_factor": 2.5,
    "sliding_window": 24,
    "topk_group": 2,
    "vocab_size": 120,
}

MIXTURE_CASES = {
    "llama4": Case(
        LLAMA4, long_prompt=100, notes="Chunks of 20 positions; layer 2 does not know positions, but scales its queries."
    ),
    "llama4_listed": Case(LLAMA4_LISTED, long_prompt=45, notes="Two scaled inputs a token; no norms of q and k."),
    "cohere2_moe": Case(
        COHERE2_MOE, long_prompt=45, notes="Experts beside attention; layer 0, which is dense and sees everything, rotates."
    ),
    "cohere2_moe_rms": Case(COHERE2_MOE_RMS, long_prompt=45, notes="RMSNorm; no shared expert."),
    "mimo_v2_flash": Case(
        MIMO_V2_FLASH, long_prompt=45, notes="Layer 1 slides, with sinks and twice the kv heads; values are narrower than keys."
    ),
    "gpt_neox_japanese": Case(
        GPT_NEOX_JAPANESE, long_prompt=45, jitter="embed_in", notes="Only the last layer's o has a bias."
    ),
    "axk1": Case(
        AXK1,
        long_prompt=45,
        absent=("e_score_correction_bias",),
        beside=("model.layers.0.post_mlp_layernorm.weight",),
        notes="A norm of the experts' sum, which the file has in the dense layer, too.",
    ),
    "dbrx": Case(DBRX, long_prompt=45, jitter="wte", notes="Experts share three matrices, down transposed."),
    "codegen": Case(CODEGEN, long_prompt=45, jitter="wte", notes="q, v and k lie in four blocks of two heads."),
    "persimmon": Case(PERSIMMON, long_prompt=45, notes="LayerNorm of q and k, with biases."),
    "fuyu": Case(
        beside_vision(PERSIMMON, FUYU),
        long_prompt=45,
        published_names={
            "model.language_model.": "language_model.model.",
            "lm_head.": "language_model.lm_head.",
            "model.vision_embed_tokens.": "vision_embed_tokens.",
        },
        notes="A Persimmon beside the embedding of images, of zeros.",
    ),
    "beam": Case(
        BEAM,
        long_prompt=200,
        notes="The stream is scaled by depth, gates of attention have biases, and layer 1 scales queries in place of rope.",
    ),
}
