"""Makes tests/data/families: one tiny random checkpoint per family and setting, with what transformers computes from it.

usage: make_families.py [--out FOLDER] [NAME ...]

A case is the neighbour's config with changed lines. README.md here describes the files a case leaves behind.
"""

import argparse
import json
import pathlib
import shutil
import sys

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from reference import KEEP_HEAD, greedy, is_quantised, load_model, logits, quantise_rows, relative_l2

OUT = pathlib.Path(__file__).parents[2] / "tests/data/families"

# One prompt with logits at every position, one of a single token, one longer than any window or chunk in use.
PROMPT_LENGTHS = {"short": 12, "single": 1, "long": 77}
GREEDY_TOKENS = 24
END_IDS = {2, 3}
FIRST_PROMPT_ID = 4

# A seed is taken when no rounding can tip its results: greedy steps this far from a tie, w8a8 this insensitive.
MIN_MARGIN = 0.003
MAX_DISTANCE = 0.003
MIN_DISTINCT_TOKENS = 6
JITTERS = 4

LLAMA1 = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 56,
    "initializer_range": 0.02,
    "intermediate_size": 52,
    "max_position_embeddings": 256,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "rms_norm_eps": 1e-6,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 152,
}
LLAMA = LLAMA1 | {
    "attention_bias": False,
    "hidden_size": 48,
    "intermediate_size": 100,
    "mlp_bias": False,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "vocab_size": 163,
}
LLAMA3_ROPE = {
    "factor": 8.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 64,
    "rope_type": "llama3",
}
LLAMA3 = LLAMA | {
    "eos_token_id": [2, 3],
    "head_dim": 16,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "rope_scaling": LLAMA3_ROPE,
    "tie_word_embeddings": True,
}
QWEN2 = LLAMA1 | {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "bos_token_id": 1,
    "hidden_size": 56,
    "intermediate_size": 92,
    "max_window_layers": 0,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rope_theta": 1000000.0,
    "sliding_window": 16,  # without use_sliding_window it means nothing
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 171,
}
QWEN3 = QWEN2 | {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "attention_bias": False,
    "head_dim": 24,
    "hidden_size": 44,
    "intermediate_size": 84,
    "rope_scaling": None,
    "sliding_window": None,
}
MISTRAL = LLAMA | {
    "architectures": ["MistralForCausalLM"],
    "model_type": "mistral",
    "head_dim": None,
    "intermediate_size": 84,
    "sliding_window": None,
}
for unknown_to_mistral in ("attention_bias", "mlp_bias", "rope_scaling"):
    del MISTRAL[unknown_to_mistral]


def spelled_new(config: dict) -> dict:
    """The transformers 5 spelling: rope_parameters holds rope_theta too, and torch_dtype is dtype."""
    config = dict(config)
    rope = {"rope_theta": config.pop("rope_theta")} | (config.pop("rope_scaling") or {"rope_type": "default"})
    return config | {"rope_parameters": rope, "dtype": config.pop("torch_dtype")}


