"""llama.cpp's formats beside Pinion's modes on real models: what tools/quality_report prints of Q8_0, Q4_0, Q4_K ...

Weights go through the quantisers of the gguf package; those of K-quants are not in it, so they are llama.cpp's own, from
the library that the npm package @node-llama-cpp carries. Inputs are rounded as llama.cpp rounds them before it
multiplies: to int8 in blocks of 32, before K-quants in blocks of 256. IQ4_XS weighs errors by the mean squares of the
inputs of a text (its importance matrix). All else is the reference's fp32; embeddings and norms stay as stored. Token ids, windows, and what counts as predicted are those of `pinion quality`.

  venv/bin/python tools/reference/peers.py PINION MODEL CALIBRATION TEXT...   # 1,024 tokens of each text, every format
"""

import ctypes
import dataclasses
import functools
import json
import pathlib
import platform
import re
import subprocess
import sys
import tarfile
import tempfile

import gguf
import numpy as np
import safetensors
import torch
from torch import nn
from transformers.utils import logging

from compare_logits import tokenize
from four_bits import HEAD, block_inputs, cut, mean, round_trip
from reference import load_model, logits

logging.disable_progress_bar()
Kind = gguf.GGMLQuantizationType
SUPER_BLOCK = 256
# What llama.cpp takes instead where rows are no multiple of 256.
NARROWER = {Kind.Q4_K: Kind.Q5_0, Kind.Q5_K: Kind.Q5_1, Kind.Q6_K: Kind.Q8_0, Kind.IQ4_XS: Kind.IQ4_NL}
BY_GGML = {*NARROWER, Kind.IQ4_NL}  # the others are in the gguf package
LIBRARY = {"x86_64": "linux-x64", "aarch64": "linux-arm64"}
LIBRARY_VERSION = "3.22.1"
ROWS = 64  # of logits compared at a time


class Missing(Exception):
    """What this machine lacks for a format, in words."""


@dataclasses.dataclass(frozen=True)
class Format:
    body: Kind
    head: Kind
    sensitive: Kind | None = None  # of v and down in half of the layers
    is_weighted: bool = False  # by an importance matrix

    def kind(self, name: str, inputs: int, layers: int) -> Kind:
        """`layers`: of the model. llama.cpp chooses the first and the last eighth, and every third layer between."""
        wanted = self.head if HEAD in name else self.body
        layer = re.search(r"layers\.(\d+)\..*(v_proj|down_proj)", name)
        if self.sensitive and layer:
            i, eighth = int(layer[1]), layers // 8
            if i < eighth or i >= 7 * layers // 8 or (i - eighth) % 3 == 2:
                wanted = self.sensitive
        return wanted if inputs % SUPER_BLOCK == 0 else NARROWER.get(wanted, wanted)


FORMATS = {
    "Q8_0": Format(Kind.Q8_0, Kind.Q8_0),
    "Q4_0, head Q8_0": Format(Kind.Q4_0, Kind.Q8_0),
    "Q4_K, head Q6_K": Format(Kind.Q4_K, Kind.Q6_K),
    "Q4_K_M": Format(Kind.Q4_K, Kind.Q6_K, Kind.Q6_K),
    "Q5_K_M": Format(Kind.Q5_K, Kind.Q6_K, Kind.Q6_K),
    "IQ4_XS": Format(Kind.IQ4_XS, Kind.Q6_K, is_weighted=True),
}


@functools.cache
def ggml(folder: pathlib.Path) -> ctypes.CDLL:
    """llama.cpp's library, fetched into the folder where it is not there yet."""
    name = LIBRARY.get(platform.machine(), "")
    path = folder / f"libggml-base-{name}-{LIBRARY_VERSION}.so"
    if not path.exists():
        try:
            with tempfile.TemporaryDirectory() as work:
                package = f"@node-llama-cpp/{name}@{LIBRARY_VERSION}"
                subprocess.run(["npm", "pack", "--silent", package], cwd=work, check=True, capture_output=True)
                with tarfile.open(next(pathlib.Path(work).glob("*.tgz"))) as archive:
                    path.write_bytes(archive.extractfile(f"package/bins/{name}/libggml-base.so").read())
        except (OSError, KeyError, subprocess.CalledProcessError) as failure:
            raise Missing(f"llama.cpp's quantisers come from npm's @node-llama-cpp, which failed: {failure}") from None
    library = ctypes.CDLL(str(path))
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = [
        *(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p),
        *(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p),
    ]
    library.ggml_quantize_init.argtypes = [ctypes.c_int]
    for kind in BY_GGML:
        library.ggml_quantize_init(kind)
    return library


