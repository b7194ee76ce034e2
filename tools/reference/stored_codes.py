"""Checkpoints with codes of other formats than int8 channels: making them, and reading them back.

compressed-tensors int-quantized (groups), float-quantized, pack-quantized and nvfp4-pack-quantized, fp8, GPTQ, AWQ,
BitNet, by a quantization_config;
int8 codes of channels are int_quantized.py's. Knows neither models nor Pinion.
"""

import json
import pathlib

import torch
from safetensors.torch import save_file

from int_quantized import code_tensors, has_channels, has_codes, load_tensors

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # the columns of a word, lowest bits first
LARGEST_FP8 = 448.0
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def stored_as(config: dict) -> str:
    """fp8, gptq, awq, bitnet, int-quantized, float-quantized, pack-quantized or nvfp4-pack-quantized."""
    method = config["quant_method"]
    if method != "compressed-tensors":
        return method
    return config.get("format") or config["config_groups"]["group_0"]["format"]


def weight_arguments(config: dict) -> dict:
    return config["config_groups"]["group_0"]["weights"]


def is_coded(config: dict, module: str) -> bool:
    if config["quant_method"] == "compressed-tensors":
        return has_codes(config, module)
    left_out = config.get("modules_to_not_convert") or ["lm_head"]
    return not any(name in module for name in left_out)


def group_index(k: int, group_size: int) -> torch.Tensor:
    return torch.arange(k) // (group_size if group_size > 0 else k)


