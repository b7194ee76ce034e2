"""Tiny models of families of late 2026, most with sliding windows: rows of families.py's table."""

from case import Case, heads
from further_families import EXAONE_MOE, MOE, SMALL, without
from configs import LLAMA, QWEN2
from layer_norm_configs import COHERE2_LAYER_TYPES
from newer_configs import APERTUS, QWEN3_5_MOE
from vision_configs import LLAVA_NAMES, beside_vision
from recurrent_configs import LFM2_LAYER_TYPES

ROPES = {
    "full_attention": {"partial_rotary_factor": 0.5, "rope_theta": 500000.0, "rope_type": "default"},
    "sliding_attention": {"partial_rotary_factor": 1.0, "rope_theta": 10000.0, "rope_type": "default"},
}
LFM3 = without(LFM2_LAYER_TYPES, "block_auto_adjust_ff_dim", "block_ffn_dim_multiplier", "block_multiple_of") | {
    "architectures": ["Lfm3ForCausalLM"],
    "attention_bias": False,
    "conv_L_cache": 7,
    "conv_bias": False,
    "head_dim": 16,
    "hidden_size": 36,
    "layer_types": ["sliding_attention", "conv", "full_attention"],
    "model_type": "lfm3",
    "num_key_value_heads": 2,
    "rope_parameters": {
        "full_attention": {"partial_rotary_factor": 0.5, "rope_theta": 1000000.0, "rope_type": "proportional"},
        "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
    },
    "sliding_window": 20,
    "tie_word_embeddings": True,
    "use_attention_gate": True,
    "use_sandwich_norm": True,
}
for older in ("tie_embedding", "rope_theta"):
    LFM3.pop(older, None)
SPARSE = without(
    EXAONE_MOE, "first_k_dense_replace", "mlp_layer_types", "n_group", "num_shared_experts", "rope_scaling",
    "routed_scaling_factor", "sliding_window_pattern", "topk_group",
) | {"shared_expert_intermediate_size": 24}
LAGUNA = without(SPARSE, "norm_topk_prob", "rope_theta") | {
    "architectures": ["LagunaForCausalLM"],
    "attention_bias": False,
    "gating": True,
    "mlp_layer_types": ["dense", "sparse", "sparse"],
    "model_type": "laguna",
    "moe_routed_scaling_factor": 1.5,
    "num_attention_heads_per_layer": [4, 6, 2],
    "rope_parameters": ROPES,
}
FLINT = SPARSE | {
    "architectures": ["FlintForCausalLM"],
    "attention_bias": False,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [0],
    "model_type": "flint",
}
KOLIBRI1 = without(SPARSE, "intermediate_size") | {"architectures": ["Kolibri1ForCausalLM"], "model_type": "kolibri1"}
LARA_MINI = without(
    QWEN3_5_MOE, "attn_output_gate", "full_attention_interval", "mamba_ssm_dtype", "mtp_num_hidden_layers",
    "partial_rotary_factor", "rope_parameters",
) | {
    "architectures": ["LaraMiniForCausalLM"],
    "layer_types": ["linear_attention", "sliding_attention", "full_attention"],
    "linear_num_value_heads": 4,
    "model_type": "lara_mini",
    "norm_topk_prob": True,
    "num_experts_per_tok": 5,
    "rope_theta": 10000.0,
    "sliding_window": 20,
}
ARIA = without(LLAMA, "rope_scaling") | SMALL | {
    "architectures": ["AriaTextForCausalLM"],
    "intermediate_size": 20,
    "model_type": "aria_text",
    "moe_num_experts": 7,
    "moe_num_shared_experts": 2,
    "moe_topk": 3,
}
APERTUS1P5 = APERTUS | {
    "architectures": ["Apertus1p5TextForCausalLM"],
    "model_type": "apertus1p5_text",
    "output_vocab_size": 100,
    "tie_word_embeddings": False,
}
MLLAMA = without(LLAMA, "attention_bias", "mlp_bias", "rope_scaling") | {
    "architectures": ["MllamaForCausalLM"],
    "cross_attention_layers": [1],
    "hidden_size": 32,
    "model_type": "mllama_text_model",
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "pad_token_id": 0,
    "vocab_size": 120,
}
GOT_OCR2 = {
    "architectures": ["GotOcr2ForConditionalGeneration"],
    "image_seq_length": 4,
    "image_token_index": 6,
    "model_type": "got_ocr2",
    "vision_config": {
        "global_attn_indexes": [0],
        "hidden_size": 8,
        "image_size": 16,
        "mlp_dim": 8,
        "model_type": "got_ocr2_vision",
        "num_attention_heads": 1,
        "num_hidden_layers": 1,
        "output_channels": 4,
        "patch_size": 4,
        "window_size": 2,
    },
}
EMU3 = without(MLLAMA, "cross_attention_layers", "pad_token_id") | {
    "architectures": ["Emu3ForCausalLM"],
    "model_type": "emu3_text_model",
    "num_hidden_layers": 2,
    "pad_token_id": 0,
}
MODERNBERT_DECODER = {
    "architectures": ["ModernBertDecoderForCausalLM"],
    "bos_token_id": 1,
    "decoder_bias": True,
    "eos_token_id": 2,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "hidden_activation": "gelu",
    "hidden_size": 36,
    "intermediate_size": 44,
    "local_attention": 20,
    "local_rope_theta": 10000.0,
    "max_position_embeddings": 512,
    "model_type": "modernbert-decoder",
    "norm_bias": False,
    "norm_eps": 1e-05,
    "num_attention_heads": 3,
    "num_hidden_layers": 3,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "vocab_size": 120,
}
COHERE_COMPASS = without(COHERE2_LAYER_TYPES, "layer_switch", "order_of_interleaved_layers", "rotary_pct", "head_dim") | {
    "architectures": ["CohereCompassForCausalLM"],
    "model_type": "cohere_compass_text",
    "rope_parameters": {"full_attention": None, "sliding_attention": {"rope_theta": 50000.0, "rope_type": "default"}},
}

