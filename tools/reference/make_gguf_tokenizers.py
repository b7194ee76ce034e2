#!/usr/bin/env python3
"""Records what the reference libraries make of GGUF files' tokenizers.

    make_gguf_tokenizers.py            writes tests/data/gguf/tokenizers.json

Needs the packages tokenizers and sentencepiece. "pre_tokenizers" has, for each first name of a row of
configs/gguf_pretokenizers.json, a hash of the ids of every ten texts of tests/data/tokenizers/texts.json: the vocabulary
is that of tests/data/tokenizers/gpt2, or of gemma for rows without bytes as characters. "sentencepiece" has the metadata
that llama.cpp's converter writes for tests/data/tokenizers/sentencepiece_bpe.
"""
import json
import pathlib

from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENIZERS = ROOT / "tests/data/tokenizers"
TEXTS_IN_HASH = 10


def read(path: pathlib.Path):
    return json.loads(path.read_text(encoding="utf-8"))


def complete(component: dict) -> dict:
    """The reference demands fields that Pinion takes as absent."""
    defaults = {"Split": {"invert": False}, "ByteLevel": {"trim_offsets": False}}
    for member in component.get("pretokenizers", []):
        complete(member)
    for name, value in defaults.get(component["type"], {}).items():
        component.setdefault(name, value)
    return component


def reference(row: dict) -> Tokenizer:
    parts = row["tokenizer"]
    file = read(TOKENIZERS / ("gemma" if "decoder" in parts else "gpt2") / "tokenizer.json")
    file["added_tokens"], file["post_processor"] = [], None
    file["normalizer"], file["pre_tokenizer"] = parts.get("normalizer"), complete(parts["pre_tokenizer"])
    file["model"] |= parts.get("model", {})
    return Tokenizer.from_str(json.dumps(file))


def hashes(tokenizer: Tokenizer, texts: list[str]) -> list[int]:
    """FNV-1a over ids, and over the length of each text's."""
    result = []
    for begin in range(0, len(texts), TEXTS_IN_HASH):
        value = 2166136261
        for text in texts[begin : begin + TEXTS_IN_HASH]:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            for number in [len(ids), *ids]:
                value = (value ^ number) * 16777619 & 0xFFFFFFFF
        result.append(value)
    return result


def sentencepiece_metadata() -> dict:
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString((TOKENIZERS / "sentencepiece_bpe/tokenizer.model").read_bytes())
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [piece.piece for piece in model.pieces],
        "tokenizer.ggml.scores": [piece.score for piece in model.pieces],
        "tokenizer.ggml.token_type": [piece.type for piece in model.pieces],
        "tokenizer.ggml.bos_token_id": trainer.bos_id,
        "tokenizer.ggml.eos_token_id": trainer.eos_id,
        "tokenizer.ggml.unknown_token_id": trainer.unk_id,
        "tokenizer.ggml.add_space_prefix": normalizer.add_dummy_prefix,
    }


def main():
    texts = read(TOKENIZERS / "texts.json")
    rows = read(ROOT / "configs/gguf_pretokenizers.json")
    data = {"pre_tokenizers": {row["names"][0]: hashes(reference(row), texts) for row in rows}, "sentencepiece": sentencepiece_metadata()}
    out = ROOT / "tests/data/gguf/tokenizers.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("],", "],\n") + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
