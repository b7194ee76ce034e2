"""The reference: Hugging Face transformers in fp32 (or fp64) arithmetic, plain or fake-quantised like Pinion's w8a8.

Owns what the other scripts here share: loading, quantising, logits, greedy decoding, distances. Knows no family.
"""

import functools

import torch
from torch import nn
from transformers import AutoModelForCausalLM

KEEP_HEAD = ("lm_head",)


def quantise_rows(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Integer codes [rows, cols] and fp32 scales [rows, 1]: scale = amax / 127, code = round-half-even(x / scale)."""
    x = matrix.float()
    scale = x.abs().amax(-1, keepdim=True) / 127
    codes = torch.where(scale > 0, torch.round(x / scale), torch.zeros_like(x))
    return codes.clamp(-127, 127), scale


def fake_quantise(matrix: torch.Tensor) -> torch.Tensor:
    codes, scale = quantise_rows(matrix)
    return codes.to(matrix.dtype) * scale.to(matrix.dtype)


def is_quantised(name: str, module: nn.Module, keep: tuple[str, ...]) -> bool:
    return isinstance(module, nn.Linear) and not any(pattern in name for pattern in keep)


def wide_rms_norm(norm: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return norm.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)


def widen(model: nn.Module) -> None:
    """fp64 throughout: transformers itself computes norms in fp32 whatever the model's type."""
    model.double()
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = functools.partial(wide_rms_norm, module)


def load_model(folder: str, quant: str = "none", keep: tuple[str, ...] = KEEP_HEAD, wide: bool = False) -> nn.Module:
    """Matrices are rounded to bf16 as Pinion holds them (no change for bf16 files); norms and biases stay as stored.

    With w8a8 every linear layer outside `keep` gets weights quantised from the stored values and, through a hook,
    inputs quantised per token.
    """
    model, report = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=torch.float32,
        attn_implementation="sdpa" if wide else "eager",  # eager computes the softmax in fp32 always
        output_loading_info=True,
    )
    if report["missing_keys"] or report["unexpected_keys"] or report["mismatched_keys"]:
        raise SystemExit(f"{folder}: tensors do not fit the config: {report}")
    model.eval().requires_grad_(False)
    if wide:
        widen(model)
    for name, module in model.named_modules():
        if quant == "w8a8" and is_quantised(name, module, keep):
            module.weight = nn.Parameter(fake_quantise(module.weight), requires_grad=False)
            module.register_forward_pre_hook(lambda _, args: (fake_quantise(args[0]),))
        elif isinstance(module, (nn.Linear, nn.Embedding)):
            module.weight.copy_(module.weight.bfloat16())
    return model


@torch.no_grad()
def logits(model: nn.Module, ids: list[int]) -> torch.Tensor:
    """[positions, vocab], all positions in one forward pass without a cache.

    Under dynamic NTK a model remembers the longest sequence it has seen: there, take one that has seen no longer one.
    """
    return model(torch.tensor([ids]), use_cache=False).logits[0]


@torch.no_grad()
def greedy(model: nn.Module, ids: list[int], count: int) -> tuple[list[int], float]:
    """The greedy continuation (prompt in one pass, then token by token with a KV cache, as generate() does it) and
    the smallest distance between the best and the second logit on the way."""
    out = model(torch.tensor([ids]), use_cache=True)
    path, margin = [], float("inf")
    while True:
        best = out.logits[0, -1].topk(2)
        path.append(int(best.indices[0]))
        margin = min(margin, float(best.values[0] - best.values[1]))
        if len(path) == count:
            return path, margin
        position = torch.tensor([[len(ids) + len(path) - 1]])
        token = torch.tensor([[path[-1]]])
        out = model(token, position_ids=position, past_key_values=out.past_key_values, use_cache=True)


def relative_l2(value: torch.Tensor, reference: torch.Tensor) -> float:
    return float((value.double() - reference.double()).norm() / reference.double().norm())


def perplexity(rows: torch.Tensor, ids: list[int]) -> float:
    """exp of the mean negative log likelihood of ids[1:], `rows` being the logits [len(ids), vocab]."""
    return float(nn.functional.cross_entropy(rows[:-1].double(), torch.tensor(ids[1:])).exp())
