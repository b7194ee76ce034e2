"""quantization_config as published checkpoints have it, but with small groups."""

INT8 = {"num_bits": 8, "type": "int", "symmetric": True}
GROUP = {
    "input_activations": INT8 | {"dynamic": True, "observer": None, "strategy": "token"},
    "output_activations": None,
    "targets": ["Linear"],
    "weights": INT8 | {"dynamic": False, "group_size": None, "observer": "minmax", "strategy": "channel"},
}
QUANTISED = {
    "config_groups": {"group_0": GROUP},
    "format": "int-quantized",
    "ignore": ["lm_head"],
    "kv_cache_scheme": None,
    "quant_method": "compressed-tensors",
    "quantization_status": "compressed",
}
QUANTISED_NEW = QUANTISED | {
    "config_groups": {"group_0": GROUP | {"format": "int-quantized", "targets": [r"re:.*_proj$"]}},
    "ignore": ["re:lm_h.*d$", r"re:.*layers\.1\.mlp\.down_proj", "model.layers.0.self_attn.o_proj"],
    "sparsity_config": {},
}
del QUANTISED_NEW["format"]
MXFP4 = {
    "modules_to_not_convert": [
        "model.layers.*.self_attn",
        "model.layers.*.mlp.router",
        "model.embed_tokens",
        "lm_head",
    ],
    "quant_method": "mxfp4",
}
QUANTISED_EXPERTS = QUANTISED | {"ignore": ["lm_head", r"re:.*mlp\.gate$"]}

CHANNELS = {"dynamic": False, "group_size": None, "observer": "minmax", "strategy": "channel", "symmetric": True}
TOKENS = {"dynamic": True, "observer": None, "strategy": "token", "symmetric": True}
FLOAT = {"num_bits": 8, "type": "float"}


def compressed(tensors_format: str, weights: dict, activations: dict | None) -> dict:
    group = {"input_activations": activations, "output_activations": None, "targets": ["Linear"], "weights": weights}
    return QUANTISED | {"config_groups": {"group_0": group}, "format": tensors_format}


FP8_CHANNELS = compressed("float-quantized", CHANNELS | FLOAT, TOKENS | FLOAT)
FP8_TENSORS = compressed(
    "float-quantized",
    CHANNELS | FLOAT | {"strategy": "tensor"},
    TOKENS | FLOAT | {"dynamic": False, "strategy": "tensor"},
)
BITNET = {"linear_class": "autobitlinear", "quant_method": "bitnet", "quantization_mode": "offline"}
BITNET_DIVIDED = {"modules_to_not_convert": None, "quant_method": "bitnet"}
FP8 = {"activation_scheme": "static", "quant_method": "fp8", "weight_block_size": None}
FP8_BLOCKS = {
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "modules_to_not_convert": ["lm_head", "mlp.gate."],
    "quant_method": "fp8",
    "weight_block_size": [16, 24],
}
INT4_GROUPS = compressed(
    "int-quantized",
    CHANNELS | {"group_size": 32, "num_bits": 4, "strategy": "group", "symmetric": False, "type": "int"},
    TOKENS | INT8,
)
PACKED_GROUPS = compressed(
    "pack-quantized",
    CHANNELS
    | {"actorder": "weight", "group_size": 4, "num_bits": 4, "strategy": "group", "symmetric": False, "type": "int"},
    None,
)
PACKED_CHANNELS = compressed("pack-quantized", CHANNELS | INT8, None)
PACKED_BESIDE_VISION = PACKED_CHANNELS | {
    "ignore": ["lm_head", r"re:model\.visual.*", "re:mtp.*", "model.language_model.layers.0.mlp.up_proj"],
}
NVFP4 = compressed(
    "nvfp4-pack-quantized",
    CHANNELS | {"actorder": None, "group_size": 16, "num_bits": 4, "strategy": "tensor_group", "type": "float"},
    TOKENS | {"dynamic": "local", "group_size": 16, "num_bits": 4, "strategy": "tensor_group", "type": "float"},
)
GPTQ = {
    "bits": 4,
    "damp_percent": 0.01,
    "desc_act": False,
    "group_size": 32,
    "quant_method": "gptq",
    "static_groups": False,
    "sym": False,
    "true_sequential": True,
}
GPTQ_ORDER = GPTQ | {
    "bits": 8,
    "checkpoint_format": "gptq_v2",
    "desc_act": True,
    "dynamic": None,
    "group_size": 16,
    "meta": {"quantizer": ["gptqmodel:1.4.0"]},
    "pack_dtype": "int32",
}
AWQ = {
    "backend": "autoawq",
    "bits": 4,
    "do_fuse": False,
    "group_size": 4,
    "modules_to_not_convert": None,
    "quant_method": "awq",
    "version": "gemm",
    "zero_point": True,
}
AWQ_EXPERTS = AWQ | {"group_size": 8, "modules_to_not_convert": ["lm_head", "gate"]}
