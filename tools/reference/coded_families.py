"""The rows of the table of tiny models whose files hold codes."""

from case import Case, Codes, heads, mlp
from configs import GPT_OSS_MXFP4, LLAMA, MINISTRAL3, MIXTRAL, PHI3, QWEN2, QWEN3, QWEN3_5, QWEN3_MOE
from layer_norm_configs import GPT_NEOX, GPT_NEOX_NAMES
from newer_configs import BITNET_MODEL, GLM
from quantisation_configs import (
    AWQ,
    AWQ_EXPERTS,
    BITNET,
    BITNET_DIVIDED,
    FP8,
    FP8_BLOCKS,
    FP8_CHANNELS,
    FP8_TENSORS,
    GPTQ,
    GPTQ_ORDER,
    INT4_GROUPS,
    NVFP4,
    PACKED_BESIDE_VISION,
    PACKED_GROUPS,
    QUANTISED,
    QUANTISED_EXPERTS,
    QUANTISED_NEW,
)
from vision_configs import QWEN3_5_VISION, beside_vision

CODED_CASES = {
    "llama_codes": Case(
        LLAMA | mlp(60) | {"torch_dtype": "float16"},
        shards=2,
        codes=Codes(QUANTISED_NEW, "float32", 1),
        notes="int8 codes with fp32 scales [n], chosen by expressions; three matrices have none, two of them linear "
        "layers that w8a8 quantises from the stored fp16 values.",
    ),
    "qwen3_ternary": Case(
        QWEN3 | heads(2, 1, 64) | mlp(128) | {"hidden_size": 128, "tie_word_embeddings": False},
        ternary=True,
        not_ternary=("layers.1.self_attn.v_proj",),
        notes="Bf16 weights that are -s, 0 or s in groups of 128 inputs, taken as they are; those of one matrix are not.",
    ),
    "bitnet": Case(
        BITNET_MODEL,
        long_prompt=45,
        codes=Codes(BITNET),
        notes="Ternary codes, four to a byte, and one bf16 scale a matrix, taken as they are; norms before o and down.",
    ),
    "bitnet_divided": Case(
        BITNET_MODEL | {"intermediate_size": 128, "num_hidden_layers": 1},
        long_prompt=45,
        codes=Codes(BITNET_DIVIDED),
        notes="Codes that are divided by the scale: the quotient has more bits than bf16.",
    ),
    "qwen3_codes": Case(
        QWEN3,
        codes=Codes(QUANTISED),
        notes="int8 codes in [-128, 127] with bf16 scales [n, 1], taken as they are. Mode none: code * scale in fp32, "
        "rounded to bf16.",
    ),
    "qwen3_moe_codes": Case(
        QWEN3_MOE | {"num_experts": 4, "num_experts_per_tok": 4},
        long_prompt=45,
        codes=Codes(QUANTISED_EXPERTS),
        notes="int8 codes of every expert; the router, as always, has none. Every token takes every expert.",
    ),
    "gpt_oss_mxfp4": Case(
        GPT_OSS_MXFP4,
        long_prompt=45,
        mxfp4=True,
        notes="Random 4-bit codes, all sixteen of them; transformers gets what they stand for. w8a8 quantises that again.",
    ),
    "qwen3_5_mtp_beside_vision_packed": Case(
        beside_vision(QWEN3_5 | {"tie_word_embeddings": False}, QWEN3_5_VISION),
        long_prompt=45,
        norm_mean=0.0,
        mtp=True,
        codes=Codes(PACKED_BESIDE_VISION),
        notes="The MTP layer of a file whose other layers are codes.",
    ),
    "qwen3_fp8_channels": Case(
        QWEN3,
        codes=Codes(FP8_CHANNELS),
        notes="compressed-tensors float-quantized: FP8 codes, bf16 scales [n, 1]. Numbers are code * scale in fp32.",
    ),
    "llama_fp8_tensors": Case(
        LLAMA | mlp(60),
        codes=Codes(FP8_TENSORS, "float32"),
        notes="compressed-tensors float-quantized: one fp32 scale a matrix, and one of its inputs, which is not used.",
    ),
    "ministral3_fp8": Case(
        MINISTRAL3,
        long_prompt=45,
        codes=Codes(FP8),
        notes="quant_method fp8 without blocks: weight_scale_inv and activation_scale are single numbers.",
    ),
    "qwen3_moe_fp8_blocks": Case(
        QWEN3_MOE | {"num_experts": 4, "num_experts_per_tok": 2},
        long_prompt=45,
        codes=Codes(FP8_BLOCKS, "float32"),
        notes="quant_method fp8, a scale for each block, some blocks cut off at the edges; routers have no codes.",
    ),
    "qwen2_w4a8": Case(
        QWEN2 | mlp(96) | {"hidden_size": 64},
        codes=Codes(INT4_GROUPS),
        notes="compressed-tensors int-quantized: 4-bit codes and their zeros in bytes, bf16 scales.",
    ),
    "qwen3_packed": Case(
        QWEN3,
        codes=Codes(PACKED_GROUPS),
        notes="compressed-tensors pack-quantized: 4 bits with zeros; rows and zeros that end inside a word.",
    ),
    "qwen3_5_beside_vision_packed": Case(
        beside_vision(QWEN3_5, QWEN3_5_VISION),
        long_prompt=45,
        norm_mean=0.0,
        beside=("mtp.fc.weight", "mtp.norm.weight"),
        codes=Codes(PACKED_BESIDE_VISION),
        notes="compressed-tensors pack-quantized: 8 bits. What has no codes is named with model.language_model in "
        "front.",
    ),
    "llama_nvfp4": Case(
        LLAMA | mlp(64) | {"hidden_size": 48, "num_attention_heads": 4},
        codes=Codes(NVFP4),
        notes="compressed-tensors nvfp4-pack-quantized: E2M1 codes, FP8 scales of 16 numbers, one divisor a matrix.",
    ),
    "llama_gptq": Case(
        LLAMA | mlp(88) | {"torch_dtype": "float16"},
        codes=Codes(GPTQ, "float16"),
        notes="GPTQ, 4 bits, zeros stored less one, a last group of another size.",
    ),
    "llama_gptq_order": Case(
        LLAMA | mlp(64) | {"torch_dtype": "float16"},
        codes=Codes(GPTQ_ORDER, "float16"),
        notes="GPTQ v2, 8 bits, inputs in an order of their own (desc_act).",
    ),
    "phi3_awq": Case(
        PHI3,
        long_prompt=45,
        codes=Codes(AWQ, "float16"),
        notes="AWQ; fused matrices, of which one parts inside a word.",
    ),
    "mixtral_awq": Case(
        MIXTRAL | {"hidden_size": 32, "intermediate_size": 24},
        long_prompt=45,
        codes=Codes(AWQ_EXPERTS, "float16"),
        notes="AWQ, every expert; routers have no codes.",
    ),
    "glm_codes": Case(
        GLM,
        long_prompt=200,
        codes=Codes(QUANTISED),
        notes="int8 codes of rows that are put in another order.",
    ),
    "glm_gptq": Case(
        GLM | mlp(88) | {"head_dim": 12, "hidden_size": 48, "torch_dtype": "float16"},
        long_prompt=200,
        codes=Codes(GPTQ, "float16"),
        notes="GPTQ, 4 bits, of rows that are put in another order.",
    ),
    "gpt_neox_codes": Case(
        GPT_NEOX,
        long_prompt=200,
        jitter="embed_in",
        published_names=GPT_NEOX_NAMES,
        codes=Codes(QUANTISED | {"ignore": ["embed_out"]}),
        notes="int8 codes of a tensor in which each head has its rows of q, k and v together.",
    ),
    "gpt_neox_gptq": Case(
        GPT_NEOX | mlp(88),
        long_prompt=200,
        jitter="embed_in",
        codes=Codes(GPTQ, "float16"),
        notes="GPTQ, 4 bits, of such a tensor.",
    ),
}
