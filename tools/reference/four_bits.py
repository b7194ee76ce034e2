"""What formats of few bits do to a model's predictions: Pinion's modes beside Q4_0 and Q8_0 of the same weights.

usage: four_bits.py DIR --pinion build/release/pinion --text FILE [--tokens 1000] [--window 512]

Everything is compared with the reference on the weights as stored (mode none): perplexity, mean KL divergence of the
predictions, how often the likeliest token is the same, the last two with their standard errors. Pinion's logits come
from the program; Q4_0 and Q8_0 are the quantisers of the gguf package, evaluated by the reference, with inputs in
blocks of 32 as llama.cpp multiplies them. A long text is cut into windows that know nothing of each other, as `pinion
quality` does it.
"""

import argparse
import functools
import math
import pathlib
import sys
from collections.abc import Callable

import gguf
import numpy as np
import torch
from torch import nn

from compare_logits import pinion_logits, tokenize
from reference import load_model, logits

BLOCK = 32
HEAD = "lm_head"
MODES = ("w8a8", "w4a8", "w4a8 --head w4")


def in_blocks(matrix: torch.Tensor) -> torch.Tensor:
    """Rows filled up with zeros to whole blocks."""
    return nn.functional.pad(matrix.float(), (0, -matrix.shape[-1] % BLOCK))


def round_trip(matrix: torch.Tensor, kind: gguf.GGMLQuantizationType) -> torch.Tensor:
    rows = in_blocks(matrix).contiguous().numpy()
    values = gguf.quants.dequantize(gguf.quants.quantize(rows, kind), kind)
    return torch.from_numpy(np.ascontiguousarray(values))[:, : matrix.shape[-1]]


def block_inputs(x: torch.Tensor) -> torch.Tensor:
    blocks = in_blocks(x).unflatten(-1, (-1, BLOCK))
    scale = (blocks.abs().amax(-1, keepdim=True) / 127).half().float()
    codes = torch.where(scale > 0, torch.round(blocks / scale), torch.zeros_like(blocks))
    return (codes * scale).flatten(-2)[..., : x.shape[-1]]


def gguf_model(folder: str, body: gguf.GGMLQuantizationType, head: gguf.GGMLQuantizationType) -> nn.Module:
    model = load_model(folder)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            kind = head if HEAD in name else body
            module.weight = nn.Parameter(round_trip(module.weight, kind), requires_grad=False)
            module.register_forward_pre_hook(lambda _, args: (block_inputs(args[0]),))
    return model


def cut(ids: list[int], prefix: list[int], window: int) -> list[list[int]]:
    """Windows of at most so many tokens; each begins with what the tokenizer puts before a text."""
    content, step = ids[len(prefix) :], window - len(prefix)
    return [prefix + content[first : first + step] for first in range(0, len(content), step)]


def mean(values: torch.Tensor) -> tuple[float, float]:
    """With its standard error."""
    return float(values.mean()), float(values.std() / math.sqrt(len(values)))


def report(name: str, rows: list[torch.Tensor], plain: list[torch.Tensor], windows: list[list[int]]) -> None:
    losses, divergences, same = [], [], []
    for own, reference, ids in zip(rows, plain, windows, strict=True):
        log_p, log_q = (x.double().log_softmax(-1) for x in (reference, own))
        losses.append(nn.functional.nll_loss(log_q[:-1], torch.tensor(ids[1:]), reduction="none"))
        divergences.append((log_p.exp() * (log_p - log_q)).sum(-1))
        same.append((own.argmax(-1) == reference.argmax(-1)).double())
    kl, kl_error = mean(torch.cat(divergences))
    top, top_error = mean(100 * torch.cat(same))
    perplexity = math.exp(torch.cat(losses).mean())
    print(f"| {name} | {perplexity:.4f} | {kl:.5f} +- {kl_error:.5f} | {top:.1f} +- {top_error:.1f} % |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--pinion", default="build/release/pinion", help="the program (default: %(default)s)")
    parser.add_argument("--text", type=pathlib.Path, required=True, metavar="FILE", help="UTF-8 text")
    parser.add_argument("--tokens", type=int, default=1000, help="of the text at most (default: %(default)s)")
    parser.add_argument("--window", type=int, default=512, help="tokens that see one another (default: %(default)s)")
    args = parser.parse_args()
    ids = tokenize(args.pinion, args.folder, args.text.read_text(encoding="utf-8"))[: args.tokens]
    windows = cut(ids, tokenize(args.pinion, args.folder, ""), args.window)

    def evaluate(rows_of: Callable[[list[int]], torch.Tensor]) -> list[torch.Tensor]:
        return [rows_of(window) for window in windows]

    plain = evaluate(functools.partial(logits, load_model(args.folder)))
    print("| weights | perplexity | mean KL | likeliest token the same |\n|---|---|---|---|")
    report("as stored", plain, plain, windows)
    for mode in MODES:
        run = functools.partial(pinion_logits, args.pinion, args.folder, options=["--quant", *mode.split()])
        report(f"Pinion {mode}", evaluate(run), plain, windows)
    q4, q8 = gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q8_0
    for name, body, head in (("Q8_0", q8, q8), ("Q4_0, head Q8_0", q4, q8), ("Q4_0", q4, q4)):
        model = gguf_model(args.folder, body, head)
        report(name, evaluate(functools.partial(logits, model)), plain, windows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
