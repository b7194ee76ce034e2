"""Writes models of tests/data as GGUF files, tests/data/gguf, by llama.cpp's own converter.

    python make_gguf_families.py LLAMA.CPP        # the folder with conversion/ and, beside or above it, gguf-py

Matrices stay bf16, so that the files hold the same numbers as the folders. Only stories260k has a tokenizer.

The converter does not write everything that a fixture sets: windows by layer of Gemma 3, Cohere 2, gpt-oss and AFMoE, the
layers without rope of SmolLM3, dots.llm1's window, mscale of yarn, MiniCPM3's multipliers and some epsilons and scales are
constants of llama.cpp. Falcon-H1's multipliers become factors of bf16 weights, which only powers of two leave exact.
changes.json sets such fields of a fixture's config.json to what a file can hold; the test reads the folders with the
same changes. Other entries only spell a field as the converter expects it: Granite's and Nemotron-H's types of layers and
head sizes. Not in the list: fixtures whose tensors would differ (a last layer of ERNIE without experts, GELU by erf,
DeepSeek's latents with biases or a rope that is not interleaved; BitNet's codes that scales multiply).
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch

DATA = pathlib.Path(__file__).parents[2] / "tests" / "data"
NAMES = """llama llama_bias llama3_rope_scaling llama_linear mixtral qwen2 qwen2_moe qwen2_5_vl qwen3 qwen3_moe qwen3_yarn
qwen3_vl qwen3_5 qwen3_5_moe qwen3_5_mtp qwen3_5_value_heads gemma4 gemma4_e2b gemma4_moe gemma4_unified phi3 granite
granite_moe olmo2 olmo3 exaone4 exaone4_hybrid ernie4_5 glm4 glm4_moe cohere starcoder2 stablelm seed_oss arcee gpt_oss
gpt_oss_mxfp4 lfm2 granite_hybrid granite_hybrid_moe granite_moe_hybrid granite_moe_shared bamba falcon_h1 falcon_h1_norm
nemotron_h nemotron_h_moe gemma3n deepseek_v2 deepseek_v2_groups deepseek_v3 glm4_moe_lite youtu minicpm3 afmoe dots1
ernie4_5_moe_to_end exaone_moe minimax_m2 jais2 cohere2 gemma3 lfm2_moe olmoe smollm3 qwen3_next bitnet_divided""".split()

# Transformers' class of the config adds experts to models that have none, and replaces the interval of attention layers.
READ_AS_JSON = {"nemotron_h", "qwen3_next"}

ADAPTERS = {"llama_second": "llama", "phi3": "phi3"}  # of tests/data/lora, and their models

# Models of tests/data/embeddings, and llama.cpp's names of their pre-tokenizers.
EMBEDDINGS = {"qwen3_last": "qwen2", "gemma3_mean": "gemma4", "qwen3_logit_score": "qwen2"}


def add_tokenizer(writer, folder: pathlib.Path, pre: str) -> None:
    """llama.cpp's converter refuses the tiny vocabularies, whose hashes it lacks."""
    file = json.loads((folder / "tokenizer.json").read_text())
    added = {token["id"]: token["content"] for token in file["added_tokens"]}
    texts = {i: text for text, i in file["model"]["vocab"].items()} | added
    ends = file["post_processor"]["single"]
    names = [part["SpecialToken"]["id"] if "SpecialToken" in part else "" for part in ends]
    first, last = names[0], names[-1]
    special = file["post_processor"]["special_tokens"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([texts[i] for i in range(len(texts))])
    writer.add_token_types([3 if i in added else 1 for i in range(len(texts))])
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in file["model"]["merges"]])
    writer.add_add_bos_token(bool(first))
    writer.add_add_eos_token(bool(last))
    if first:
        writer.add_bos_token_id(special[first]["ids"][0])
    if last:
        writer.add_eos_token_id(special[last]["ids"][0])


