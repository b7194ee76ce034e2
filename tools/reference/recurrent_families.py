"""Tiny models with recurrent layers: rows of families.py's table."""

from case import Case
from newer_recurrent_configs import OLMO_HYBRID, OLMO_HYBRID_ROPE, RECURRENT_GEMMA, ZAMBA2, ZAMBA2_BLOCKS
from recurrent_configs import (
    BAILING_HYBRID,
    FALCON_H1,
    FALCON_H1_NORM,
    FALCON_MAMBA,
    GRANITE_HYBRID,
    GRANITE_HYBRID_MOE,
    JAMBA,
    JAMBA_DENSE,
    KIMI_LINEAR,
    KIMI_LINEAR_TYPES,
    LFM2,
    LFM2_LAYER_TYPES,
    LFM2_MOE,
    MAMBA,
    MAMBA2,
    MAMBA_BIAS,
    NEMOTRON_H,
    NEMOTRON_H_LAYER_TYPES,
    NEMOTRON_H_MOE,
    QWEN3_NEXT,
)

RECURRENT_CASES = {
    "lfm2": Case(
        LFM2,
        long_prompt=200,
        notes="Two layers are a convolution between two gates; a field's older name, and a width that is adjusted.",
    ),
    "lfm2_layer_types": Case(
        LFM2_LAYER_TYPES, long_prompt=200, notes="Biases of the convolution and of what is before and behind it."
    ),
    "lfm2_moe": Case(
        LFM2_MOE, long_prompt=200, notes="Sigmoids, corrected for the choice. The first layer has no experts."
    ),
    "granite_hybrid": Case(
        GRANITE_HYBRID, long_prompt=200, notes="Two layers are Mamba 2, with keys of no multiple of 16; no layer has a rope."
    ),
    "granite_hybrid_moe": Case(
        GRANITE_HYBRID_MOE,
        long_prompt=200,
        notes="Beside experts; two groups of heads, normed each for itself; biases of the matrices and none of the "
        "convolution.",
    ),
    "falcon_h1": Case(
        FALCON_H1,
        long_prompt=200,
        notes="Every layer attends and has a Mamba 2 beside it; each part's outputs have a multiplier.",
    ),
    "falcon_h1_norm": Case(
        FALCON_H1_NORM, long_prompt=200, notes="Mamba's output is normed, in two groups; biases of all but its inputs."
    ),
    "nemotron_h": Case(
        NEMOTRON_H,
        long_prompt=200,
        jitter="embeddings",
        notes="Each layer is a Mamba 2, an attention without positions, or an mlp without a gate.",
    ),
    "nemotron_h_layer_types": Case(
        NEMOTRON_H_LAYER_TYPES,
        long_prompt=200,
        jitter="embeddings",
        notes="Biases of Mamba's matrices and the mlp, none of the convolution.",
    ),
    "nemotron_h_moe": Case(
        NEMOTRON_H_MOE,
        long_prompt=200,
        jitter="embeddings",
        notes="Two layers are experts without gates, chosen by corrected sigmoids, and one of all tokens.",
    ),
    "qwen3_next": Case(
        QWEN3_NEXT,
        long_prompt=200,
        norm_mean=0.0,
        notes="As qwen3_5_moe, with experts one by one, and each key head's rows of q, k, v and z, or of b and a, together.",
    ),
    "mamba": Case(MAMBA, long_prompt=200, jitter="embeddings", notes="No layer attends; a tied head."),
    "mamba_bias": Case(
        MAMBA_BIAS, long_prompt=200, jitter="embeddings", notes="Biases of all but the convolution; a rank by default."
    ),
    "falcon_mamba": Case(
        FALCON_MAMBA, long_prompt=200, jitter="embeddings", notes="Steps, keys and queries are normed without weights."
    ),
    "mamba2": Case(MAMBA2, long_prompt=200, jitter="embeddings", notes="Mamba 2 in all layers, and no mlp."),
    "jamba": Case(
        JAMBA, long_prompt=200, notes="Layer 1 attends, without positions; layers 0 and 2 are Mamba 1 and have experts."
    ),
    "jamba_dense": Case(JAMBA_DENSE, long_prompt=200, notes="One expert is an mlp; biases of all but the convolution."),
    "kimi_linear": Case(
        KIMI_LINEAR,
        long_prompt=200,
        notes="Two layers have a state whose keys decay by channel, one latent attention without positions. Decays and gates "
        "come from narrow vectors. The long prompt takes transformers four chunks of 64.",
    ),
    "kimi_linear_types": Case(
        KIMI_LINEAR_TYPES, long_prompt=200, notes="Lists of layers as transformers writes them; queries from a latent."
    ),
    "bailing_hybrid": Case(
        BAILING_HYBRID,
        long_prompt=200,
        beside=("model.layers.3.eh_proj.weight",),
        notes="As kimi_linear, with bounded decays and without narrow vectors. Latent attention has rope and a gate for each "
        "head. A layer that predicts a second token is there, of zeros.",
    ),
    "olmo_hybrid": Case(
        OLMO_HYBRID,
        long_prompt=200,
        notes="Two layers are gated DeltaNet with norms before the branches, one attends without positions and has them behind. "
        "A token may turn a state around.",
    ),
    "olmo_hybrid_rope": Case(OLMO_HYBRID_ROPE, long_prompt=200, notes="Attention with rope; write gates up to one."),
    "zamba2": Case(
        ZAMBA2,
        long_prompt=200,
        notes="Mamba 2 in all layers, and before two of them the same block of attention and an mlp, which reads the embedding, "
        "too, with changes of low rank for each use.",
    ),
    "zamba2_blocks": Case(
        ZAMBA2_BLOCKS, long_prompt=200, notes="Two blocks in turn, with biases and without positions; mlps alone have changes."
    ),
    "recurrent_gemma": Case(
        RECURRENT_GEMMA,
        long_prompt=200,
        norm_mean=0.0,
        notes="Two layers are RG-LRU, whose channels decay by gates of blocks; one has a window, with rope on half of a head. "
        "The published heads are tied.",
    ),
}
