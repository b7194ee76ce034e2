"""Checkpoints with int8 codes, as the compressed-tensors library writes them ("int-quantized"): making and reading them.

Knows neither models nor Pinion's own rule; reference.py and make_families.py do.
"""

import pathlib
import re

import torch
from safetensors.torch import load_file

SCALE = ".weight_scale"


def quantise(weight: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes [n, k] and scales [n, 1] by the library's rule for symmetric channels: absmax over half of 255 steps."""
    scale = (weight.float().abs().amax(-1, keepdim=True) / 127.5).to(dtype)
    scale[scale == 0] = torch.finfo(dtype).eps
    return torch.round(weight.float() / scale.float()).clamp(-128, 127).to(torch.int8), scale


def matches(patterns: list[str], module: str) -> bool:
    return any(
        re.match(pattern[3:], module) if pattern.startswith("re:") else pattern in (module, "Linear")
        for pattern in patterns
    )


def has_codes(config: dict, module: str) -> bool:
    targets = [target for group in config["config_groups"].values() for target in group["targets"]]
    return matches(targets, module) and not matches(config["ignore"], module)


def quantise_tensors(
    tensors: dict[str, torch.Tensor], config: dict, dtype: torch.dtype, scale_axes: int
) -> dict[str, torch.Tensor]:
    """The linear layers' weights that the config means, as codes and scales of one or two axes."""
    result = {}
    for name, tensor in tensors.items():
        module = name.removesuffix(".weight")
        is_linear = tensor.ndim == 2 and name.endswith(".weight") and not name.endswith(("embed_tokens.weight", "embed_in.weight"))
        if not is_linear or not has_codes(config, module):
            result[name] = tensor
            continue
        codes, scale = quantise(tensor, dtype)
        result[name] = codes
        result[module + SCALE] = scale.reshape(-1) if scale_axes == 1 else scale
    return result


def load_tensors(folder: pathlib.Path) -> dict[str, torch.Tensor]:
    return {name: t for file in sorted(folder.glob("*.safetensors")) for name, t in load_file(file).items()}


def has_channels(tensors: dict[str, torch.Tensor], module: str) -> bool:
    """Whether the module's weight is int8 codes of channels; those of groups are stored_codes.py's."""
    codes, scale = tensors.get(f"{module}.weight"), tensors.get(module + SCALE)
    return codes is not None and codes.dtype == torch.int8 and scale.numel() in (1, len(codes))


def code_tensors(folder: pathlib.Path) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Module -> its codes [n, k] and its scales, fp32 [n, 1], for the modules that have some."""
    tensors = load_tensors(folder)
    modules = [name.removesuffix(".weight") for name in tensors if name.endswith(".weight")]
    return {
        module: (tensors[f"{module}.weight"], tensors[module + SCALE].float().reshape(-1, 1))
        for module in modules
        if has_channels(tensors, module)
    }