CASES = {
    "llama": LLAMA1,
    "llama_gqa": LLAMA,
    "llama3_rope_scaling": LLAMA3,
    "llama3_rope_parameters": spelled_new(LLAMA3),
    "llama_linear": LLAMA | {"rope_scaling": {"factor": 4.0, "type": "linear"}},
    "llama_dynamic": LLAMA
    | {"head_dim": 16, "intermediate_size": 84, "max_position_embeddings": 64}
    | {"num_attention_heads": 3, "num_key_value_heads": 3}
    | {"rope_scaling": {"factor": 2.0, "type": "dynamic"}},
    "llama_yarn_mscale": LLAMA
    | {"head_dim": 16, "num_attention_heads": 3, "num_key_value_heads": 1}
    | {
        "rope_scaling": {
            "factor": 8.0,
            "mscale": 1.2,
            "mscale_all_dim": 0.4,
            "original_max_position_embeddings": 32,
            "rope_type": "yarn",
            "truncate": False,
        }
    },
    "llama_bias": LLAMA | {"attention_bias": True, "head_dim": 20, "mlp_bias": True, "num_attention_heads": 3}
    | {"num_key_value_heads": 3, "intermediate_size": 76},
    "llama_sharded": LLAMA | {"intermediate_size": 60, "num_hidden_layers": 3},
    "llama_f16": LLAMA | {"torch_dtype": "float16"},
    "llama_f32": LLAMA | {"hidden_size": 36, "intermediate_size": 68, "torch_dtype": "float32"},
    "qwen2": QWEN2,
    "qwen2_window": QWEN2
    | {"hidden_size": 40, "intermediate_size": 84, "max_window_layers": 1, "num_hidden_layers": 3}
    | {"use_sliding_window": True},
    "qwen2_yarn": QWEN2
    | {"max_position_embeddings": 32}
    | {"rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32, "type": "yarn"}},
    "qwen3": QWEN3,
    "qwen3_yarn": spelled_new(
        QWEN3
        | {
            "rope_scaling": {
                "attention_factor": 1.3,
                "beta_fast": 16.0,
                "beta_slow": 2.0,
                "factor": 8.0,
                "original_max_position_embeddings": 32,
                "rope_type": "yarn",
            }
        }
    ),
    "mistral": MISTRAL,
    "mistral_window": MISTRAL | {"head_dim": 10, "num_attention_heads": 5, "num_key_value_heads": 1, "sliding_window": 20},
}
SHARDS = {"llama_sharded": 3}
NOTES = {
    "llama_dynamic": "As transformers' generate() with a cache: all positions of a prompt are rotated with the base for "
    "max(prompt length, max_position_embeddings), each later token with the base for the length that it makes, and "
    "a key keeps its rotation. The long prompt exceeds max_position_embeddings (64).",
    "llama_f16": "Mode none: matrices rounded to bf16, norms as stored. w8a8: codes from the stored fp16 values.",
    "llama_f32": "Mode none: matrices rounded to bf16, norms as stored. w8a8: codes from the stored fp32 values.",
    "qwen2_yarn": "max_position_embeddings stays at the trained length, as Qwen2.5's model cards advise; the context "
    "that yarn serves is factor * original_max_position_embeddings = 128.",
}


def plant_ties(matrix: np.ndarray) -> None:
    """Row 0 gets a power-of-two scale and weights that lie on whole and half codes: exact .5 ties."""
    step = 2.0 ** np.round(np.log2(np.abs(matrix[0]).max() / 127))
    matrix[0] = np.clip(np.round(matrix[0] / step * 2) / 2, -126.5, 126.5) * step
    matrix[0, 1] = 127 * step


def random_parameter(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Scales at which nothing is negligible: attention is peaked, branches weigh as much as the residual."""
    values = rng.standard_normal(shape)
    if name.endswith("norm.weight"):
        return 1 + 0.25 * values
    if name.endswith("bias"):
        return 0.3 * values
    if "embed_tokens" in name:
        return 0.1 * values
    values *= (1.5 if "q_proj" in name or "k_proj" in name else 1.0) / np.sqrt(shape[1])
    if "lm_head" not in name:
        plant_ties(values)
    return values


def random_tensors(folder: pathlib.Path, config: dict, seed: int) -> dict[str, torch.Tensor]:
    dtype = getattr(torch, config.get("torch_dtype") or config["dtype"])
    rng = np.random.default_rng(seed)
    with torch.device("meta"):
        shapes = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    return {
        name: torch.from_numpy(random_parameter(name, tuple(p.shape), rng)).to(dtype).contiguous()
        for name, p in shapes.named_parameters()
    }


def write_checkpoint(folder: pathlib.Path, config: dict, seed: int, shards: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    tensors = random_tensors(folder, config, seed)
    metadata = {"format": "pt"}
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata)
        return
    names = list(tensors)
    weight_map = {name: f"model-{i % shards + 1:05}-of-{shards:05}.safetensors" for i, name in enumerate(names)}
    for file in sorted(set(weight_map.values())):
        save_file({name: tensors[name] for name in names if weight_map[name] == file}, folder / file, metadata)
    total = sum(t.nbytes for t in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def fnv1a(data: bytes) -> str:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def code_hashes(folder: pathlib.Path) -> dict[str, list[str]]:
    """Per linear weight: hash of the int8 codes, row-major [N, K], and of the little-endian fp32 scales [N]."""
    stored = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    hashes = {}
    for name, module in stored.named_modules():
        if is_quantised(name, module, KEEP_HEAD):
            codes, scale = quantise_rows(module.weight.detach())
            parts = (codes.to(torch.int8).numpy(), scale.numpy().astype("<f4"))
            hashes[f"{name}.weight"] = [fnv1a(part.tobytes()) for part in parts]
    return hashes


def jittered(model: nn.Module, seed: int) -> nn.Module:
    """The same model with its embeddings moved by less than an fp32 rounding step or two."""
    embedding = model.get_input_embeddings()
    noise = torch.randn(embedding.weight.shape, generator=torch.Generator().manual_seed(seed))
    embedding.weight = nn.Parameter(embedding.weight * (1 + 1e-7 * noise), requires_grad=False)
    return model


def recorded_rows(model: nn.Module, prompts: dict[str, list[int]]) -> dict[str, torch.Tensor]:
    rows = {name: logits(model, ids) for name, ids in prompts.items()}
    return {name: r if name == "short" else r[-1:] for name, r in rows.items()}


def spread(folder: pathlib.Path, prompts: dict[str, list[int]], w8a8: dict[str, torch.Tensor]) -> dict[str, float]:
    """Per prompt, how far equally right w8a8 references lie from the recorded one: fp64, and fp32 jittered."""
    others = [load_model(folder, "w8a8", wide=True)]
    others += [jittered(load_model(folder, "w8a8"), seed) for seed in range(JITTERS)]
    others = [recorded_rows(model, prompts) for model in others]
    return {name: max(relative_l2(other[name], w8a8[name]) for other in others) for name in prompts}


def random_prompts(config: dict, seed: int) -> dict[str, list[int]]:
    rng = np.random.default_rng(seed)
    return {n: rng.integers(FIRST_PROMPT_ID, config["vocab_size"], k).tolist() for n, k in PROMPT_LENGTHS.items()}


def try_seed(folder: pathlib.Path, config: dict, seed: int, shards: int, notes: str) -> bool:
    """Writes the whole case; False where the seed's results hang on a rounding."""
    write_checkpoint(folder, config, seed, shards)
    prompts = random_prompts(config, seed)
    model = load_model(folder)
    margins: list[float] = []
    paths = {}
    for name, ids in prompts.items():
        paths[name], margin = greedy(model, ids, GREEDY_TOKENS)
        margins.append(margin)
        if margin < MIN_MARGIN or len(set(paths[name])) < MIN_DISTINCT_TOKENS or END_IDS & set(paths[name]):
            return False
    none = recorded_rows(load_model(folder), prompts)
    w8a8 = recorded_rows(load_model(folder, "w8a8"), prompts)
    distance = spread(folder, prompts, w8a8)
    if max(distance.values()) > MAX_DISTANCE:
        return False
    for mode, rows in (("none", none), ("w8a8", w8a8)):
        np.save(folder / f"logits_{mode}.npy", torch.cat(list(rows.values())).numpy().astype("<f4"))
    expected = {
        "seed": seed,
        "notes": notes,
        "min_margin": round(min(margins), 5),
        "prompts": [
            {
                "name": name,
                "ids": ids,
                "greedy_ids": paths[name],
                "rows": len(none[name]),
                "w8a8_distance": round(distance[name], 7),
            }
            for name, ids in prompts.items()
        ],
        "codes": code_hashes(folder),
    }
    write_expected(folder, expected)
    effect = relative_l2(w8a8["short"], none["short"])
    print(f"{folder.name}: seed {seed}, margin {min(margins):.4f}, w8a8 from none {effect:.3f},", end=" ")
    print("w8a8 spread", {name: f"{d:.1e}" for name, d in distance.items()}, flush=True)
    return True


def write_expected(folder: pathlib.Path, expected: dict) -> None:
    """One field a line, one prompt a line, one tensor a line: diffs stay readable and the file short."""
    lines = [f"{json.dumps(key)}: {json.dumps(expected[key])}" for key in ("seed", "notes", "min_margin")]
    prompts = ",\n  ".join(json.dumps(prompt) for prompt in expected["prompts"])
    codes = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(pair)}" for name, pair in expected["codes"].items())
    lines += [f'"prompts": [\n  {prompts}\n ]', f'"codes": {{\n  {codes}\n }}']
    (folder / "expected.json").write_text("{\n " + ",\n ".join(lines) + "\n}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=OUT)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CASES)}; all without")
    args = parser.parse_args()
    unknown = set(args.names) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    logging.disable_progress_bar()
    for name in args.names or CASES:
        seed, shards, notes = 1, SHARDS.get(name, 1), NOTES.get(name, "")
        while not try_seed(args.out / name, CASES[name], seed, shards, notes):
            seed += 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
