"""Zamba 2's blocks, which several layers share with changes of low rank for each: one block for each layer, as in Pinion."""

import copy

import torch
from torch import nn


class Nothing(nn.Module):
    """In place of a change that is part of the weights."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.new_zeros(())


def merge(linear: nn.Linear, changes: nn.ModuleList, use: int) -> None:
    """Adds one change to the weights, which are rounded as in Pinion; the others belong to other layers."""
    narrow, wide = changes[use]
    weight = (linear.weight + wide.weight @ narrow.weight).bfloat16().to(linear.weight.dtype)
    linear.weight = nn.Parameter(weight, requires_grad=False)
    for i in range(len(changes)):
        changes[i] = Nothing()


def separate_blocks(model: nn.Module) -> nn.Module:
    layers = [layer for layer in model.modules() if hasattr(layer, "shared_transformer")]
    for layer, block in zip(layers, [copy.deepcopy(layer.shared_transformer) for layer in layers]):
        layer.shared_transformer = block
    for use, layer in enumerate(layers):
        attention, mlp = layer.shared_transformer.self_attn, layer.shared_transformer.feed_forward
        merge(mlp.gate_up_proj, mlp.gate_up_proj_adapter_list, use)
        for part in "qkv" if model.config.use_shared_attention_adapter else "":
            merge(getattr(attention, f"{part}_proj"), getattr(attention, f"linear_{part}_adapter_list"), use)
    return model
