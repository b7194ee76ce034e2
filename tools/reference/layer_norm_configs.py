"""Configs of tiny models, as in configs.py: of families with LayerNorm, most with parallel branches."""

from configs import LLAMA, spelled_new


def without(config: dict, *fields: str) -> dict:
    return {k: v for k, v in config.items() if k not in fields}


STARCODER2 = without(LLAMA, "attention_bias", "mlp_bias", "rms_norm_eps") | {
    "architectures": ["Starcoder2ForCausalLM"],
    "attention_dropout": 0.1,
    "embedding_dropout": 0.1,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_size": 40,
    "intermediate_size": 76,
    "mlp_type": "default",
    "model_type": "starcoder2",
    "norm_epsilon": 1e-05,
    "norm_type": "layer_norm",
    "num_attention_heads": 4,
    "residual_dropout": 0.1,
    "rope_theta": 100000.0,
    "tie_word_embeddings": True,
    "use_bias": True,
    "vocab_size": 120,
}
STARCODER2_WINDOW = spelled_new(STARCODER2) | {"sliding_window": 20, "tie_word_embeddings": False, "use_bias": False}
PHI = without(LLAMA, "attention_bias", "mlp_bias", "num_key_value_heads", "rms_norm_eps") | {
    "architectures": ["PhiForCausalLM"],
    "embd_pdrop": 0.0,
    "hidden_act": "gelu_new",
    "hidden_size": 40,
    "intermediate_size": 76,
    "layer_norm_eps": 1e-05,
    "model_type": "phi",
    "num_attention_heads": 4,
    "partial_rotary_factor": 0.4,
    "qk_layernorm": False,
    "resid_pdrop": 0.1,
    "vocab_size": 120,
}
COHERE = without(LLAMA, "mlp_bias", "rms_norm_eps") | {
    "architectures": ["CohereForCausalLM"],
    "hidden_size": 48,
    "intermediate_size": 44,
    "layer_norm_eps": 1e-05,
    "logit_scale": 0.5,
    "model_max_length": 512,
    "model_type": "cohere",
    "num_attention_heads": 4,
    "pad_token_id": 0,
    "rope_theta": 75000.0,
    "tie_word_embeddings": True,
    "vocab_size": 120,
}
COHERE_QK_NORM = spelled_new(COHERE) | {
    "attention_bias": True,
    "num_attention_heads": 6,
    "tie_word_embeddings": False,
    "use_qk_norm": True,
}
COHERE2 = COHERE | {
    "architectures": ["Cohere2ForCausalLM"],
    "cache_implementation": "hybrid",
    "head_dim": 12,
    "layer_switch": 4,
    "model_type": "cohere2",
    "num_hidden_layers": 3,
    "order_of_interleaved_layers": "local_attn_first",
    "position_embedding_type": "rope_gptj",
    "rope_theta": 50000.0,
    "rotary_pct": 1.0,
    "sliding_window": 20,
    "sliding_window_pattern": 2,
    "use_embedding_sharing": True,
    "use_gated_activation": True,
    "use_parallel_block": True,
    "use_parallel_embedding": False,
    "use_qk_norm": False,
}
COHERE2_LAYER_TYPES = spelled_new(without(COHERE2, "sliding_window_pattern")) | {
    "layer_types": ["full_attention", "sliding_attention"],
    "num_hidden_layers": 2,
}
STABLELM = without(LLAMA, "attention_bias", "mlp_bias", "rms_norm_eps", "rope_scaling") | {
    "architectures": ["StableLmForCausalLM"],
    "intermediate_size": 44,
    "layer_norm_eps": 1e-05,
    "model_type": "stablelm",
    "partial_rotary_factor": 0.25,
    "qk_layernorm": False,
    "use_parallel_residual": False,
    "use_qkv_bias": True,
    "vocab_size": 120,
}
# StableLM 2 12B's.
STABLELM_PARALLEL = STABLELM | {
    "hidden_size": 40,
    "num_attention_heads": 4,
    "partial_rotary_factor": 0.4,
    "qk_layernorm": True,
    "use_parallel_residual": True,
    "use_qkv_bias": False,
}
GPT_NEOX = without(
    LLAMA, "attention_bias", "mlp_bias", "num_key_value_heads", "rms_norm_eps", "rope_scaling", "rope_theta"
) | {
    "architectures": ["GPTNeoXForCausalLM"],
    "classifier_dropout": 0.1,
    "hidden_act": "gelu",
    "intermediate_size": 76,
    "layer_norm_eps": 1e-05,
    "model_type": "gpt_neox",
    "rotary_emb_base": 10000,
    "rotary_pct": 0.25,
    "torch_dtype": "float16",
    "use_parallel_residual": True,
    "vocab_size": 120,
}
GPT_NEOX_SEQUENTIAL = without(GPT_NEOX, "rotary_emb_base", "rotary_pct", "torch_dtype") | {
    "attention_bias": False,
    "dtype": "bfloat16",
    "hidden_act": "gelu_fast",
    "rope_parameters": {"partial_rotary_factor": 1.0, "rope_theta": 25000.0, "rope_type": "default"},
    "use_parallel_residual": False,
}
GPT_NEOX_NAMES = {"gpt_neox.": "gpt_neox.", "lm_head.": "embed_out."}