def convert_embedding(conversion, gguf, name: str) -> None:
    folder = DATA / "embeddings" / name
    config = conversion.ModelBase.load_hparams(folder, False)
    base = conversion.get_model_class(conversion.get_model_architecture(config, conversion.ModelType.TEXT))

    class WithTinyTokenizer(base):
        model_arch = base.model_arch

        def set_vocab(self) -> None:
            add_tokenizer(self.gguf_writer, folder, EMBEDDINGS[name])

        def _is_qwen3_reranker(self) -> bool:
            return name.endswith("logit_score")

        def _find_rerank_config(self) -> None:
            ids = json.loads((folder / "1_LogitScore/config.json").read_text())
            self.is_rerank, self.is_tied_embeddings = True, config["tie_word_embeddings"]
            self.token_true_id, self.token_false_id = ids["true_token_id"], ids["false_token_id"]

        def _create_vocab_sentencepiece(self):
            return [b""] * config["vocab_size"], [], []

    out = DATA / "gguf" / "embeddings" / f"{name}.gguf"
    out.parent.mkdir(exist_ok=True)
    with torch.inference_mode():
        WithTinyTokenizer(folder, gguf.LlamaFileType.MOSTLY_BF16, out, sentence_transformers_dense_modules=True).write()


def merge(changes: dict, config: dict) -> None:
    for field, value in changes.items():
        if isinstance(value, dict) and isinstance(config.get(field), dict):
            merge(value, config[field])
        elif value is None:
            config.pop(field, None)
        else:
            config[field] = value


def convert(conversion, gguf, name: str, changes: dict) -> None:
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work) / name
        shutil.copytree(DATA / "families" / name, folder)
        text = json.loads((folder / "config.json").read_text())
        merge(changes, text)
        (folder / "config.json").write_text(json.dumps(text))
        (folder / "tokenizer.model").touch()  # the converter of Gemma reads the size of the vocabulary from it
        config = conversion.ModelBase.load_hparams(folder, False)
        vocabulary = config.get("vocab_size") or config["text_config"]["vocab_size"]
        base = conversion.get_model_class(conversion.get_model_architecture(config, conversion.ModelType.TEXT))

        class WithoutTokenizer(base):
            model_arch = base.model_arch
            no_mtp = name == "qwen3_next"  # the fixture has none

            def set_vocab(self) -> None:
                pass

            def _create_vocab_sentencepiece(self):
                return [b""] * vocabulary, [], []

            def weight_quant(self, weight):  # would change the scales of BitNet's own codes
                return weight

            def map_tensor_name(self, name, *suffixes):  # the converter has the names of the first BitNet models
                if base.__name__ == "BitnetModel" and name == "lm_head.weight":
                    return "output.weight"
                name = name.replace("ffn_sub_norm", "ffn_layernorm").replace("attn_sub_norm", "inner_attn_ln")
                return super().map_tensor_name(name, *suffixes)

        out = DATA / "gguf" / "families" / f"{name}.gguf"
        with torch.inference_mode():
            options = {"hparams": text} if name in READ_AS_JSON else {}
            options["eager"] = name.startswith("bitnet")  # the codes are read at once
            WithoutTokenizer(folder, gguf.LlamaFileType.MOSTLY_BF16, out, **options).write()


def write_blocks(gguf, source: pathlib.Path, out: pathlib.Path) -> None:
    """The embedding as Q8_0, other matrices as Q4_0."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(out, reader.get_field("general.architecture").contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        sub_type = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        kind = gguf.GGMLQuantizationType.Q8_0 if tensor.name.startswith("token_embd") else gguf.GGMLQuantizationType.Q4_0
        if values.ndim < 2 or values.shape[1] % 32:
            writer.add_tensor(tensor.name, values)
        else:
            writer.add_tensor(tensor.name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    sys.path.insert(0, sys.argv[1])
    import conversion
    import gguf

    (DATA / "gguf" / "families").mkdir(parents=True, exist_ok=True)
    changes = json.loads((DATA / "gguf" / "changes.json").read_text())
    for name in NAMES:
        convert(conversion, gguf, name, changes.get(name, {}))
    for name in EMBEDDINGS:
        convert_embedding(conversion, gguf, name)
    stories = DATA / "stories260k"
    base = conversion.get_model_class("LlamaForCausalLM")
    with torch.inference_mode():
        base(stories, gguf.LlamaFileType.MOSTLY_BF16, DATA / "gguf" / "stories260k.gguf").write()
    write_blocks(gguf, DATA / "gguf" / "stories260k.gguf", DATA / "gguf" / "stories260k_q4_0.gguf")
    script = pathlib.Path(sys.argv[1]) / "convert_lora_to_gguf.py"
    for name, base in ADAPTERS.items():
        out = DATA / "gguf" / "lora" / f"{name}.gguf"
        command = [script, "--base", DATA / "families" / base, "--outfile", out, DATA / "lora" / name]
        subprocess.run([sys.executable, *command], check=True)


if __name__ == "__main__":
    main()
