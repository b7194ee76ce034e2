"""The reference: Hugging Face transformers in fp32 (or fp64) arithmetic, plain or fake-quantised like Pinion's w8a8.

Owns what the other scripts here share: loading, quantising, logits, greedy decoding, distances. Knows no family.
"""

import functools
import pathlib
import tempfile

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    Emu3ForCausalLM,
    Mistral4ForCausalLM,
    MllamaForCausalLM,
)

from experts import split_experts
import mxfp4
from shared_blocks import separate_blocks
from int_quantized import code_tensors
from stored_codes import decoded_weights, write_plain
from ternary import is_ternary

KEEP_HEAD = ("lm_head", "embed_out", "output_projection")
# Sinks, no other attention, or none.
ONLY_EAGER = (
    "bloom", "falcon_mamba", "flint", "got_ocr2", "gpt_oss", "gpt_neo", "gpt_neox_japanese", "granite_swa", "granitemoe_swa",
    "mamba", "mamba2", "mimo_v2_flash", "mpt",
)
# Routers that are linear layers in transformers; AltUp's has two matrices of a few numbers behind it. Mamba 1's keys and
# steps are exact, too, and Kimi's decays and gates of narrow vectors.
ROUTERS = (
    "mlp.gate.wg", ".mlp.router", ".feed_forward.router", "shared_expert_gate", ".altup.", ".router.proj", ".router.layer",
    ".x_proj", ".dt_proj", ".f_b_proj", ".g_b_proj",
)


