"""Mixtures of experts, expert by expert: files hold three matrices for each, transformers fuses those of a layer.

Knows the fused modules of transformers 5 and the names of published checkpoints; nothing of quantisation.
"""

import torch
from torch import nn

# Of a layer's parts in files, where they are not transformers' own.
FILE_NAMES = {
    "mixtral": {".mlp.": ".block_sparse_moe.", ".gate_proj.": ".w1.", ".up_proj.": ".w3.", ".down_proj.": ".w2."},
}


def name_in_file(name: str, model_type: str) -> str:
    """The file's name of a parameter of a model whose experts were split."""
    for ours, published in FILE_NAMES.get(model_type, {}).items():
        name = name.replace(ours, published)
    return name


def linear(weight: torch.Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    layer.weight = nn.Parameter(weight.detach().clone(), requires_grad=False)
    return layer


class Expert(nn.Module):
    def __init__(self, gate_up: torch.Tensor, down: torch.Tensor) -> None:
        super().__init__()
        gate, up = gate_up.chunk(2)
        self.gate_proj, self.up_proj, self.down_proj = linear(gate), linear(up), linear(down)


class SplitExperts(nn.ModuleList):
    """In place of a layer's fused experts."""

    def __init__(self, fused: nn.Module) -> None:
        super().__init__(Expert(*pair) for pair in zip(fused.gate_up_proj, fused.down_proj, strict=True))
        self.act_fn = fused.act_fn

    def forward(self, x: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        for e, expert in enumerate(self):
            rows, place = torch.where(index == e)
            if len(rows) == 0:
                continue
            activated = self.act_fn(expert.gate_proj(x[rows])) * expert.up_proj(x[rows])
            out.index_add_(0, rows, weights[rows, place, None].to(x.dtype) * expert.down_proj(activated))
        return out


def split_experts(model: nn.Module) -> nn.Module:
    for name, module in list(model.named_modules()):
        if name.endswith(".mlp.experts"):
            model.set_submodule(name, SplitExperts(module))
    return model
