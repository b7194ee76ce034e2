"""The shape of the demo model, its tokenizer, and the Hugging Face folder both are saved to."""

import json
import os
import pathlib
import tempfile

import sentencepiece
import torch
from safetensors.torch import save_file
from transformers import Qwen3Config, Qwen3ForCausalLM

from chats import MARKS

ROWS = 512  # positions trained
BOS, EOS = 1, 2
CHAT_END = 6

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "head_dim": 48,
    "hidden_act": "silu",
    "hidden_size": 192,
    "initializer_range": 0.02,
    "intermediate_size": 384,
    "max_position_embeddings": ROWS,
    "model_type": "qwen3",
    "num_attention_heads": 4,
    "num_hidden_layers": 5,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 2048,
}

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] | trim + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

GENERATION = {
    "bos_token_id": BOS,
    "do_sample": True,
    "eos_token_id": [EOS, CHAT_END],
    "max_new_tokens": 256,
    "temperature": 0.6,
    "top_k": 40,
    "top_p": 0.9,
}


def new_model() -> Qwen3ForCausalLM:
    return Qwen3ForCausalLM(
        Qwen3Config(**{k: v for k, v in CONFIG.items() if k not in ("architectures", "torch_dtype")})
    )


def train_tokenizer(texts: list[str], path: pathlib.Path) -> None:
    """Sentencepiece BPE. No dummy prefix: text after a chat marker then reads the same however it was cut."""
    marks = list(MARKS.values())
    for mark in marks:
        texts = [text.replace(mark, "\n") for text in texts]
    lines = [line for text in texts for line in text.split("\n") if line]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(path.with_suffix("")),
        model_type="bpe",
        vocab_size=CONFIG["vocab_size"],
        byte_fallback=True,
        character_coverage=1.0,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
        split_digits=True,
        user_defined_symbols=marks,
        num_threads=1,
        minloglevel=2,
    )


def tokenizer_config() -> dict:
    special = {0: "<unk>", BOS: "<s>", EOS: "</s>"} | {3 + i: mark for i, mark in enumerate(MARKS.values())}
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    return {
        "add_bos_token": True,
        "add_eos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": {str(i): {"content": text} | flags for i, text in special.items()},
        "bos_token": "<s>",
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": "</s>",
        "legacy": False,
        "model_max_length": CONFIG["max_position_embeddings"],
        "pad_token": None,
        "tokenizer_class": "LlamaTokenizer",
        "unk_token": "<unk>",
    }


def replace(path: pathlib.Path, data: bytes) -> None:
    """Readers see the old file or the new one, never half of it."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as aside:
        aside.write(data)
    os.chmod(aside.name, 0o644)
    os.replace(aside.name, path)


def save_folder(model: Qwen3ForCausalLM, tokenizer: pathlib.Path, folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name: value.to(torch.bfloat16).contiguous()
        for name, value in model.state_dict().items()
        if name != "lm_head.weight"
    }
    aside = folder / ".weights"
    save_file(weights, aside, metadata={"format": "pt"})
    os.chmod(aside, 0o644)
    os.replace(aside, folder / "model.safetensors")
    replace(folder / "tokenizer.model", tokenizer.read_bytes())
    for name, data in (("config", CONFIG), ("tokenizer_config", tokenizer_config()), ("generation_config", GENERATION)):
        replace(folder / f"{name}.json", (json.dumps(data, indent=2) + "\n").encode())
