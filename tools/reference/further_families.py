"""Tiny models of families that differ from an earlier one in a few settings: rows of families.py's table."""

from case import Case, heads, mlp
from configs import GRANITE, LLAMA, MISTRAL, MIXTRAL, QWEN3_MOE, spelled_new
from latent_configs import DEEPSEEK_V3
from newer_configs import ERNIE4_5, EXAONE4_HYBRID, OLMOE, GLM4_MOE, GRANITE_MOE_SHARED, NEMOTRON
from recurrent_configs import FALCON_H1_NORM, GRANITE_HYBRID
from vision_configs import QWEN3_VL_VISION, beside_vision


def without(config: dict, *names: str) -> dict:
    return {k: v for k, v in config.items() if k not in names}


SMALL = heads(4, 2, 12) | mlp(44) | {"hidden_size": 32, "vocab_size": 120}
# Of GLM 4.5, which most mixtures are made from: sigmoids choose, corrected, and weigh.
MOE = without(GLM4_MOE, "num_nextn_predict_layers", "partial_rotary_factor", "use_qk_norm", "rope_scaling", "rope_theta")

DOTS1 = MOE | {
    "architectures": ["Dots1ForCausalLM"],
    "max_window_layers": 1,
    "model_type": "dots1",
    "n_shared_experts": 2,
    "rope_theta": 10000,
    "sliding_window": 20,
}
EXAONE_MOE = without(MOE, "attention_bias", "n_routed_experts", "n_shared_experts") | {
    "architectures": ["ExaoneMoeForCausalLM"],
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "mlp_layer_types": ["dense", "sparse", "sparse"],
    "model_type": "exaone_moe",
    "num_experts": 6,
    "num_hidden_layers": 3,
    "num_shared_experts": 1,
    "rope_scaling": EXAONE4_HYBRID["rope_scaling"],
    "rope_theta": 1000000,
    "sliding_window": 20,
    "sliding_window_pattern": "LGL",
}
SOLAR_OPEN = without(MOE, "first_k_dense_replace", "intermediate_size") | {
    "architectures": ["SolarOpenForCausalLM"],
    "model_type": "solar_open",
    "rope_theta": 1000000,
}
HY_V3 = without(
    MOE, "first_k_dense_replace", "n_group", "n_routed_experts", "n_shared_experts", "norm_topk_prob",
    "routed_scaling_factor", "topk_group",
) | {
    "architectures": ["HYV3ForCausalLM"],
    "attention_bias": False,
    "enable_moe_fp32_combine": True,
    "mlp_bias": False,
    "mlp_layer_types": ["dense", "sparse"],
    "model_type": "hy_v3",
    "num_experts": 7,
    "num_shared_experts": 1,
    "rope_theta": 11158840.0,
    "router_scaling_factor": 2.826,
}
SARVAM_MOE = without(MOE, "attention_bias", "n_routed_experts", "n_shared_experts") | {
    "architectures": ["SarvamMoEForCausalLM"],
    "model_type": "sarvam_moe",
    "num_experts": 8,
    "num_shared_experts": 1,
    "n_group": 4,
    "rope_theta": 8000000,
    "topk_group": 2,
    "use_qk_norm": True,
    "use_qkv_bias": True,
}
SARVAM_MLA = without(DEEPSEEK_V3, "n_routed_experts", "n_shared_experts", "q_lora_rank", "topk_method") | {
    "architectures": ["SarvamMLAForCausalLM"],
    "model_type": "sarvam_mla",
    "n_group": 1,
    "num_experts": 6,
    "num_shared_experts": 1,
    "rope_scaling": DEEPSEEK_V3["rope_scaling"] | {"type": "deepseek_yarn"},
    "topk_group": 1,
}
YOUTU = without(
    DEEPSEEK_V3, "aux_loss_alpha", "ep_size", "first_k_dense_replace", "moe_intermediate_size", "moe_layer_freq",
    "n_group", "n_routed_experts", "n_shared_experts", "norm_topk_prob", "num_experts_per_tok",
    "num_nextn_predict_layers", "pretraining_tp", "rope_scaling", "routed_scaling_factor", "scoring_func", "seq_aux",
    "topk_group", "topk_method",
) | {
    "architectures": ["YoutuForCausalLM"],
    "model_type": "youtu",
    "rope_interleave": True,
    "rope_theta": 1600000,
    "tie_word_embeddings": True,
}
MISTRAL4 = without(
    DEEPSEEK_V3, "aux_loss_alpha", "ep_size", "moe_layer_freq", "num_nextn_predict_layers", "pretraining_tp",
    "rope_scaling", "rope_theta", "scoring_func", "seq_aux", "topk_method",
) | {
    "architectures": ["Mistral4ForCausalLM"],
    "max_position_embeddings": 512,
    "model_type": "mistral4",
    "rope_interleave": True,
    "rope_parameters": {
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "factor": 8.0,
        "llama_4_scaling_beta": 0.1,
        "max_position_embeddings": 512,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 64,
        "partial_rotary_factor": 0.4,
        "rope_theta": 10000.0,
        "rope_type": "yarn",
    },
    "torch_dtype": "bfloat16",
}
MELLUM = without(
    MOE, "first_k_dense_replace", "n_group", "n_routed_experts", "n_shared_experts", "routed_scaling_factor",
    "topk_group",
) | {
    "architectures": ["MellumForCausalLM"],
    "attention_bias": False,
    "layer_types": ["sliding_attention", "full_attention"],
    "mlp_layer_types": ["sparse", "sparse"],
    "model_type": "mellum",
    "num_experts": 7,
    "output_router_logits": False,
    "rope_parameters": {
        "full_attention": {
            "attention_factor": 1.2,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "factor": 4.0,
            "original_max_position_embeddings": 64,
            "rope_theta": 500000.0,
            "rope_type": "yarn",
        },
        "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
    },
    "router_aux_loss_coef": 0.001,
    "sliding_window": 20,
}
MINISTRAL = (
    MISTRAL
    | SMALL
    | {
        "architectures": ["MinistralForCausalLM"],
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
        "model_type": "ministral",
        "num_hidden_layers": 3,
        "sliding_window": 20,
    }
)
JAIS2 = without(NEMOTRON, "norm_eps", "partial_rotary_factor") | {
    "architectures": ["Jais2ForCausalLM"],
    "attention_bias": True,
    "layer_norm_eps": 1e-05,
    "mlp_bias": True,
    "model_type": "jais2",
}
INTERNLM3 = without(LLAMA, "attention_bias", "mlp_bias") | SMALL | {
    "architectures": ["InternLM3ForCausalLM"],
    "bias": True,
    "head_dim": 8,
    "model_type": "internlm3",
    "qkv_bias": True,
    "rope_scaling": {"factor": 6.0, "rope_type": "dynamic"},
}
IQUESTCODER = LLAMA | SMALL | {
    "architectures": ["IQuestCoderForCausalLM"],
    "head_dim": 8,
    "model_type": "iquestcoder",
    "rope_theta": 500000,
}
EXAONE = without(
    LLAMA, "attention_bias", "hidden_act", "mlp_bias", "num_hidden_layers", "rms_norm_eps", "rope_scaling"
) | without(SMALL, "head_dim") | {
    "activation_function": "silu",
    "architectures": ["ExaoneForCausalLM"],
    "embed_dropout": 0.0,
    "layer_norm_epsilon": 1e-05,
    "model_type": "exaone",
    "num_layers": 2,
    "rope_theta": 500000,
}
QWEN3_VL_MOE = without(QWEN3_MOE, "max_window_layers", "norm_topk_prob", "sliding_window", "use_sliding_window") | {
    "head_dim": 16,
    "hidden_size": 36,
    "model_type": "qwen3_vl_moe_text",
    "rope_scaling": {"mrope_interleaved": True, "mrope_section": [4, 2, 2], "rope_type": "default"},
}
QWEN3_VL_MOE_VISION = QWEN3_VL_VISION | {
    "architectures": ["Qwen3VLMoeForConditionalGeneration"],
    "model_type": "qwen3_vl_moe",
    "vision_config": QWEN3_VL_VISION["vision_config"] | {"model_type": "qwen3_vl_moe_vision", "out_hidden_size": 36},
}
ERNIE4_5_MOE = without(ERNIE4_5, "head_dim", "use_bias") | {
    "architectures": ["Ernie4_5_MoeForCausalLM"],
    "model_type": "ernie4_5_moe",
    "moe_intermediate_size": 20,
    "moe_k": 3,
    "moe_layer_end_index": 2,
    "moe_layer_interval": 1,
    "moe_layer_start_index": 1,
    "moe_num_experts": 7,
    "moe_num_shared_experts": 2,
    "num_hidden_layers": 4,
    "use_bias": False,
}
ERNIE4_5_MOE_TO_END = without(ERNIE4_5_MOE, "moe_layer_end_index") | {"num_hidden_layers": 2}
MINIMAX_M2 = without(MIXTRAL, "rope_scaling", "sliding_window") | {
    "architectures": ["MiniMaxM2ForCausalLM"],
    "head_dim": 16,
    "hidden_size": 36,
    "model_type": "minimax_m2",
    "num_experts_per_tok": 3,
    "num_local_experts": 7,
    "rotary_dim": 8,
    "scoring_func": "sigmoid",
    "use_qk_norm": True,
    "use_routing_bias": True,
}
SWA = {
    "layer_rope_theta": [0, 10000.0, 500000.0],
    "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    "num_hidden_layers": 3,
    "sliding_window": 20,
}
GRANITE_SWA = GRANITE | SWA | {"architectures": ["GraniteSWAForCausalLM"], "model_type": "granite_swa"}
GRANITE_MOE_SWA = spelled_new(GRANITE_MOE_SHARED) | without(SWA, "layer_rope_theta", "layer_types") | {
    "architectures": ["GraniteMoeSWAForCausalLM"],
    "model_type": "granitemoe_swa",
}
HYPERCLOVAX = GRANITE | {
    "architectures": ["HyperCLOVAXForCausalLM"],
    "attention_multiplier": None,
    "head_dim": 12,
    "logits_scaling": 0.4,
    "model_type": "hyperclovax",
    "use_post_norm": True,
}
PHIMOE = without(MIXTRAL, "rope_scaling") | heads(4, 2, 10) | {
    "architectures": ["PhimoeForCausalLM"],
    "attention_bias": True,
    "hidden_size": 40,
    "input_jitter_noise": 0.01,
    "intermediate_size": 20,
    "lm_head_bias": True,
    "max_position_embeddings": 512,
    "model_type": "phimoe",
    "num_experts_per_tok": 2,
    "num_local_experts": 7,
    "rope_scaling": {
        "long_factor": [1.1, 2.5, 7.0, 15.0, 20.0],
        "long_mscale": 1.24,
        "original_max_position_embeddings": 256,
        "short_factor": [1.0, 1.2, 1.7, 2.4, 3.0],
        "short_mscale": 1.24,
        "type": "longrope",
    },
    "router_jitter_noise": 0.4,
    "sliding_window": None,
}
OLMO = without(LLAMA, "mlp_bias", "rms_norm_eps", "rope_scaling") | without(SMALL, "head_dim") | {
    "architectures": ["OlmoForCausalLM"],
    "clip_qkv": 1.5,
    "model_type": "olmo",
}
NANOCHAT = without(LLAMA, "mlp_bias", "rope_scaling") | without(SMALL, "head_dim") | {
    "architectures": ["NanoChatForCausalLM"],
    "final_logit_softcapping": 2.5,
    "hidden_act": "relu2",
    "model_type": "nanochat",
    "num_hidden_layers": 3,
}
FALCON = {
    "activation": "gelu",
    "alibi": False,
    "apply_residual_connection_post_layernorm": False,
    "architectures": ["FalconForCausalLM"],
    "attention_dropout": 0.0,
    "bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_dropout": 0.0,
    "hidden_size": 36,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "max_position_embeddings": 256,
    "model_type": "falcon",
    "multi_query": True,
    "new_decoder_architecture": False,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "num_kv_heads": 3,
    "parallel_attn": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 120,
}
FALCON_NEW = FALCON | {
    "bias": True,
    "ffn_hidden_size": 52,
    "hidden_size": 48,
    "new_decoder_architecture": True,
    "num_attention_heads": 6,
    "num_kv_heads": 2,
    "tie_word_embeddings": False,
}
FALCON_SEQUENTIAL = FALCON | {"multi_query": False, "parallel_attn": False}
GPTJ = {
    "activation_function": "gelu_new",
    "architectures": ["GPTJForCausalLM"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "layer_norm_epsilon": 1e-05,
    "model_type": "gptj",
    "n_embd": 36,
    "n_head": 3,
    "n_inner": None,
    "n_layer": 2,
    "n_positions": 256,
    "rotary": True,
    "rotary_dim": 6,
    "scale_attn_weights": True,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 120,
}
AFMOE = without(
    EXAONE_MOE, "first_k_dense_replace", "mlp_layer_types", "n_group", "norm_topk_prob", "rope_scaling",
    "routed_scaling_factor", "sliding_window_pattern", "topk_group",
) | {
    "architectures": ["AfmoeForCausalLM"],
    "attention_bias": False,
    "global_attn_every_n_layers": 2,
    "model_type": "afmoe",
    "mup_enabled": True,
    "num_dense_layers": 1,
    "route_norm": True,
    "route_scale": 1.5,
    "score_func": "sigmoid",
}
FLEX_OLMO = without(OLMOE, "clip_qkv") | {"architectures": ["FlexOlmoForCausalLM"], "model_type": "flex_olmo"}
FALCON_H1_GATE = FALCON_H1_NORM | {"mamba_norm_before_gate": True, "mamba_proj_bias": True}
DEEPSEEK_V3_BIAS = DEEPSEEK_V3 | {"attention_bias": True}
BAMBA = without(
    GRANITE_HYBRID, "attention_multiplier", "embedding_multiplier", "init_method", "layer_types", "logits_scaling",
    "normalization_function", "num_experts_per_tok", "num_local_experts", "output_router_logits",
    "position_embedding_type", "residual_multiplier", "router_aux_loss_coef", "shared_intermediate_size",
) | {
    "architectures": ["BambaForCausalLM"],
    "attn_layer_indices": [1],
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "intermediate_size": 44,
    "mlp_bias": False,
    "model_type": "bamba",
    "num_logits_to_keep": 1,
}

FURTHER_CASES = {
    "dots1": Case(DOTS1, long_prompt=45, notes="Layer 1 slides and has experts, and a shared one twice as large."),
    "exaone_moe": Case(EXAONE_MOE, long_prompt=45, notes="Norms before the branches; layer 1 does not know positions."),
    "solar_open": Case(SOLAR_OPEN, long_prompt=45, notes="All layers have experts; no norms of queries and keys."),
    "hy_v3": Case(HY_V3, long_prompt=45, notes="Layer 0 has no experts."),
    "sarvam_moe": Case(SARVAM_MOE, long_prompt=45, notes="q, k and v are one tensor; groups of experts."),
    "sarvam_mla": Case(SARVAM_MLA, long_prompt=45, notes="The kind of yarn has a name of its own."),
    "youtu": Case(YOUTU, long_prompt=45, notes="Latent attention without experts."),
    "mistral4": Case(MISTRAL4, long_prompt=200, notes="Groups are chosen by sums of softmaxes; queries grow by position."),
    "mellum": Case(MELLUM, long_prompt=200, notes="A rope for each kind of layer; all have experts."),
    "ministral": Case(MINISTRAL, long_prompt=45, notes="Layer 0 sees everything."),
    "jais2": Case(JAIS2, long_prompt=45, notes="LayerNorm and biases; relu² without a gate."),
    "internlm3": Case(INTERNLM3, long_prompt=45, notes="Biases by two fields of other names."),
    "iquestcoder": Case(IQUESTCODER, long_prompt=45),
    "qwen3_vl_moe": Case(
        beside_vision(QWEN3_VL_MOE, QWEN3_VL_MOE_VISION),
        long_prompt=45,
        notes="Experts in one tensor of a layer, transposed. The vision tower is there, of zeros.",
    ),
    "ernie4_5_moe": Case(ERNIE4_5_MOE, long_prompt=45, notes="Softmaxes, corrected for the choice, in layers 1 and 2."),
    "ernie4_5_moe_to_end": Case(ERNIE4_5_MOE_TO_END, notes="Softmaxes in all layers but the first, as published."),
    "minimax_m2": Case(MINIMAX_M2, long_prompt=45, notes="Half of a head is rotated, after norms over all heads."),
    "granite_swa": Case(GRANITE_SWA, long_prompt=200, notes="Sinks; a theta for each layer, 0 in the first."),
    "granite_moe_swa": Case(GRANITE_MOE_SWA, long_prompt=200, notes="Sinks; the first of three layers sees everything."),
    "hyperclovax": Case(HYPERCLOVAX, long_prompt=45, notes="Norms behind the branches, before their factor."),
    "deepseek_v3_bias": Case(DEEPSEEK_V3_BIAS, long_prompt=45, notes="Biases of both latents and of o."),
    "phimoe": Case(
        PHIMOE, long_prompt=45, notes="SparseMixer: each choice is weighed among its near rivals. LayerNorm."
    ),
    "olmo": Case(OLMO, long_prompt=45, notes="LayerNorm without weights; q, k and v are clamped."),
    "nanochat": Case(NANOCHAT, long_prompt=45, notes="No norm has weights; embeddings are normed; angles are negative."),
    "falcon": Case(FALCON, long_prompt=45, jitter="word_embeddings", notes="One kv head; parallel branches, one norm."),
    "falcon_new": Case(
        FALCON_NEW, long_prompt=45, jitter="word_embeddings", notes="Queries lie by kv head; a norm for each branch."
    ),
    "falcon_sequential": Case(FALCON_SEQUENTIAL, long_prompt=45, jitter="word_embeddings"),
    "gptj": Case(GPTJ, long_prompt=45, jitter="wte", notes="Neighbours are rotated, in half of a head."),
    "afmoe": Case(AFMOE, long_prompt=45, notes="A gate of attention's output; a norm behind the sum of experts."),
    "flex_olmo": Case(FLEX_OLMO, long_prompt=45, jitter="norm", notes="Norms behind the branches only."),
    "falcon_h1_gate": Case(FALCON_H1_GATE, long_prompt=45, notes="Mamba's norm precedes its gate; biases of its inputs, too."),
    "exaone": Case(EXAONE, long_prompt=45, notes="A Llama of other names."),
    "bamba": Case(BAMBA, long_prompt=200, notes="Layer 1 attends, with half of a head rotated; the others are Mamba 2."),
}