def quantise_rows(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Integer codes [rows, cols] and fp32 scales [rows, 1]: scale = amax / 127, code = round-half-even(x / scale)."""
    x = matrix.float()
    scale = x.abs().amax(-1, keepdim=True) / 127
    codes = torch.where(scale > 0, torch.round(x / scale), torch.zeros_like(x))
    return codes.clamp(-127, 127), scale


def rotate(rows: torch.Tensor) -> torch.Tensor:
    """Signs, then a Hadamard matrix, in blocks of the largest power of two that divides the rows, not normalised: sums
    and differences of elements 1, 2, 4 ... apart, in this order, as Pinion's kernels have it."""
    k = rows.shape[-1]
    rows = rows * rotation_signs(rotation_block(k)).to(rows.dtype).repeat(k // rotation_block(k))
    distance = 1
    while distance < rotation_block(k):
        first, second = rows.reshape(-1, k // (2 * distance), 2, distance).unbind(2)
        rows = torch.stack((first + second, first - second), 2).reshape(rows.shape)
        distance *= 2
    return rows


def rotation_block(k: int) -> int:
    return k & -k


def rotation_signs(block: int) -> torch.Tensor:
    """-1 to the number of pairs of bits (0 and 1, 2 and 3 ...) that are both set in an element's place."""
    pairs = [bin(i & i >> 1 & 0x5555555555555555).count("1") for i in range(block)]
    return torch.tensor([(-1.0) ** count for count in pairs])


def quantise_weights(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales of what multiplies rotated inputs: W H / block."""
    codes, scale = quantise_rows(rotate(matrix.float()))
    return codes, scale / rotation_block(matrix.shape[-1])


def dequantised(codes: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return codes.to(dtype) * scale.to(dtype)


def fake_quantise(rows: torch.Tensor) -> torch.Tensor:
    return dequantised(*quantise_rows(rows), rows.dtype)


def is_quantised(name: str, module: nn.Module, keep: tuple[str, ...]) -> bool:
    return isinstance(module, nn.Linear) and name != "decoder" and not any(pattern in name for pattern in keep + ROUTERS)


def wide_rms_norm(norm: nn.Module, x: torch.Tensor) -> torch.Tensor:
    if not isinstance(getattr(norm, "weight", None), nn.Parameter):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.eps)
    if hasattr(norm, "with_scale"):  # Gemma 3n's
        weight = norm.weight if norm.with_scale else 1
        return weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.eps)
    if hasattr(norm, "eps") and not type(norm).__name__.startswith("Llama4"):  # Gemma's, whose weights are stored less one
        return (1 + norm.weight) * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.eps)
    eps = norm.eps if hasattr(norm, "eps") else norm.variance_epsilon
    return norm.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def wide_layer_norm(norm: nn.Module, x: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return norm.weight * centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)


def widen(model: nn.Module) -> None:
    """fp64 throughout: transformers itself computes norms in fp32 whatever the model's type."""
    model.double()
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = functools.partial(wide_rms_norm, module)
        elif hasattr(module, "variance_epsilon") and not type(module).__name__.endswith("Gated"):  # Cohere's own
            module.forward = functools.partial(wide_layer_norm, module)


class Alone:
    """Transformers' auto classes have these only beside a vision model."""

    @classmethod
    def from_config(cls, config: AutoConfig) -> nn.Module:
        return cls(config)


class Mistral4Alone(Alone, Mistral4ForCausalLM):
    pass


class Emu3Alone(Alone, Emu3ForCausalLM):
    pass


class MllamaAlone(Alone, MllamaForCausalLM):
    pass


ALONE = {"Emu3ForCausalLM": Emu3Alone, "Mistral4ForCausalLM": Mistral4Alone, "MllamaForCausalLM": MllamaAlone}


def auto_class(folder: str) -> type:
    """Models that see have an auto class of their own."""
    architectures = AutoConfig.from_pretrained(folder).architectures or [""]
    if architectures[0] in ALONE:
        return ALONE[architectures[0]]
    return AutoModelForImageTextToText if "ForConditionalGeneration" in architectures[0] else AutoModelForCausalLM


def load_plain(folder: str, wide: bool) -> nn.Module:
    # eager computes the softmax in fp32 mostly, sdpa leaves soft caps and sinks out
    config = AutoConfig.from_pretrained(folder)
    needs_eager = getattr(config, "attn_logit_softcapping", None) or config.model_type in ONLY_EAGER
    model, report = auto_class(folder).from_pretrained(
        folder,
        dtype=torch.float32,
        attn_implementation="sdpa" if wide and not needs_eager else "eager",
        output_loading_info=True,
    )
    if report["missing_keys"] or report["unexpected_keys"] or report["mismatched_keys"]:
        raise SystemExit(f"{folder}: tensors do not fit the config: {report}")
    return separate_blocks(model) if config.model_type == "zamba2" else model


def load_stored(folder: str, wide: bool = False) -> tuple[nn.Module, set[str]]:
    """The model with its weights as stored, in fp32, and the modules that the file holds as int8 codes."""
    coded = set(code_tensors(pathlib.Path(folder)))
    has_codes = coded or decoded_weights(pathlib.Path(folder))
    write = write_plain if has_codes else mxfp4.write_plain if mxfp4.has_codes(pathlib.Path(folder)) else None
    if not write:
        return load_plain(folder, wide), coded
    with tempfile.TemporaryDirectory() as plain:
        write(pathlib.Path(folder), pathlib.Path(plain))
        return load_plain(plain, wide), coded


def load_model(folder: str, quant: str = "none", keep: tuple[str, ...] = KEEP_HEAD, wide: bool = False) -> nn.Module:
    """Matrices are rounded to bf16 as Pinion holds them (no change for bf16 files); norms and biases stay as stored.

    With w8a8 every linear layer outside `keep` gets rotated weights quantised from the stored values and, through a
    hook, inputs that are rotated and quantised per token. Weights that are codes already, or ternary, stay what they
    are, and their inputs are not rotated. Experts are linear layers too, routers are not.
    """
    model, coded = load_stored(folder, wide)
    model.eval().requires_grad_(False)
    if quant == "w8a8":
        split_experts(model)  # unquantised, transformers' own code runs
    if wide:
        widen(model)
    as_in_pinion(model, quant, keep, coded)
    return model


class HeadKeys(nn.Module):
    """kv_b of latent attention as Pinion computes it: a head's queries are projected to the latent, which is the same as
    keys of the projection's quantised weights for quantised queries. Values are the latent itself."""

    def __init__(self, keys: torch.Tensor) -> None:  # [heads, nope, rank]
        super().__init__()
        codes = [dequantised(*quantise_weights(head.T), keys.dtype).T for head in keys]
        self.register_buffer("keys", torch.stack(codes))

    def forward(self, latent: torch.Tensor) -> torch.Tensor:
        keys = torch.einsum("...r,hnr->...hn", latent, self.keys)
        return torch.cat((keys, latent.unsqueeze(-2).expand(*keys.shape[:-1], latent.shape[-1])), -1).flatten(-2)


class HeadValues(nn.Module):
    """The output matrix behind the projection of each head's value from the latents that it attends to."""

    def __init__(self, out: nn.Module, values: torch.Tensor, is_coded: bool) -> None:  # [heads, width, rank]
        super().__init__()
        self.out, self.is_coded = out, is_coded
        codes = values if is_coded else torch.stack([dequantised(*quantise_weights(v), v.dtype) for v in values])
        self.register_buffer("values", codes)

    def forward(self, attended: torch.Tensor) -> torch.Tensor:
        rows = attended.unflatten(-1, (self.values.shape[0], self.values.shape[2]))
        rows = fake_quantise(rows if self.is_coded else rotate(rows))
        return self.out(torch.einsum("...hr,hvr->...hv", rows, self.values).flatten(-2))


def keys_and_values(kv_b: torch.Tensor, attention: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    heads, nope = attention.num_heads, attention.qk_nope_head_dim
    rows = kv_b.detach().unflatten(0, (heads, -1))
    return rows[:, :nope], rows[:, nope:]


def quantise_queries(heads: int, nope: int, rows: torch.Tensor) -> torch.Tensor:
    rows = rows.unflatten(-1, (heads, -1))
    return torch.cat((fake_quantise(rotate(rows[..., :nope])), rows[..., nope:]), -1).flatten(-2)


def absorb_latents(model: nn.Module, coded: set[str]) -> None:
    for name, attention in list(model.named_modules()):
        if not hasattr(attention, "kv_b_proj"):
            continue
        keys, values = keys_and_values(attention.kv_b_proj.weight, attention)
        queries = getattr(attention, "q_b_proj", None) or attention.q_proj
        quantise = functools.partial(quantise_queries, keys.shape[0], keys.shape[1])
        queries.register_forward_hook(lambda _, args, rows, quantise=quantise: quantise(rows))
        attention.kv_b_proj, attention.v_head_dim = HeadKeys(keys), values.shape[2]
        out = "o_proj" if hasattr(attention, "o_proj") else "dense"
        setattr(attention, out, HeadValues(getattr(attention, out), values, f"{name}.kv_b_proj" in coded))


def as_in_pinion(model: nn.Module, quant: str, keep: tuple[str, ...], coded: set[str]) -> None:
    if quant == "w8a8":
        absorb_latents(model, coded)
    for name, module in model.named_modules():
        if quant == "w8a8" and is_quantised(name, module, keep):
            if name.removesuffix(".out") in coded or is_ternary(module.weight):
                module.register_forward_pre_hook(lambda _, args: (fake_quantise(args[0]),))
            else:
                weight = dequantised(*quantise_weights(module.weight), module.weight.dtype)
                module.weight = nn.Parameter(weight, requires_grad=False)
                module.register_forward_pre_hook(lambda _, args: (fake_quantise(rotate(args[0])),))
        else:
            for weight in module.parameters(recurse=False):
                if weight.ndim > 1:
                    weight.copy_(weight.bfloat16())


@torch.no_grad()
def logits(model: nn.Module, ids: list[int]) -> torch.Tensor:
    """[positions, vocab], all positions in one forward pass without a cache.

    Under dynamic NTK a model remembers the longest sequence it has seen: there, take one that has seen no longer one.
    """
    return model(torch.tensor([ids]), use_cache=False).logits[0]


def greedy(model: nn.Module, ids: list[int], count: int, use_cache: bool = True) -> tuple[list[int], float]:
    """The greedy continuation by generate(), which takes the prompt in one pass and then token by token with a cache
    (without: everything anew for each token), and the smallest distance between the best and the second logit on the
    way."""
    model.generation_config.eos_token_id = None
    for module in model.modules():
        if hasattr(module, "conv1d_state"):  # RecurrentGemma's, of the text before
            module.conv1d_state = None
    options = {"use_cache": use_cache, "do_sample": False, "return_dict_in_generate": True, "output_logits": True}
    out = model.generate(torch.tensor([ids]), max_new_tokens=count, pad_token_id=0, **options)
    best = [row[0].topk(2).values for row in out.logits]
    return out.sequences[0, len(ids) :].tolist(), min(float(pair[0] - pair[1]) for pair in best)


def relative_l2(value: torch.Tensor, reference: torch.Tensor) -> float:
    return float((value.double() - reference.double()).norm() / reference.double().norm())


def perplexity(rows: torch.Tensor, ids: list[int]) -> float:
    """exp of the mean negative log likelihood of ids[1:], `rows` being the logits [len(ids), vocab]."""
    return float(nn.functional.cross_entropy(rows[:-1].double(), torch.tensor(ids[1:])).exp())
