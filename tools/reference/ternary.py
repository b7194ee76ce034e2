"""Ternary weights, -s, 0 or s in groups of inputs: making them, and telling by the numbers which matrices have them."""

import torch

GROUP = 128  # inputs that share a scale


def in_groups(matrix: torch.Tensor) -> torch.Tensor:
    return matrix.float().reshape(matrix.shape[0], -1, GROUP)


def group_scales(matrix: torch.Tensor) -> torch.Tensor:
    """[rows, groups], of a matrix that is ternary."""
    return in_groups(matrix).abs().amax(-1)


def made_ternary(matrix: torch.Tensor) -> torch.Tensor:
    """Of every three weights about two, with the group's mean square; and a group of zeros among them."""
    groups = in_groups(matrix)
    codes = torch.round(groups / groups.abs().mean(-1, keepdim=True)).clamp(-1, 1)
    scales = (groups.pow(2).sum(-1, keepdim=True) / codes.abs().sum(-1, keepdim=True)).sqrt().to(matrix.dtype).float()
    codes[1, 0] = 0
    return (codes * scales).reshape(matrix.shape).to(matrix.dtype)


def is_ternary(matrix: torch.Tensor) -> bool:
    if matrix.ndim != 2 or matrix.shape[1] % GROUP:
        return False
    groups = in_groups(matrix)
    return bool(((groups == 0) | (groups.abs() == groups.abs().amax(-1, keepdim=True))).all())