SLIDING_CASES = {
    "lfm3": Case(LFM3, long_prompt=200, notes="A gate for each head; norms behind the branches; layer 1 is a convolution."),
    "laguna": Case(LAGUNA, long_prompt=45, notes="Layers have 4, 6 and 2 heads, with a softplus gate for each."),
    "laguna_gates": Case(
        LAGUNA | {"gating": "per-element"}, long_prompt=45, notes="A softplus gate for each element of a head."
    ),
    "flint": Case(FLINT, long_prompt=45, notes="Sinks; sigmoids without corrections; full layers do not know positions."),
    "kolibri1": Case(KOLIBRI1, long_prompt=45, notes="Logits are corrected for the choice; four norms a layer."),
    "lara_mini": Case(LARA_MINI, long_prompt=100, notes="All inputs of a state are one tensor; a window in layer 1."),
    "aria_text": Case(ARIA, long_prompt=45, notes="Experts share tensors, transposed."),
    "apertus1p5": Case(APERTUS1P5, long_prompt=45, notes="The head has fewer rows than the embedding."),
    "mllama": Case(MLLAMA, long_prompt=45, notes="Layer 1 attends to images only; the embedding has 8 more rows."),
    "emu3": Case(EMU3, long_prompt=45, notes="A Llama of images' tokens, without these."),
    "modernbert_decoder": Case(
        MODERNBERT_DECODER,
        long_prompt=45,
        jitter="tok_embeddings",
        notes="Two of three layers slide; layer 0 has no norm; a dense layer and a norm precede the head.",
    ),
    "got_ocr2": Case(
        beside_vision(QWEN2, GOT_OCR2),
        long_prompt=45,
        published_names=LLAVA_NAMES,
        notes="A Qwen 2 beside a vision tower, of zeros.",
    ),
    "cohere_compass": Case(COHERE_COMPASS, long_prompt=45, notes="Layer 0, which sees everything, does not know positions."),
}
