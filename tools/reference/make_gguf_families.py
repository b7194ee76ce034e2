"""Writes models of tests/data as GGUF files, tests/data/gguf, by llama.cpp's own converter.

    python make_gguf_families.py LLAMA.CPP        # the folder with conversion/ and, beside or above it, gguf-py

Matrices stay bf16, so that the files hold the same numbers as the folders. Only stories260k has a tokenizer. The converter
does not write everything that a fixture sets: windows by layer of Gemma 3, Cohere 2 and SmolLM3, mscale of yarn and some
epsilons are constants of llama.cpp, so those fixtures are not in the list.
"""

import pathlib
import shutil
import sys
import tempfile

import torch

DATA = pathlib.Path(__file__).parents[2] / "tests" / "data"
NAMES = """llama llama_bias llama3_rope_scaling llama_linear mixtral qwen2 qwen2_moe qwen2_5_vl qwen3 qwen3_moe qwen3_yarn
qwen3_vl qwen3_5 qwen3_5_moe qwen3_5_mtp qwen3_5_value_heads gemma4 gemma4_e2b gemma4_moe gemma4_unified phi3 granite
granite_moe olmo2 olmo3 exaone4 exaone4_hybrid ernie4_5 glm4 glm4_moe cohere starcoder2 stablelm seed_oss arcee gpt_oss
gpt_oss_mxfp4 lfm2""".split()


def convert(conversion, gguf, name: str) -> None:
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work) / name
        shutil.copytree(DATA / "families" / name, folder)
        (folder / "tokenizer.model").touch()  # the converter of Gemma reads the size of the vocabulary from it
        config = conversion.ModelBase.load_hparams(folder, False)
        vocabulary = config.get("vocab_size") or config["text_config"]["vocab_size"]
        base = conversion.get_model_class(conversion.get_model_architecture(config, conversion.ModelType.TEXT))

        class WithoutTokenizer(base):
            model_arch = base.model_arch

            def set_vocab(self) -> None:
                pass

            def _create_vocab_sentencepiece(self):
                return [b""] * vocabulary, [], []

        out = DATA / "gguf" / "families" / f"{name}.gguf"
        with torch.inference_mode():
            WithoutTokenizer(folder, gguf.LlamaFileType.MOSTLY_BF16, out).write()


def main() -> None:
    sys.path.insert(0, sys.argv[1])
    import conversion
    import gguf

    (DATA / "gguf" / "families").mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        convert(conversion, gguf, name)
    stories = DATA / "stories260k"
    base = conversion.get_model_class("LlamaForCausalLM")
    with torch.inference_mode():
        base(stories, gguf.LlamaFileType.MOSTLY_BF16, DATA / "gguf" / "stories260k.gguf").write()


if __name__ == "__main__":
    main()
