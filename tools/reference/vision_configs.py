"""Configs of models that see: what stands around the language model's fields."""

VISION = {
    "head_dim": 8,
    "hidden_size": 8,
    "image_size": 8,
    "intermediate_size": 8,
    "num_attention_heads": 1,
    "num_hidden_layers": 1,
    "patch_size": 4,
}


def beside_vision(text: dict, outer: dict) -> dict:
    """The folder of a model that sees: the language model's fields in text_config."""
    shared = {k: text[k] for k in ("eos_token_id", "tie_word_embeddings", "torch_dtype")}
    inner = {k: v for k, v in text.items() if k not in (*shared, "architectures")}
    return shared | {"text_config": inner} | outer


# Names of tensors in transformers, and in files.
LLAVA_NAMES = {
    "model.language_model.": "language_model.model.",
    "lm_head.": "language_model.lm_head.",
    "model.vision_tower.": "vision_tower.",
    "model.multi_modal_projector.": "multi_modal_projector.",
}
QWEN2_VL_NAMES = {"model.language_model.": "model.", "lm_head.": "lm_head.", "model.visual.": "visual."}

GEMMA3_VISION = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "boi_token_index": 4,
    "eoi_token_index": 5,
    "image_token_index": 6,
    "initializer_range": 0.02,
    "mm_tokens_per_image": 4,
    "model_type": "gemma3",
    "vision_config": VISION | {"model_type": "siglip_vision_model", "vision_use_head": False},
}
QWEN3_5_VISION = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "image_token_id": 6,
    "model_type": "qwen3_5",
    "video_token_id": 7,
    "vision_config": {
        "depth": 1,
        "hidden_size": 8,
        "intermediate_size": 8,
        "model_type": "qwen3_5",
        "num_heads": 1,
        "num_position_embeddings": 4,
        "out_hidden_size": 28,
        "patch_size": 4,
        "spatial_merge_size": 1,
        "temporal_patch_size": 1,
    },
    "vision_end_token_id": 5,
    "vision_start_token_id": 4,
}
MISTRAL3_VISION = {
    "architectures": ["Mistral3ForConditionalGeneration"],
    "image_token_index": 6,
    "model_type": "mistral3",
    "multimodal_projector_bias": False,
    "projector_hidden_act": "gelu",
    "spatial_merge_size": 2,
    "vision_config": VISION | {"model_type": "pixtral"},
    "vision_feature_layer": -1,
}
QWEN2_5_VL_VISION = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "image_token_id": 6,
    "model_type": "qwen2_5_vl",
    "rope_scaling": {"mrope_section": [2, 3, 2], "type": "mrope"},
    "video_token_id": 7,
    "vision_config": {
        "depth": 1,
        "fullatt_block_indexes": [0],
        "hidden_act": "silu",
        "hidden_size": 8,
        "intermediate_size": 8,
        "model_type": "qwen2_5_vl",
        "num_heads": 1,
        "out_hidden_size": 56,
        "patch_size": 4,
        "spatial_merge_size": 1,
        "temporal_patch_size": 1,
        "window_size": 8,
    },
    "vision_end_token_id": 5,
    "vision_start_token_id": 4,
    "vision_token_id": 8,
}
QWEN3_VL_VISION = QWEN3_5_VISION | {
    "architectures": ["Qwen3VLForConditionalGeneration"],
    "model_type": "qwen3_vl",
    "vision_config": QWEN3_5_VISION["vision_config"]
    | {"deepstack_visual_indexes": [0], "model_type": "qwen3_vl", "out_hidden_size": 44},
}
SMOLVLM_VISION = {
    "architectures": ["SmolVLMForConditionalGeneration"],
    "image_token_id": 6,
    "model_type": "smolvlm",
    "scale_factor": 2,
    "vision_config": VISION | {"max_image_size": {"longest_edge": 8}, "model_type": "smolvlm_vision"},
}