def round_trip_by_ggml(library: ctypes.CDLL, matrix: torch.Tensor, kind: Kind, weights: np.ndarray | None) -> torch.Tensor:
    """weights: the inputs' mean squares; None: as llama-quantize does it by default."""
    rows = np.ascontiguousarray(matrix.float().numpy())
    block, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.empty((rows.shape[0], rows.shape[1] // block * size), np.uint8)
    importance = None if weights is None else weights.ctypes.data
    library.ggml_quantize_chunk(kind, rows.ctypes.data, blocks.ctypes.data, 0, *rows.shape, importance)
    return torch.from_numpy(np.ascontiguousarray(gguf.quants.dequantize(blocks, kind)))


def super_block_inputs(x: torch.Tensor) -> torch.Tensor:
    """Q8_K: as in blocks of 32, but the scale stays fp32."""
    blocks = x.unflatten(-1, (-1, SUPER_BLOCK))
    scale = blocks.abs().amax(-1, keepdim=True) / 127
    codes = torch.where(scale > 0, torch.round(blocks / scale), torch.zeros_like(blocks))
    return (codes * scale).flatten(-2)


def linear_layers(model: nn.Module) -> list[tuple[str, nn.Linear]]:
    return [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]


def mean_squares(model: nn.Module, windows: list[list[int]]) -> dict[str, np.ndarray]:
    """Of the inputs of each layer's matrices: an importance matrix."""
    sums: dict[str, torch.Tensor] = {}

    def add(name: str):
        def hook(_, args):
            sums[name] = sums.get(name, 0) + args[0].reshape(-1, args[0].shape[-1]).square().sum(0)

        return hook

    hooks = [module.register_forward_pre_hook(add(name)) for name, module in linear_layers(model)]
    for ids in windows:
        logits(model, ids)
    for hook in hooks:
        hook.remove()
    return {name: (total / sum(map(len, windows))).float().numpy() for name, total in sums.items()}


def peer_model(folder: pathlib.Path, peer: Format, calibration: list[list[int]]) -> nn.Module:
    """calibration: windows of the text of the importance matrix."""
    model = load_model(str(folder))
    weights = mean_squares(model, calibration) if peer.is_weighted else {}
    for name, module in linear_layers(model):
        kind = peer.kind(name, module.in_features, model.config.num_hidden_layers)
        if kind in BY_GGML:
            rounded_weight = round_trip_by_ggml(ggml(folder.parent), module.weight, kind, weights.get(name))
        else:
            rounded_weight = round_trip(module.weight, kind)
        module.weight = nn.Parameter(rounded_weight, requires_grad=False)
        rounded = super_block_inputs if kind in NARROWER else block_inputs
        module.register_forward_pre_hook(lambda _, args, rounded=rounded: (rounded(args[0]),))
    return model


def body_bits(folder: pathlib.Path, name: str) -> tuple[dict[str, float], int]:
    """Bits by kind, and how many weights; without the head."""
    with safetensors.safe_open(folder / "model.safetensors", "pt") as file:
        shapes = {tensor: file.get_slice(tensor).get_shape() for tensor in file.keys() if "_proj" in tensor}
    bits: dict[str, float] = {}
    layers = json.loads((folder / "config.json").read_text())["num_hidden_layers"]
    for tensor, (rows, inputs) in shapes.items():
        kind = FORMATS[name].kind(tensor, inputs, layers)
        block, size = gguf.GGML_QUANT_SIZES[kind]
        bits[kind.name] = bits.get(kind.name, 0) + rows * inputs * 8 * size / block
    return bits, sum(rows * inputs for rows, inputs in shapes.values())


def narrower(folder: pathlib.Path, name: str) -> str:
    """In words, what else the matrices become than the format's name says; empty where they do not."""
    bits, weights = body_bits(folder, name)
    if set(bits) <= {kind.name for kind in (FORMATS[name].body, FORMATS[name].sensitive) if kind}:
        return ""
    total = sum(bits.values())
    shares = ", ".join(f"{kind} {100 * part / total:.0f} %" for kind, part in sorted(bits.items()))
    return f"rows of no multiple of {SUPER_BLOCK} become others; {shares}; {total / weights:.1f} bits a weight without the head"


def token_bytes(folder: pathlib.Path, name: str) -> float:
    """What decoding a token reads: the layers and the head."""
    config = json.loads((folder / "config.json").read_text())
    inputs, layers = config["hidden_size"], config["num_hidden_layers"]
    block, size = gguf.GGML_QUANT_SIZES[FORMATS[name].kind(HEAD, inputs, layers)]
    return sum(body_bits(folder, name)[0].values()) / 8 + config["vocab_size"] * inputs * size / block


def windows_of(pinion: str, folder: pathlib.Path, text: pathlib.Path, tokens: int, window: int):
    """The windows' token ids, and how many of each are what the tokenizer puts before a text."""
    ids, prefix = (tokenize(pinion, str(folder), part) for part in (text.read_text(encoding="utf-8"), ""))
    added = next((i for i, pair in enumerate(zip(prefix, ids)) if pair[0] != pair[1]), min(len(prefix), len(ids)))
    return cut(ids[: added + tokens], ids[:added], window), added


def compare(own: torch.Tensor, plain: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """KL divergence of each row, and whether its likeliest token is the same."""
    divergences = []
    for i in range(0, len(own), ROWS):
        log_p, log_q = (x[i : i + ROWS].double().log_softmax(-1) for x in (plain, own))
        divergences.append((log_p.exp() * (log_p - log_q)).sum(-1))
    return torch.cat(divergences), (own.argmax(-1) == plain.argmax(-1)).double()


def measure(folder: pathlib.Path, name: str, texts: list[tuple[list[list[int]], int]], calibration: list[list[int]]) -> list[dict]:
    """Of each text the mean divergence and agreement with their standard errors, as `pinion quality` names them."""
    own, plain = peer_model(folder, FORMATS[name], calibration), load_model(str(folder))
    found = []
    for windows, added in texts:
        rows = slice(max(1, added) - 1, -1)  # the last row predicts nothing of the window, the prefix is no text
        pairs = [compare(logits(own, ids)[rows], logits(plain, ids)[rows]) for ids in windows]
        kl, same = (mean(torch.cat(column)) for column in zip(*pairs, strict=True))
        found.append({"kl": kl, "same_top": same})
    return found


def main() -> None:
    pinion, folder, *paths = sys.argv[1:]
    model = pathlib.Path(folder)
    calibration, *texts = [windows_of(pinion, model, pathlib.Path(path), 1024, 512) for path in paths]
    for name in FORMATS:
        bits, weights = body_bits(model, name)
        divergences = [text["kl"][0] for text in measure(model, name, texts, calibration[0])]
        print(f"{name}: {sum(bits.values()) / weights:.2f} bits a weight of the layers; KL", *(f"{x:.5f}" for x in divergences))


if __name__ == "__main__":
    main()
