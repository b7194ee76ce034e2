"""Mixtures of experts, expert by expert: files hold three matrices for each, transformers fuses those of a layer. Files
of gpt-oss and Granite hold the fused ones too.

Knows the fused modules of transformers 5 and the names of published checkpoints; nothing of quantisation.
"""

import re

import torch
from torch import nn

# Of a layer's parts in files, where they are not transformers' own.
FILE_NAMES = {
    "mixtral": {".mlp.": ".block_sparse_moe.", ".gate_proj.": ".w1.", ".up_proj.": ".w3.", ".down_proj.": ".w2."},
    "nemotron_h": {"model.": "backbone."},
    "phimoe": {
        ".mlp.router.": ".block_sparse_moe.gate.",
        ".mlp.": ".block_sparse_moe.",
        ".gate_proj.": ".w1.",
        ".up_proj.": ".w3.",
        ".down_proj.": ".w2.",
    },
    "minimax_m2": {".mlp.": ".block_sparse_moe.", ".gate_proj.": ".w1.", ".up_proj.": ".w3.", ".down_proj.": ".w2."},
    "ernie4_5_moe": {".mlp.gate.moe_statics": ".mlp.moe_statics"},
    "lfm2_moe": {".gate_proj.": ".w1.", ".up_proj.": ".w3.", ".down_proj.": ".w2."},
    "exaone_moe": {".mlp.gate.e_score": ".mlp.e_score"},
    "hy_v3": {
        ".mlp.gate.": ".mlp.router.gate.",
        ".mlp.e_score_correction_bias": ".mlp.expert_bias",
        ".shared_experts.": ".shared_mlp.",
    },
    "sarvam_moe": {
        "model.embed_tokens": "model.word_embeddings",
        ".self_attn.q_proj.": ".attention.query_key_value.",
        ".self_attn.k_proj.": ".attention.query_key_value.",
        ".self_attn.v_proj.": ".attention.query_key_value.",
        ".self_attn.o_proj.": ".attention.dense.",
        ".self_attn.q_norm.": ".attention.query_layernorm.",
        ".self_attn.k_norm.": ".attention.key_layernorm.",
        ".gate.e_score_correction_bias": ".gate.expert_bias",
    },
    "axk1": {".mlp.post_mlp_layernorm.": ".post_mlp_layernorm."},
    "mimo_v2_flash": {".self_attn.sinks": ".self_attn.attention_sink_bias"},
    "flint": {".self_attn.sinks": ".self_attn.softmax_offset"},
    "kolibri1": {
        ".mlp.gate.e_score_correction_bias": ".moe.router.expert_bias",
        ".post_self_attn_layernorm.": ".post_attn_norm.",
        ".post_mlp_layernorm.": ".post_ffn_norm.",
    },
    "laguna": {
        ".mlp.gate.e_score_correction_bias": ".mlp.experts.e_score_correction_bias",
        ".mlp.shared_experts.": ".mlp.shared_expert.",
    },
    "bailing_hybrid": {
        "model.embed_tokens": "model.word_embeddings",
        ".forget_gate.": ".",
        ".self_attn.o_proj.": ".attention.dense.",
        ".self_attn.": ".attention.",
        ".gate.e_score_correction_bias": ".gate.expert_bias",
    },
    "kimi_linear": {
        ".forget_gate.": ".",
        ".mlp.gate.": ".block_sparse_moe.gate.",
        ".mlp.shared_experts.": ".block_sparse_moe.shared_experts.",
    },
    "lara_mini": {
        ".in_proj_qkv.": ".in_proj.",
        ".in_proj_z.": ".in_proj.",
        ".in_proj_b.": ".in_proj.",
        ".in_proj_a.": ".in_proj.",
        ".linear_attn.norm.": ".linear_attn.out_norm.",
    },
    "lfm3": {".self_attn.g_proj.": ".self_attn.gate_proj."},
    "exaone": {
        "model.embed_tokens.": "transformer.wte.",
        "model.layers.": "transformer.h.",
        "model.norm.": "transformer.ln_f.",
        ".self_attn.o_proj.": ".attn.attention.out_proj.",
        ".self_attn.": ".attn.attention.",
        ".input_layernorm.": ".ln_1.",
        ".post_attention_layernorm.": ".ln_2.",
        ".mlp.gate_proj.": ".mlp.c_fc_0.",
        ".mlp.up_proj.": ".mlp.c_fc_1.",
        ".mlp.down_proj.": ".mlp.c_proj.",
    },
}


STACKED_IN_FILES = ("granitemoe", "granitemoehybrid", "granitemoeshared")
TRANSPOSED_IN_FILES = ("qwen3_vl_moe",)
TRANSPOSED_MATRICES = ("gpt2",)
SPLIT_CONVOLUTIONS = ("bailing_hybrid", "kimi_linear", "olmo_hybrid")  # of q, k and v
FUSED_IN_FILES = (
    "gpt_oss",
    "qwen3_5_moe_text",
    "gemma4_text",
    "granitemoe_swa",
    "mistral4",
    "aria_text",
    "dbrx",
    "lara_mini",
    "llama4_text",
    *TRANSPOSED_IN_FILES,
    *STACKED_IN_FILES,
)


