"""Checkpoints of gpt-oss whose experts are MXFP4: making random ones, and what they stand for.

Knows the format and the names of its tensors; reference.py and make_families.py know models.
"""

import json
import pathlib

import numpy as np
import torch
from safetensors.torch import save_file

from quantisation_configs import MXFP4
from int_quantized import load_tensors

NUMBERS = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
BLOCK = 32
BLOCKS, SCALES = "_blocks", "_scales"


def random_codes(like: torch.Tensor, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Blocks [experts, n, k / 32, 16] and scales [experts, n, k / 32], about as large as the numbers [experts, k, n]."""
    experts, k, n = like.shape
    shape = (experts, n, k // BLOCK)
    exponent = round(float(torch.log2(like.float().std() / NUMBERS.std())))
    scales = rng.integers(exponent - 1, exponent + 1, shape, endpoint=True) + 127
    blocks = rng.integers(0, 256, (*shape, BLOCK // 2))
    return torch.from_numpy(blocks).to(torch.uint8), torch.from_numpy(scales).to(torch.uint8)


def decode(blocks: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """What they stand for, fp32 [experts, k, n]; the lower nibble comes first."""
    nibbles = torch.stack((blocks & 15, blocks >> 4), -1).flatten(-2)
    numbers = NUMBERS[nibbles.long()] * torch.exp2(scales.float() - 127)[..., None]
    return numbers.flatten(-2).transpose(1, 2).contiguous()


def with_random_codes(tensors: dict[str, torch.Tensor], rng: np.random.Generator) -> dict[str, torch.Tensor]:
    """The same tensors with random codes in place of the experts' matrices."""
    result = {}
    for name, tensor in tensors.items():
        if tensor.ndim == 3:
            result[name + BLOCKS], result[name + SCALES] = random_codes(tensor, rng)
        else:
            result[name] = tensor
    return result


def has_codes(folder: pathlib.Path) -> bool:
    return json.loads((folder / "config.json").read_text()).get("quantization_config") == MXFP4


def write_plain(folder: pathlib.Path, out: pathlib.Path) -> None:
    """The same checkpoint without codes: what they stand for in bf16, which loses nothing."""
    config = json.loads((folder / "config.json").read_text())
    del config["quantization_config"]
    (out / "config.json").write_text(json.dumps(config))
    tensors = load_tensors(folder)
    for name in [name for name in tensors if name.endswith(BLOCKS)]:
        module = name.removesuffix(BLOCKS)
        numbers = decode(tensors.pop(name), tensors.pop(module + SCALES))
        tensors[module] = numbers.bfloat16()
        assert (tensors[module].float() == numbers).all()
    save_file(tensors, out / "model.safetensors", {"format": "pt"})
