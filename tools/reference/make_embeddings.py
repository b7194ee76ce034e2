"""Makes tests/data/embeddings: tiny random models that make vectors or scores, and what sentence-transformers computes.

usage: make_embeddings.py [--out FOLDER] [NAME ...]

Each folder is laid out as the published models are: modules.json, the folders of its modules, prompts. expected.json has
the texts with their vectors (fp32), or a query with documents and their scores.
"""

import argparse
import json
import pathlib
import shutil

import numpy as np
import torch
from safetensors.torch import save_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification

from configs import GEMMA3, MISTRAL, QWEN2, QWEN3
from make_families import random_parameter

DATA = pathlib.Path(__file__).parents[2] / "tests/data"
TEXTS = [
    "The harbour is quiet in the morning.",
    "Ships leave the port before sunrise.",
    "A recipe for bread: flour, water, salt, yeast and time.",
    "x",
    "Der Hafen ist am Morgen still, und die Schiffe fahren vor Sonnenaufgang aus. " * 6,
]
QUERY = "When do ships leave?"
TRANSFORMER = "sentence_transformers.models.Transformer"
RERANKER_TEMPLATE = (
    "{%- set system = messages | selectattr('role', 'eq', 'system') | map(attribute='content') | list -%}"
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: '
    "{{ system[0] if system else 'Given a web search query, retrieve relevant passages that answer the query' }}\n"
    "<Query>: {{ messages | selectattr('role', 'eq', 'query') | map(attribute='content') | first }}\n"
    "<Document>: {{ messages | selectattr('role', 'eq', 'document') | map(attribute='content') | first }}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)


def write(path: pathlib.Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")


def with_ends(tokenizer: dict, first: str | None, last: str | None) -> dict:
    """The tokenizer with a token before and behind each text."""
    ids = {t["content"]: t["id"] for t in tokenizer["added_tokens"]} | tokenizer["model"]["vocab"]
    ends = [name for name in (first, last) if name]
    row = [{"SpecialToken": {"id": first, "type_id": 0}}] if first else []
    row += [{"Sequence": {"id": "A", "type_id": 0}}]
    row += [{"SpecialToken": {"id": last, "type_id": 0}}] if last else []
    second = [{kind: value | {"type_id": 1, "id": value["id"].replace("A", "B") if kind == "Sequence" else value["id"]}
               for kind, value in part.items()} for part in row]
    special = {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in ends}
    template = {"type": "TemplateProcessing", "single": row, "pair": row + second, "special_tokens": special}
    return tokenizer | {"post_processor": template}


def write_model(folder: pathlib.Path, config: dict, auto: type, tokenizer: str, ends: tuple, strip: bool,
                longest: int = 64) -> None:
    """strip: the names of a base model, without "model."."""
    shutil.rmtree(folder, ignore_errors=True)
    text = with_ends(json.loads((DATA / "tokenizers" / tokenizer / "tokenizer.json").read_text()), *ends)
    write(folder / "tokenizer.json", text)
    added = [t["content"] for t in text["added_tokens"]]
    pad = "<|endoftext|>" if "<|endoftext|>" in added else "<pad>"
    write(folder / "tokenizer_config.json",
          {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": pad, "model_max_length": longest})
    vocab = max([t["id"] for t in text["added_tokens"]] + list(text["model"]["vocab"].values())) + 1
    config = config | {"vocab_size": vocab, "pad_token_id": 0}
    write(folder / "config.json", config)
    rng = np.random.default_rng(7)
    with torch.device("meta"):
        shapes = auto.from_config(AutoConfig.from_pretrained(folder))
    mean = 0.0 if config["model_type"].startswith("gemma") else 1.0
    tensors = {}
    for name, parameter in shapes.named_parameters():
        values = random_parameter(name, tuple(parameter.shape), mean, rng)
        name = name.removeprefix("model.") if strip else name
        tensors[name] = torch.from_numpy(values).bfloat16().contiguous()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def write_modules(folder: pathlib.Path, kinds: list[str]) -> None:
    rows = []
    for i, kind in enumerate(kinds):
        path = "" if i == 0 else f"{i}_{kind.rsplit('.', 1)[-1]}"
        rows.append({"idx": i, "name": str(i), "path": path, "type": kind})
    write(folder / "modules.json", rows)
    write(folder / "sentence_bert_config.json", {"max_seq_length": 48, "do_lower_case": False})


def write_dense(folder: pathlib.Path, inputs: int, outputs: int, activation: str, bias: bool) -> None:
    write(folder / "config.json", {"in_features": inputs, "out_features": outputs, "bias": bias,
                                   "activation_function": f"torch.nn.modules.{activation}"})
    rng = np.random.default_rng(inputs)
    tensors = {"linear.weight": torch.from_numpy(rng.standard_normal((outputs, inputs)) / inputs**0.5).bfloat16()}
    if bias:
        tensors["linear.bias"] = torch.from_numpy(0.3 * rng.standard_normal(outputs)).float()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def tiny(config: dict, **changes: object) -> dict:
    return config | {"torch_dtype": "bfloat16"} | changes


def qwen3_last(folder: pathlib.Path) -> dict:
    """As Qwen3-Embedding: the last token, which the tokenizer adds; tensors without "model."."""
    write_model(folder, tiny(QWEN3), AutoModelForCausalLM, "qwen2", (None, "<|endoftext|>"), strip=True)
    write_modules(folder, [TRANSFORMER, "sentence_transformers.models.Pooling", "sentence_transformers.models.Normalize"])
    write(folder / "1_Pooling/config.json", {"word_embedding_dimension": QWEN3["hidden_size"],
          "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True,
          "include_prompt": True})
    write(folder / "config_sentence_transformers.json", {"prompts": {
        "query": "Instruct: find the passage\nQuery:", "document": ""}, "default_prompt_name": None})
    return vectors(folder, ["", "query"])


def gemma3_mean(folder: pathlib.Path) -> dict:
    """As EmbeddingGemma: attention to both sides, the mean, two dense layers."""
    size = GEMMA3["hidden_size"]
    write_model(folder, tiny(GEMMA3, architectures=["Gemma3TextModel"], use_bidirectional_attention=True,
                             num_hidden_layers=6, sliding_window_pattern=6, query_pre_attn_scalar=GEMMA3["head_dim"]), AutoModel, "gemma", ("<bos>", "<eos>"), strip=True)
    package = "sentence_transformers.models."
    write_modules(folder, [TRANSFORMER, package + "Pooling", package + "Dense", package + "Dense", package + "Normalize"])
    write(folder / "1_Pooling/config.json", {"word_embedding_dimension": size, "pooling_mode_mean_tokens": True,
                                             "include_prompt": True})
    write_dense(folder / "2_Dense", size, 3 * size, "linear.Identity", False)
    write_dense(folder / "3_Dense", 3 * size, size, "linear.Identity", False)
    write(folder / "config_sentence_transformers.json", {"prompts": {
        "query": "task: search result | query: ", "document": "title: none | text: "}, "default_prompt_name": "document"})
    return vectors(folder, ["", "query"])


def mistral_base(folder: pathlib.Path) -> dict:
    """As e5-mistral: a base model without a head; here the prompt's tokens are not pooled."""
    write_model(folder, tiny(MISTRAL, architectures=["MistralModel"]), AutoModel, "llama3", ("<|begin_of_text|>", None),
                strip=True)
    write_modules(folder, ["sentence_transformers.base.modules.transformer.Transformer",
                           "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
                           "sentence_transformers.base.modules.dense.Dense"])
    write_dense(folder / "2_Dense", MISTRAL["hidden_size"], 20, "activation.Tanh", True)
    write(folder / "1_Pooling/config.json", {"embedding_dimension": MISTRAL["hidden_size"],
          "pooling_mode": "weightedmean", "include_prompt": False})
    write(folder / "config_sentence_transformers.json", {"prompts": {"query": "Instruct: search\nQuery: "}})
    return vectors(folder, ["", "query"])


def qwen2_score(folder: pathlib.Path) -> dict:
    """A classifier of transformers, as sentence-transformers' cross-encoders on decoders."""
    config = tiny(QWEN2, architectures=["Qwen2ForSequenceClassification"], id2label={"0": "LABEL_0"},
                  label2id={"LABEL_0": 0})
    write_model(folder, config, AutoModelForSequenceClassification, "qwen2", (None, None), strip=False)
    return scores(folder)


def qwen3_logit_score(folder: pathlib.Path) -> dict:
    """As Qwen3-Reranker: the logits of two tokens behind a template with the roles query and document."""
    config = tiny(QWEN3, max_position_embeddings=1024)
    write_model(folder, config, AutoModelForCausalLM, "qwen2", (None, None), strip=False, longest=700)
    write_modules(folder, ["sentence_transformers.base.modules.transformer.Transformer",
                           "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"])
    write(folder / "sentence_bert_config.json", {"transformer_task": "text-generation", "modality_config": {
        "text": {"method": "forward", "method_output_name": "logits"},
        "message": {"method": "forward", "method_output_name": "logits", "format": "flat"}},
        "module_output_name": "causal_logits"})
    write(folder / "config_sentence_transformers.json", {"model_type": "CrossEncoder"})
    write(folder / "1_LogitScore/config.json", {"true_token_id": 77, "false_token_id": 33})
    (folder / "chat_template.jinja").write_text(RERANKER_TEMPLATE)
    return scores(folder)


def vectors(folder: pathlib.Path, prompts: list[str]) -> dict:
    model = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    rows = []
    for name in prompts:
        for text in TEXTS:
            vector = model.encode([text], prompt_name=name or None, convert_to_numpy=True)[0]
            rows.append({"prompt_name": name, "text": text, "vector": [float(x) for x in vector]})
    return {"vectors": rows}


def scores(folder: pathlib.Path) -> dict:
    model = CrossEncoder(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})


    def score(query: str, text: str) -> float:
        return float(model.predict([(query, text)], activation_fn=torch.nn.Identity())[0])

    found = [score(QUERY, text) for text in TEXTS]
    # The tokenizer cuts the longer text of a pair first.
    cut = [{"query": TEXTS[-1], "document": text, "score": score(TEXTS[-1], text)} for text in TEXTS[-3:]]
    return {"query": QUERY, "documents": TEXTS, "scores": found} | ({} if model.tokenizer.chat_template else {"cut": cut})


CASES = [qwen3_last, gemma3_mean, mistral_base, qwen2_score, qwen3_logit_score]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=DATA / "embeddings")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    for case in CASES:
        if arguments.names and case.__name__ not in arguments.names:
            continue
        expected = case(arguments.out / case.__name__)
        write(arguments.out / case.__name__ / "expected.json", expected)
        print(case.__name__, {name: len(rows) for name, rows in expected.items()})


if __name__ == "__main__":
    main()
