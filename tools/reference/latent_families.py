"""Tiny models with latent attention: rows of families.py's table."""

from case import Case
from configs import spelled_new
from latent_configs import DEEPSEEK_V2, DEEPSEEK_V3, GLM4_MOE_LITE, MINICPM3

LATENT_CASES = {
    "deepseek_v2": Case(
        DEEPSEEK_V2,
        long_prompt=200,
        notes="Latent attention; queries are made of the stream. Keys are wider than values. Yarn stretches the scores.",
    ),
    "deepseek_v2_groups": Case(
        spelled_new(DEEPSEEK_V2)
        | {
            "n_group": 4,
            "q_lora_rank": 28,
            "routed_scaling_factor": 3.0,
            "topk_group": 2,
            "topk_method": "group_limited_greedy",
        },
        long_prompt=200,
        notes="Queries are made of a latent. Experts are those of two groups in four, by each group's best.",
    ),
    "deepseek_v3": Case(
        DEEPSEEK_V3,
        long_prompt=200,
        notes="Sigmoids, corrected, choose two groups of experts by each group's best two, then experts.",
    ),
    "deepseek_v3_plain": Case(
        spelled_new(DEEPSEEK_V3 | {"rope_scaling": None, "rope_theta": 50000.0})
        | {"n_group": 1, "q_lora_rank": None, "rope_interleave": False, "topk_group": 1, "v_head_dim": 22},
        long_prompt=200,
        notes="As Moonlight, but that rope turns halves. Values are wider than keys.",
    ),
    "glm4_moe_lite": Case(
        GLM4_MOE_LITE, long_prompt=200, notes="The latents' norms have an epsilon of their own, 1e-6."
    ),
    "glm4_moe_lite_types": Case(
        GLM4_MOE_LITE | {"mlp_layer_types": ["sparse", "dense"]}, long_prompt=200, notes="Layer 1 has no experts."
    ),
    "minicpm3": Case(
        MINICPM3,
        long_prompt=200,
        notes="Latent attention whose rope turns halves. The long prompt has the long factors; branches and logits are "
        "scaled by two fields each.",
    ),
}