def name_in_file(name: str, model_type: str) -> str:
    """The file's name of a parameter of a model whose experts were split."""
    if model_type == "dbrx":
        for part, published in (("gate", "w1"), ("up", "v1"), ("down", "w2")):
            name = re.sub(rf"experts\.\d+\.{part}_proj", f"experts.mlp.{published}", name)
        return name
    if model_type in STACKED_IN_FILES:
        name = re.sub(r"moe\.experts\.(\d+\.)?(gate_up|gate|up)_proj(\.weight)?$", "moe.input_linear.weight", name)
        name = re.sub(r"moe\.experts\.(\d+\.)?down_proj(\.weight)?$", "moe.output_linear.weight", name)
        return name.replace("moe.router.", "moe.router.layer.")
    if model_type in FUSED_IN_FILES:
        name = re.sub(r"\.experts\.\d+\.", ".experts.", name)
        name = re.sub(r"\.experts\.(gate|up)_proj", ".experts.gate_up_proj", name)
        if model_type == "aria_text":
            name = re.sub(r"\.experts\.gate_up_proj(\.weight)?$", ".experts.fc1.weight", name)
            name = re.sub(r"\.experts\.down_proj(\.weight)?$", ".experts.fc2.weight", name)
    if model_type == "kimi_linear" and (expert := re.search(r"\.mlp\.experts\.(\d+)\.(gate|up|down)_proj\.", name)):
        matrix = {"gate": "w1", "up": "w3", "down": "w2"}[expert[2]]
        return name.replace(expert[0], f".block_sparse_moe.experts.{expert[1]}.{matrix}.")
    for ours, published in FILE_NAMES.get(model_type, {}).items():
        name = name.replace(ours, published)
    return name


def linear(weight: torch.Tensor, bias: torch.Tensor | None = None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight.detach().clone(), requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone(), requires_grad=False)
    return layer


class Expert(nn.Module):
    def __init__(self, gate: nn.Linear | None, up: nn.Linear, down: nn.Linear) -> None:
        super().__init__()
        if gate is not None:
            self.gate_proj = gate
        self.up_proj, self.down_proj = up, down


def expert_of(fused: nn.Module, e: int) -> Expert:
    if type(fused).__name__ == "DbrxExperts":
        gate, up, down = (w.view(fused.num_experts, -1, w.shape[1])[e] for w in (fused.mlp.w1, fused.mlp.v1, fused.mlp.w2))
        return Expert(linear(gate), linear(up), linear(down.T))
    if not hasattr(fused, "gate_up_proj"):  # Nemotron-H
        return Expert(None, linear(fused.up_proj[e]), linear(fused.down_proj[e]))
    gate_up, down = fused.gate_up_proj[e], fused.down_proj[e]
    if type(fused).__name__ in ("AriaExperts", "Llama4TextExperts"):  # stored transposed
        gate_up, down = gate_up.T, down.T
    if not hasattr(fused, "gate_up_proj_bias"):
        gate, up = gate_up.chunk(2)
        return Expert(linear(gate), linear(up), linear(down))
    bias = fused.gate_up_proj_bias[e]  # transposed, gate and up in turns
    gate, up = (linear(gate_up[:, i::2].T, bias[i::2]) for i in (0, 1))
    return Expert(gate, up, linear(down.T, fused.down_proj_bias[e]))


class SplitExperts(nn.ModuleList):
    """In place of a layer's fused experts."""

    def __init__(self, fused: nn.Module) -> None:
        count = fused.num_experts if hasattr(fused, "num_experts") else len(fused.down_proj)
        super().__init__(expert_of(fused, e) for e in range(count))
        if type(fused).__name__ == "DbrxExperts":
            self.activate = lambda gate, up: fused.mlp.activation_fn(gate) * up
        elif not hasattr(fused, "gate_up_proj"):
            self.activate = lambda gate, up: fused.act_fn(up)
        elif hasattr(fused, "gate_up_proj_bias"):  # gpt-oss
            self.activate = lambda gate, up: fused._apply_gate(torch.stack((gate, up), -1).flatten(-2))
        else:
            self.activate = lambda gate, up: fused.act_fn(gate) * up

    def forward(
        self, x: torch.Tensor, index: torch.Tensor | None = None, weights: torch.Tensor | None = None
    ) -> torch.Tensor:
        if index is None:  # Llama 4: each expert has an equal share of the rows, already weighted
            index = torch.arange(len(self)).repeat_interleave(len(x) // len(self))[:, None]
            weights = torch.ones(len(x), 1)
        shape, x = x.shape, x.flatten(0, -2)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self):
            rows, place = torch.where(index == e)
            if len(rows) == 0:
                continue
            gate = expert.gate_proj(x[rows]) if hasattr(expert, "gate_proj") else None
            activated = self.activate(gate, expert.up_proj(x[rows]))
            out.index_add_(0, rows, weights[rows, place, None].to(x.dtype) * expert.down_proj(activated))
        return out.view(shape)


def split_experts(model: nn.Module) -> nn.Module:
    """Experts one by one, and GPT-2's transposed matrices as linear layers."""
    for name, module in list(model.named_modules()):
        if type(module).__name__ == "Conv1D":
            model.set_submodule(name, linear(module.weight.T, module.bias))
    for name, module in list(model.named_modules()):
        if re.search(r"\.(mlp|block_sparse_moe|feed_forward|ffn|mixer|layers\.\d+)\.experts$", name):
            model.set_submodule(name, SplitExperts(module))
    return model
