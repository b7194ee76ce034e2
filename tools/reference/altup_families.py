"""Tiny models with several residual streams and embeddings of each layer (Gemma 3n)."""

from case import Case, heads
from configs import GEMMA3

NOT_HERE = ("attn_logit_softcapping", "cache_implementation", "query_pre_attn_scalar", "sliding_window_pattern")

GEMMA3N = {k: v for k, v in GEMMA3.items() if k not in NOT_HERE} | {
    "activation_sparsity_pattern": [0.7, 0.3, 0.0, 0.0, 0.0],
    "altup_active_idx": 0,
    "altup_coef_clip": 120.0,
    "altup_correct_scale": True,
    "altup_num_inputs": 4,
    "architectures": ["Gemma3nForCausalLM"],
    "final_logit_softcapping": 1.5,
    "hidden_size_per_layer_input": 12,
    "intermediate_size": [44, 44, 36, 44, 36],
    "laurel_rank": 10,
    "layer_types": [
        "sliding_attention",
        "full_attention",
        "sliding_attention",
        "sliding_attention",
        "full_attention",
    ],
    "model_type": "gemma3n_text",
    "num_hidden_layers": 5,
    "num_key_value_heads": 2,
    "num_kv_shared_layers": 2,
    "rope_scaling": None,
    "vocab_size_per_layer_input": 120,
}
# Three streams, of which layers compute the second; all layers have keys and values; the last of five sees everything.
GEMMA3N_STREAMS = (
    {k: v for k, v in GEMMA3N.items() if k not in ("layer_types", "rope_local_base_freq", "rope_scaling", "rope_theta")}
    | heads(2, 1, 12)
    | {
        "activation_sparsity_pattern": [0.0, 0.5, 0.0, 0.0, 0.0],
        "altup_active_idx": 1,
        "altup_coef_clip": 0.3,
        "altup_correct_scale": False,
        "altup_num_inputs": 3,
        "dtype": "bfloat16",
        "intermediate_size": 36,
        "num_kv_shared_layers": 0,
        "rope_parameters": {
            "full_attention": {"rope_theta": 300000.0, "rope_type": "default"},
            "sliding_attention": {"rope_theta": 5000.0, "rope_type": "default"},
        },
    }
)
del GEMMA3N_STREAMS["torch_dtype"]

ALTUP_CASES = {
    "gemma3n": Case(
        GEMMA3N,
        long_prompt=200,
        beside=(
            "model.layers.3.self_attn.k_proj.weight",
            "model.layers.3.self_attn.v_proj.weight",
            "model.layers.3.self_attn.k_norm.weight",
        ),
        notes="Layers 3 and 4 read the keys and values of 2 and 1; files have some of their own nevertheless. Gates of "
        "the first two are sparse.",
    ),
    "gemma3n_streams": Case(
        GEMMA3N_STREAMS,
        long_prompt=200,
        notes="Layers compute the second of three streams. altup_coef_clip is for training alone.",
    ),
}
