"""Tiny models with learned positions, or with scores that fall with the distance: rows of families.py's table."""

from case import Case
from further_families import GPTJ, without

GPT2 = without(GPTJ, "rotary", "rotary_dim", "tie_word_embeddings") | {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "n_ctx": 256,
}
GPT_BIGCODE = GPT2 | {
    "activation_function": "gelu_pytorch_tanh",
    "architectures": ["GPTBigCodeForCausalLM"],
    "model_type": "gpt_bigcode",
    "multi_query": True,
    "n_inner": 52,
}
GPT_NEO = {
    "activation_function": "gelu_new",
    "architectures": ["GPTNeoForCausalLM"],
    "attention_types": [[["global", "local"], 1]],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_size": 36,
    "intermediate_size": None,
    "layer_norm_epsilon": 1e-05,
    "max_position_embeddings": 256,
    "model_type": "gpt_neo",
    "num_heads": 3,
    "num_layers": 2,
    "torch_dtype": "bfloat16",
    "vocab_size": 120,
    "window_size": 20,
}
OPT = {
    "_remove_final_layer_norm": False,
    "activation_function": "relu",
    "architectures": ["OPTForCausalLM"],
    "bos_token_id": 2,
    "do_layer_norm_before": True,
    "eos_token_id": 2,
    "ffn_dim": 52,
    "hidden_size": 36,
    "max_position_embeddings": 256,
    "model_type": "opt",
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "torch_dtype": "float16",
    "vocab_size": 120,
    "word_embed_proj_dim": 36,
}
BIOGPT = {
    "architectures": ["BioGptForCausalLM"],
    "bos_token_id": 0,
    "eos_token_id": 2,
    "hidden_act": "gelu",
    "hidden_size": 36,
    "intermediate_size": 52,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 256,
    "model_type": "biogpt",
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "scale_embedding": True,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "vocab_size": 120,
}
BLOOM = {
    "apply_residual_connection_post_layernorm": False,
    "architectures": ["BloomForCausalLM"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_size": 36,
    "layer_norm_epsilon": 1e-05,
    "model_type": "bloom",
    "n_head": 3,
    "n_layer": 2,
    "offset_alibi": 100,
    "seq_length": 512,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 120,
}
MPT = {
    "architectures": ["MptForCausalLM"],
    "attn_config": {
        "alibi": True,
        "alibi_bias_max": 8,
        "attn_impl": "torch",
        "attn_type": "multihead_attention",
        "clip_qkv": 2.5,
        "prefix_lm": False,
        "qk_ln": False,
        "softmax_scale": None,
    },
    "d_model": 32,
    "eos_token_id": 2,
    "expansion_ratio": 4,
    "learned_pos_emb": True,
    "logit_scale": None,
    "max_seq_len": 512,
    "model_type": "mpt",
    "n_heads": 4,
    "n_layers": 2,
    "no_bias": True,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 120,
}

POSITION_CASES = {
    "gpt2": Case(GPT2, long_prompt=200, jitter="wte", notes="Matrices are stored transposed; q, k and v are one."),
    "gpt_bigcode": Case(GPT_BIGCODE, long_prompt=200, jitter="wte", notes="All queries share one key and value head."),
    "gpt_bigcode_heads": Case(
        GPT_BIGCODE | {"multi_query": False}, long_prompt=45, jitter="wte", notes="q, k and v lie by head."
    ),
    "gpt_neo": Case(GPT_NEO, long_prompt=200, jitter="wte", notes="Scores are not scaled; every other layer slides."),
    "opt": Case(OPT, long_prompt=200, notes="Positions begin at row 2; relu."),
    "bloom": Case(
        BLOOM,
        long_prompt=300,
        jitter="word_embeddings.",
        notes="ALiBi, with slopes for no power of two; a norm of the embeddings; q, k and v by head.",
    ),
    "mpt": Case(MPT, long_prompt=200, jitter="wte", notes="ALiBi; q, k and v are clamped; norms without biases."),
    "biogpt": Case(BIOGPT, long_prompt=45, notes="Embeddings are scaled, positions are not."),
}
