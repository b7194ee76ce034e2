"""The table of tiny models that make_families.py makes."""

from altup_families import ALTUP_CASES
from case import Case, heads, mlp
from coded_families import CODED_CASES
from configs import (
    DYNAMIC,
    GEMMA2,
    GEMMA3,
    GPT_OSS,
    GRANITE,
    HUNYUAN,
    LINEAR,
    LLAMA,
    LLAMA1,
    LLAMA3,
    LONGROPE,
    LONGROPE_PARTIAL,
    MINISTRAL3,
    MISTRAL,
    MIXTRAL,
    OLMO2,
    PHI3,
    QWEN2,
    QWEN3,
    QWEN3_5,
    QWEN3_MOE,
    QWEN3_MOE_MIXED,
    SMOLLM2,
    SMOLLM3,
    TINYLLAMA,
    YARN,
    YARN_ATTENTION_FACTOR,
    YARN_MSCALE,
    by_layer_type,
    spelled_new,
)
from further_families import FURTHER_CASES
from gemma4_families import GEMMA4_CASES
from latent_families import LATENT_CASES
from layer_norm_configs import (
    COHERE,
    COHERE2,
    COHERE2_LAYER_TYPES,
    COHERE_QK_NORM,
    GPT_NEOX,
    GPT_NEOX_NAMES,
    GPT_NEOX_SEQUENTIAL,
    PHI,
    STABLELM,
    STABLELM_PARALLEL,
    STARCODER2,
    STARCODER2_WINDOW,
)
from mixture_families import MIXTURE_CASES
from newer_configs import (
    APERTUS,
    ARCEE,
    CWM,
    ERNIE4_5,
    EXAONE4,
    EXAONE4_HYBRID,
    GEMMA,
    GLM,
    GLM4,
    GLM4_MOE,
    GLM_EDGE,
    GRANITE_MOE,
    GRANITE_MOE_HYBRID,
    GRANITE_MOE_SHARED,
    HELIUM,
    HUNYUAN_MOE,
    NEMOTRON,
    OLMO3,
    OLMO3_PATTERN,
    OLMOE,
    QWEN2_MOE,
    QWEN3_5_MOE,
    QWEN3_VL,
    SEED_OSS,
    SMOLVLM_TEXT,
    VAULTGEMMA,
)
from position_families import POSITION_CASES
from recurrent_families import RECURRENT_CASES
from sliding_families import SLIDING_CASES
from vision_configs import (
    GEMMA3_VISION,
    LLAVA_NAMES,
    MISTRAL3_VISION,
    QWEN2_5_VL_VISION,
    QWEN2_VL_NAMES,
    QWEN3_5_VISION,
    QWEN3_VL_VISION,
    SMOLVLM_VISION,
    beside_vision,
)