def pack_words(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """The last axis, padded with zeros to whole words, as int32; the first code in the lowest bits."""
    per_word = 32 // bits
    padded = torch.nn.functional.pad(codes.long(), (0, -codes.shape[-1] % per_word))
    words = padded.unflatten(-1, (-1, per_word)) << torch.arange(per_word) * bits
    return words.sum(-1).to(torch.int32)


def unpack_words(words: torch.Tensor, bits: int, count: int) -> torch.Tensor:
    per_word = 32 // bits
    codes = (words.long().unsqueeze(-1) >> torch.arange(per_word) * bits) & (1 << bits) - 1
    return codes.flatten(-2)[..., :count]


def quantise(
    weight: torch.Tensor, groups: torch.Tensor, bits: int, symmetric: bool, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes [n, k] from 0 on, scales and zeros [n, groups]; no zero is 0, which GPTQ could not store."""
    count, most, w = int(groups.max()) + 1, (1 << bits) - 1, weight.float()
    low = torch.stack([w[:, groups == g].amin(-1) for g in range(count)], -1).clamp(max=-1e-4)
    high = torch.stack([w[:, groups == g].amax(-1) for g in range(count)], -1).clamp(min=1e-4)
    if symmetric:
        scale = (torch.maximum(-low, high) / (most // 2)).to(dtype)
        zero = torch.full_like(low, (most + 1) // 2)
    else:
        scale = ((high - low) / most).to(dtype)
        zero = torch.round(-low / scale.float()).clamp(1, most)
    codes = torch.round(w / scale.float()[:, groups]) + zero[:, groups]
    return codes.clamp(0, most).long(), scale, zero.long()


def encode_fp8(weight: torch.Tensor, rows: int, columns: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes, and a scale [n / rows, k / columns] for each block."""
    n, k = weight.shape
    row_block, column_block = torch.arange(n) // rows, torch.arange(k) // columns
    scale = torch.zeros(int(row_block.max()) + 1, int(column_block.max()) + 1)
    for i, j in torch.cartesian_prod(torch.arange(scale.shape[0]), torch.arange(scale.shape[1])).tolist():
        scale[i, j] = weight.float()[row_block == i][:, column_block == j].abs().amax() / LARGEST_FP8
    scale = scale.to(dtype)
    codes = weight.float() / scale.float()[row_block][:, column_block]
    return codes.clamp(-LARGEST_FP8, LARGEST_FP8).to(torch.float8_e4m3fn), scale


def decode_fp8(codes: torch.Tensor, scale: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    scale = scale.float()
    if scale.ndim < 2:
        scale = scale.reshape(-1, 1)
    rows = torch.arange(codes.shape[0]) // block[0]
    columns = torch.arange(codes.shape[1]) // block[1]
    return codes.float() * scale[rows.clamp(max=scale.shape[0] - 1)][:, columns.clamp(max=scale.shape[1] - 1)]


def encode_nvfp4(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pairs of codes [n, k / 2], scales [n, k / 16], and what divides them all [1]."""
    groups = weight.float().unflatten(-1, (-1, 16))
    divisor = LARGEST_FP8 * 6 / groups.abs().amax()
    scale = (groups.abs().amax(-1) / 6 * divisor).clamp(max=LARGEST_FP8).to(torch.float8_e4m3fn)
    numbers = groups / (scale.float() / divisor).clamp(min=1e-30)[..., None]
    codes = (numbers[..., None] - E2M1).abs().argmin(-1).flatten(-2)
    return (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8), scale, divisor.reshape(1)


def decode_nvfp4(pairs: torch.Tensor, scale: torch.Tensor, divisor: torch.Tensor) -> torch.Tensor:
    codes = torch.stack((pairs & 15, pairs >> 4), -1).flatten(-2).long()
    return (E2M1[codes].unflatten(-1, (-1, 16)) * (scale.float() / divisor)[..., None]).flatten(-2)


def encode_bitnet(
    weight: torch.Tensor, divides: bool, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Four rows of codes a byte [n / 4, k], and what multiplies, or divides, all of them [1]."""
    w = weight.float()
    codes = torch.round(w / w.abs().mean()).clamp(-1, 1)
    scale = (w.pow(2).sum() / codes.abs().sum()).sqrt()
    quarters = (codes + 1).to(torch.uint8).unflatten(0, (4, -1))
    packed = quarters[0] | quarters[1] << 2 | quarters[2] << 4 | quarters[3] << 6
    return packed, (1 / scale if divides else scale).reshape(1).to(dtype)


def decode_bitnet(packed: torch.Tensor, scale: torch.Tensor, divides: bool) -> torch.Tensor:
    codes = torch.cat([packed >> shift & 3 for shift in (0, 2, 4, 6)]).float() - 1
    return codes * (1 / scale.float() if divides else scale.float())


def divides(config: dict) -> bool:
    return config.get("linear_class", "bitlinear") == "bitlinear"


def fp8_block(config: dict, shape: torch.Size) -> tuple[int, int]:
    if stored_as(config) == "fp8":
        return tuple(config["weight_block_size"] or shape)
    strategy = weight_arguments(config)["strategy"]
    whole = {"tensor": tuple(shape), "channel": (1, shape[1])}
    return whole.get(strategy) or tuple(weight_arguments(config)["block_structure"])


def encode(
    module: str, weight: torch.Tensor, config: dict, dtype: torch.dtype, random: torch.Generator
) -> dict[str, torch.Tensor]:
    kind = stored_as(config)
    n, k = weight.shape
    if kind in ("fp8", "float-quantized"):
        block = fp8_block(config, weight.shape)
        codes, scale = encode_fp8(weight, *block, dtype)
        new = kind == "fp8"
        result = {f"{module}.weight": codes, f"{module}.weight_scale" + "_inv" * new: scale}
        if block == tuple(weight.shape):
            result[f"{module}.weight_scale" + "_inv" * new] = scale.reshape([] if new else [1])
            result[module + (".activation_scale" if new else ".input_scale")] = torch.tensor(0.7).to(dtype)
        return result
    if kind in ("int-quantized", "pack-quantized"):
        arguments = weight_arguments(config)
        bits, symmetric = arguments["num_bits"], arguments["symmetric"]
        codes, scale, zero = quantise(weight, group_index(k, arguments["group_size"] or -1), bits, symmetric, dtype)
        if kind == "int-quantized":
            middle = 1 << (bits - 1)
            result = {f"{module}.weight": (codes - middle).to(torch.int8), f"{module}.weight_scale": scale}
            return result if symmetric else result | {f"{module}.weight_zero_point": (zero - middle).to(torch.int8)}
        result = {
            f"{module}.weight_packed": pack_words(codes, bits),
            f"{module}.weight_scale": scale,
            f"{module}.weight_shape": torch.tensor([n, k]),
        }
        if not symmetric:
            result[f"{module}.weight_zero_point"] = pack_words(zero.T, bits).T.contiguous()
        return result
    if kind == "bitnet":
        packed, scale = encode_bitnet(weight, divides(config), dtype)
        return {f"{module}.weight": packed, f"{module}.weight_scale": scale}
    if kind == "nvfp4-pack-quantized":
        pairs, scale, divisor = encode_nvfp4(weight)
        return {
            f"{module}.weight_packed": pairs,
            f"{module}.weight_scale": scale,
            f"{module}.weight_global_scale": divisor,
            f"{module}.input_global_scale": torch.tensor([0.7]),
        }
    groups, bits = group_index(k, config["group_size"]), config["bits"]
    if config.get("desc_act"):
        groups = groups[torch.randperm(k, generator=random)]
    codes, scale, zero = quantise(weight, groups, bits, config.get("sym", False), dtype)
    if kind == "awq":
        ordered = (torch.arange(n).reshape(-1, 8)[:, AWQ_ORDER]).flatten()
        words, zero_words = pack_words(codes.T[:, ordered], 4), pack_words(zero.T[:, ordered], 4)
    else:
        words = pack_words(codes, bits).T.contiguous()
        zero_words = pack_words(zero.T - int(config.get("checkpoint_format") != "gptq_v2"), bits)
    result = {
        f"{module}.qweight": words,
        f"{module}.qzeros": zero_words,
        f"{module}.scales": scale.T.contiguous(),
    }
    return result if kind == "awq" else result | {f"{module}.g_idx": groups.to(torch.int32)}


def encode_tensors(
    tensors: dict[str, torch.Tensor], config: dict, dtype: torch.dtype, seed: int
) -> dict[str, torch.Tensor]:
    """The linear layers' weights that the config means, as codes."""
    random = torch.Generator().manual_seed(seed)
    result = {}
    for name, tensor in tensors.items():
        module = name.removesuffix(".weight")
        is_linear = tensor.ndim == 2 and name.endswith(".weight") and not name.endswith(("embed_tokens.weight", "embed_in.weight"))
        if is_linear and is_coded(config, module):
            result |= encode(module, tensor, config, dtype, random)
        else:
            result[name] = tensor
    return result


def decode(module: str, tensors: dict[str, torch.Tensor], config: dict) -> torch.Tensor:
    """The weight in fp32."""
    kind = stored_as(config)
    t = {name.removeprefix(f"{module}."): tensor for name, tensor in tensors.items() if name.startswith(f"{module}.")}
    if kind in ("fp8", "float-quantized"):
        scale = t.get("weight_scale_inv", t.get("weight_scale"))
        return decode_fp8(t["weight"], scale, fp8_block(config, t["weight"].shape))
    if kind == "int-quantized":
        groups = group_index(t["weight"].shape[1], weight_arguments(config)["group_size"])
        zero = t.get("weight_zero_point", torch.zeros_like(t["weight_scale"]))
        return (t["weight"].float() - zero.float()[:, groups]) * t["weight_scale"].float()[:, groups]
    if kind == "pack-quantized":
        arguments = weight_arguments(config)
        bits, (n, k) = arguments["num_bits"], t["weight_shape"].tolist()
        groups = group_index(k, arguments["group_size"] or -1)
        codes = unpack_words(t["weight_packed"], bits, k)
        zero = torch.tensor(1 << (bits - 1)).expand(n, groups.max() + 1)
        if not arguments["symmetric"]:
            zero = unpack_words(t["weight_zero_point"].T, bits, n).T
        return (codes - zero[:, groups]).float() * t["weight_scale"].float()[:, groups]
    if kind == "bitnet":
        return decode_bitnet(t["weight"], t["weight_scale"], divides(config))
    if kind == "nvfp4-pack-quantized":
        return decode_nvfp4(t["weight_packed"], t["weight_scale"], t["weight_global_scale"])
    bits, n = config["bits"], t["scales"].shape[1]
    if kind == "awq":
        back = torch.argsort(torch.tensor(AWQ_ORDER))
        words = (t["qweight"], t["qzeros"])
        codes, zero = (unpack_words(w, 4, n).unflatten(-1, (-1, 8))[..., back].flatten(-2).T for w in words)
        groups = group_index(codes.shape[1], config["group_size"])
    else:
        groups = t["g_idx"].long()
        codes = unpack_words(t["qweight"].T, bits, len(groups))
        zero = unpack_words(t["qzeros"], bits, n).T + int(config.get("checkpoint_format") != "gptq_v2")
    return (codes - zero[:, groups]).float() * t["scales"].T.float()[:, groups]


def coded_modules(tensors: dict[str, torch.Tensor]) -> list[str]:
    """By the tensors: those that are not plain weights."""
    modules = [name.rsplit(".", 1)[0] for name in tensors if name.endswith((".weight_packed", ".qweight"))]
    return modules + [
        name.removesuffix(".weight")
        for name, tensor in tensors.items()
        if name.endswith(".weight")
        and (
            tensor.dtype in (torch.float8_e4m3fn, torch.uint8)
            or (tensor.dtype == torch.int8 and not has_channels(tensors, name.removesuffix(".weight")))
        )
    ]


def decode_tensors(tensors: dict[str, torch.Tensor], config: dict) -> dict[str, torch.Tensor]:
    """Module -> its weight, fp32 [n, k], for the modules that have codes of these formats."""
    return {module: decode(module, tensors, config) for module in coded_modules(tensors)}


def decoded_weights(folder: pathlib.Path) -> dict[str, torch.Tensor]:
    config = json.loads((folder / "config.json").read_text()).get("quantization_config", {})
    return decode_tensors(load_tensors(folder), config)


def write_plain(folder: pathlib.Path, out: pathlib.Path) -> None:
    """The same checkpoint without codes, int8 or other: weights in fp32, everything else as stored."""
    weights = decoded_weights(folder)
    weights |= {module: codes.float() * scale for module, (codes, scale) in code_tensors(folder).items()}
    config = json.loads((folder / "config.json").read_text())
    del config["quantization_config"]
    (out / "config.json").write_text(json.dumps(config))
    tensors = {name: t for name, t in load_tensors(folder).items() if name.rsplit(".", 1)[0] not in weights}
    biases = {name: t for name, t in load_tensors(folder).items() if name.endswith(".bias")}
    tensors |= biases | {f"{module}.weight": weight.contiguous() for module, weight in weights.items()}
    save_file(tensors, out / "model.safetensors", {"format": "pt"})