PLAIN_CASES = {
    "llama": Case(LLAMA1),
    "llama_gqa": Case(LLAMA | {"max_position_embeddings": 512}, long_prompt=300),
    "tinyllama": Case(TINYLLAMA, long_prompt=45),
    "smollm2": Case(SMOLLM2, long_prompt=45),
    "llama3_rope_scaling": Case(LLAMA3),
    "llama3_rope_parameters": Case(spelled_new(LLAMA3)),
    "llama_linear": Case(LLAMA | {"rope_scaling": LINEAR}),
    "llama_dynamic": Case(
        LLAMA | heads(3, 3, 16) | mlp(84) | {"max_position_embeddings": 64, "rope_scaling": DYNAMIC},
        notes="As transformers' generate() with a cache: all positions of a prompt are rotated with the base for "
        "max(prompt length, max_position_embeddings), each later token with the base for the length that it makes, "
        "and a key keeps its rotation. The long prompt exceeds max_position_embeddings (64).",
    ),
    "llama_yarn_mscale": Case(LLAMA | heads(3, 1, 16) | {"rope_scaling": YARN_MSCALE}),
    "llama_bias": Case(LLAMA | heads(3, 3, 20) | mlp(76) | {"attention_bias": True, "mlp_bias": True}),
    "llama_sharded": Case(LLAMA | mlp(60) | {"num_hidden_layers": 3}, shards=3),
    "llama_f16": Case(
        LLAMA | {"torch_dtype": "float16"},
        notes="Mode none: matrices rounded to bf16, norms as stored. w8a8: codes from the stored fp16 values.",
    ),
    "llama_f32": Case(
        LLAMA | mlp(68) | {"hidden_size": 36, "torch_dtype": "float32"},
        notes="Mode none: matrices rounded to bf16, norms as stored. w8a8: codes from the stored fp32 values.",
    ),
    "llama_mixed": Case(
        LLAMA | mlp(76),
        dtypes=("bfloat16", "float32", "float16", "bfloat16"),
        notes="Tensors of all three types in one file, each taken as stored.",
    ),
    "qwen2": Case(QWEN2),
    "qwen2_window": Case(
        QWEN2
        | mlp(84)
        | {"hidden_size": 40, "num_hidden_layers": 3, "max_window_layers": 1, "use_sliding_window": True}
    ),
    "qwen2_yarn": Case(
        QWEN2 | {"max_position_embeddings": 32, "rope_scaling": YARN},
        notes="max_position_embeddings stays at the trained length, as Qwen2.5's model cards advise; the context that "
        "yarn serves is factor * original_max_position_embeddings = 128.",
    ),
    "qwen3": Case(QWEN3),
    "qwen3_yarn": Case(spelled_new(QWEN3 | {"rope_scaling": YARN_ATTENTION_FACTOR})),
    "qwen3_moe": Case(QWEN3_MOE, long_prompt=45),
    "qwen3_moe_mixed": Case(QWEN3_MOE_MIXED, long_prompt=45, notes="Layer 1 alone has experts."),
    "mistral": Case(MISTRAL),
    "mistral_window": Case(
        MISTRAL | heads(5, 1, 10) | {"max_position_embeddings": 512, "sliding_window": 20}, long_prompt=300
    ),
    "granite": Case(GRANITE, long_prompt=45),
    "granite_bias": Case(
        spelled_new(
            GRANITE
            | heads(3, 1, 12)
            | mlp(36)
            | {
                "attention_bias": True,
                "embedding_multiplier": 1.5,
                "logits_scaling": 0.4,
                "mlp_bias": True,
                "tie_word_embeddings": True,
            }
        ),
        long_prompt=45,
        notes="The biases of o_proj and down_proj are under residual_multiplier too.",
    ),
    "olmo2": Case(
        OLMO2, long_prompt=45, jitter="norm", notes="Layer 0 quantises embeddings as they are: those bits are exact."
    ),
    "mixtral": Case(MIXTRAL, long_prompt=45),
    "mixtral_window": Case(
        spelled_new(MIXTRAL | {"rope_scaling": None, "sliding_window": 20})
        | {"num_experts_per_tok": 1, "num_local_experts": 3},
        long_prompt=45,
        notes="One expert a token: its weight is 1.",
    ),
    "smollm3": Case(
        SMOLLM3, long_prompt=45, notes="Layer 1 does not know positions: no_rope_layer_interval 2, 1 means with rope."
    ),
    "smollm3_window": Case(
        spelled_new(SMOLLM3 | {"no_rope_layers": [0, 1, 0, 1], "sliding_window": 20, "use_sliding_window": True}),
        long_prompt=45,
        notes="no_rope_layers may be longer than the model. Layers that do not know positions slide.",
    ),
    "phi3": Case(PHI3 | {"partial_rotary_factor": 0.5}, long_prompt=45),
    "phi3_longrope": Case(
        PHI3 | {"original_max_position_embeddings": 64, "rope_scaling": LONGROPE, "sliding_window": 300},
        notes="The long prompt takes the long factors from its first token on. The short prompt's continuation stays "
        "below original_max_position_embeddings (64).",
    ),
    "phi3_crossing": Case(
        spelled_new(
            PHI3
            | mlp(36)
            | {
                "original_max_position_embeddings": 20,
                "partial_rotary_factor": 0.5,
                "rope_scaling": LONGROPE_PARTIAL,
                "sliding_window": None,
            }
        ),
        long_prompt=45,
        use_cache=False,
        notes="When the short prompt's continuation outgrows original_max_position_embeddings (20), all of it is "
        "evaluated anew with the long factors. transformers' generate() drops its cache there too, but since 5.12 at "
        "the latest keeps only the last token of the input beside it: recorded without a cache.",
    ),
    "gemma2": Case(GEMMA2, long_prompt=45, norm_mean=0.0),
    "gemma3": Case(GEMMA3, long_prompt=45, norm_mean=0.0),
    "gemma3_layer_types": Case(
        by_layer_type(GEMMA3 | {"final_logit_softcapping": 1.5}), long_prompt=45, norm_mean=0.0
    ),
    "gemma3_beside_vision": Case(
        beside_vision(GEMMA3, GEMMA3_VISION),
        long_prompt=45,
        norm_mean=0.0,
        published_names=LLAVA_NAMES,
        notes="The vision tower and its projector are there, of zeros.",
    ),
    "gpt_oss": Case(GPT_OSS, long_prompt=45, notes="Layer 0 slides. Gates and values reach the limit of 7."),
    "hunyuan": Case(HUNYUAN, long_prompt=45),
    "mistral_beside_vision": Case(
        beside_vision(MISTRAL | heads(4, 2, 8) | mlp(44) | {"hidden_size": 32, "vocab_size": 120}, MISTRAL3_VISION),
        long_prompt=45,
        published_names=LLAVA_NAMES,
        notes="The vision tower and its projector are there, of zeros.",
    ),
    "ministral3": Case(MINISTRAL3, long_prompt=45, notes="The factor of the queries grows every 16 positions."),
    "qwen3_5": Case(
        QWEN3_5,
        norm_mean=0.0,
        notes="Two layers with a recurrent state, one with attention; head widths of no multiple of 16. The long prompt "
        "takes transformers two chunks of 64.",
    ),
    "qwen3_5_value_heads": Case(
        {k: v for k, v in QWEN3_5.items() if k not in ("full_attention_interval", "partial_rotary_factor")}
        | {
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "linear_key_head_dim": 16,
            "linear_num_value_heads": 6,
            "linear_value_head_dim": 8,
            "tie_word_embeddings": False,
        },
        norm_mean=0.0,
        notes="Each key head serves three value heads.",
    ),
    "qwen3_5_beside_vision": Case(
        beside_vision(QWEN3_5, QWEN3_5_VISION),
        long_prompt=45,
        norm_mean=0.0,
        beside=("mtp.fc.weight", "mtp.norm.weight", "mtp.layers.0.self_attn.q_proj.weight"),
        notes="The vision tower and the layer that predicts a second token are there, of zeros.",
    ),
    "qwen3_5_mtp": Case(
        QWEN3_5 | {"mtp_use_dedicated_embeddings": False},
        norm_mean=0.0,
        mtp=True,
        notes="What the MTP layer says is recorded, too.",
    ),
    "exaone4": Case(EXAONE4, long_prompt=200, jitter="norm", notes="Without a window every layer knows positions."),
    "exaone4_hybrid": Case(
        EXAONE4_HYBRID,
        long_prompt=200,
        jitter="norm",
        notes="Layer 1, which sees everything, does not know positions.",
    ),
    "olmo3": Case(OLMO3, long_prompt=200, jitter="norm", notes="Yarn is for the layer that sees everything alone."),
    "olmo3_pattern": Case(
        OLMO3_PATTERN,
        long_prompt=200,
        jitter="norm",
        notes="Three of four layers slide without layer_types saying so; a theta for either kind.",
    ),
    "olmoe": Case(OLMOE, long_prompt=200),
    "gemma": Case(GEMMA, long_prompt=200, norm_mean=0.0, notes="gelu is meant to be the one with tanh."),
    "vaultgemma": Case(VAULTGEMMA, long_prompt=200, norm_mean=0.0),
    "seed_oss": Case(SEED_OSS, long_prompt=200),
    "seed_oss_bias": Case(
        SEED_OSS | {"attention_bias": False, "attention_out_bias": True, "mlp_bias": True}, long_prompt=200
    ),
    "cwm": Case(CWM, long_prompt=200, notes="The first of four layers sees everything, by default."),
    "qwen2_5_vl": Case(
        QWEN2 | QWEN2_5_VL_VISION,
        long_prompt=200,
        published_names=QWEN2_VL_NAMES,
        notes="One object for the language model and what is around it, as published. The vision tower is there, of "
        "zeros.",
    ),
    "qwen3_vl": Case(
        beside_vision(QWEN3_VL, QWEN3_VL_VISION),
        long_prompt=200,
        notes="The vision tower is there, of zeros.",
    ),
    "smolvlm": Case(
        beside_vision(SMOLVLM_TEXT, SMOLVLM_VISION),
        long_prompt=200,
        notes="A Llama named text_model. The vision tower and its connector are there, of zeros.",
    ),
    "granite_moe": Case(
        GRANITE_MOE, long_prompt=200, notes="The experts' matrices follow one another in one tensor of a layer."
    ),
    "granite_moe_hybrid": Case(GRANITE_MOE_HYBRID, long_prompt=200, notes="Neither Mamba layers nor experts."),
    "granite_moe_hybrid_nope": Case(
        spelled_new(GRANITE_MOE_HYBRID)
        | {
            "attention_bias": True,
            "layer_types": ["full_attention", "full_attention"],
            "position_embedding_type": None,
            "tie_word_embeddings": False,
        },
        long_prompt=200,
        notes="No layer knows positions.",
    ),
    "ernie4_5": Case(ERNIE4_5, long_prompt=200, notes="Rope turns neighbours."),
    "ernie4_5_bias": Case(
        ERNIE4_5 | {"tie_word_embeddings": False, "use_bias": True}, long_prompt=200, notes="Rope turns neighbours."
    ),
    "helium": Case(HELIUM, long_prompt=200, notes="Rope turns neighbours."),
    "glm": Case(GLM, long_prompt=200, notes="Rope turns neighbours, in half of each head."),
    "glm_edge": Case(GLM_EDGE, long_prompt=200, notes="Rope turns neighbours, in all of each head."),
    "glm4": Case(GLM4, long_prompt=200, notes="Rope turns neighbours, in half of each head. Four norms a layer."),
    "arcee": Case(ARCEE, long_prompt=200, notes="The mlp has no gate: down(relu(up)^2)."),
    "arcee_bias": Case(
        ARCEE | heads(4, 4, 12) | {"attention_bias": True, "mlp_bias": True, "rope_scaling": None}, long_prompt=200
    ),
    "apertus": Case(APERTUS, long_prompt=200, notes="The mlp has no gate, and a curve of each layer's own."),
    "nemotron": Case(NEMOTRON, long_prompt=200, norm_mean=0.0, notes="LayerNorm by 1 + w. Half of a head is rotated."),
    "nemotron_bias": Case(
        spelled_new(NEMOTRON) | {"attention_bias": True, "mlp_bias": True}, long_prompt=200, norm_mean=0.0
    ),
    "qwen2_moe": Case(
        QWEN2_MOE, long_prompt=200, notes="A shared expert, weighed by a sigmoid of its own."
    ),
    "qwen2_moe_mixed": Case(
        QWEN2_MOE | {"mlp_only_layers": [0], "norm_topk_prob": True, "qkv_bias": False},
        long_prompt=200,
        notes="Layer 1 alone has experts, one of them shared.",
    ),
    "granite_moe_shared": Case(
        GRANITE_MOE_SHARED, long_prompt=200, notes="A shared expert, whose gate and up are rows of one tensor."
    ),
    "hunyuan_moe": Case(HUNYUAN_MOE, long_prompt=200, notes="A shared expert."),
    "glm4_moe": Case(
        GLM4_MOE,
        long_prompt=200,
        notes="Sigmoids choose, corrected, and weigh, uncorrected. Layer 0 has no experts.",
    ),
    "glm4_moe_qk_norm": Case(
        spelled_new(GLM4_MOE)
        | {"attention_bias": False, "n_shared_experts": 2, "norm_topk_prob": False, "use_qk_norm": True},
        long_prompt=200,
        notes="What is shared is as large as two experts.",
    ),
    "qwen3_5_moe": Case(
        QWEN3_5_MOE,
        long_prompt=200,
        norm_mean=0.0,
        notes="As qwen3_5, with experts in one tensor of a layer and a shared one.",
    ),
    "starcoder2": Case(STARCODER2, long_prompt=200, notes="LayerNorm and biases. The mlp has no gate."),
    "starcoder2_window": Case(STARCODER2_WINDOW, long_prompt=200, notes="LayerNorm still has biases."),
    "phi": Case(
        PHI,
        long_prompt=200,
        notes="Branches are parallel, and one norm is for both. The head has a bias. 4 of a head's 10 numbers are "
        "rotated.",
    ),
    "cohere": Case(COHERE, long_prompt=200, notes="Parallel branches under one norm. Rope turns neighbours."),
    "cohere_qk_norm": Case(
        COHERE_QK_NORM, long_prompt=200, notes="LayerNorm of every head by weights of its own, before the rotation."
    ),
    "cohere2": Case(COHERE2, long_prompt=200, notes="Layer 1, which sees everything, does not know positions."),
    "cohere2_layer_types": Case(
        COHERE2_LAYER_TYPES, long_prompt=200, notes="Layer 0, which sees everything, does not know positions."
    ),
    "stablelm": Case(STABLELM, long_prompt=200, notes="LayerNorm. A quarter of a head is rotated."),
    "stablelm_parallel": Case(
        STABLELM_PARALLEL,
        long_prompt=200,
        notes="Parallel branches under one norm; the norms of each head of queries and keys are tensors of their own.",
    ),
    "gpt_neox": Case(
        GPT_NEOX,
        long_prompt=200,
        jitter="embed_in",
        published_names=GPT_NEOX_NAMES,
        beside=(
            "gpt_neox.layers.0.attention.bias",
            "gpt_neox.layers.0.attention.masked_bias",
            "gpt_neox.layers.0.attention.rotary_emb.inv_freq",
        ),
        notes="Parallel branches under two norms. Each head has its rows of q, k and v together. The mlp is "
        "down(gelu(up)), without tanh. Tables that old files have are there, of zeros.",
    ),
    "gpt_neox_sequential": Case(
        GPT_NEOX_SEQUENTIAL, long_prompt=200, jitter="embed_in", notes="gelu_fast is the one with tanh."
    ),
}
CASES = PLAIN_CASES | RECURRENT_CASES | LATENT_CASES | ALTUP_CASES | GEMMA4_CASES | FURTHER_CASES | POSITION_CASES | SLIDING_CASES | MIXTURE_CASES | CODED_CASES
