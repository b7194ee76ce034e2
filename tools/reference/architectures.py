"""Lists every causal architecture of transformers: runs, or the reason why Pinion refuses it.

usage: architectures.py [--pinion build/release/pinion]

An architecture runs if tests/data/families has it with its model_type, or if `pinion inspect` accepts the default config
of transformers; else the program's error is the reason. For an architecture without a description, the reason is the
first feature in transformers' source that no family of configs/models has, as far as a list of patterns finds it.
"""

import argparse
import importlib.util
import json
import pathlib
import re
import subprocess
import tempfile

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from descriptions import CONFIGS, descriptions

FIXTURES = CONFIGS.parent / "tests" / "data" / "families"

# A pattern in the modeling source, and the feature that it shows; the most fundamental ones come first.
FEATURES = [
    (r"\bwpe\b", "learned positions"),
    (r"add `is_decoder=True|add_cross_attention|class \w+DecoderWrapper", "the decoder of an encoder"),
    (r"rwkv", "RWKV's recurrence"),
    (r"xlstm|mLSTM|sLSTM", "xLSTM's recurrence"),
    (r"[Hh]yper_?[Cc]onnection", "hyper-connections"),
    (r"Indexer\b|class \w+Indexer", "sparse attention with an indexer"),
    (r"KimiDelta|kda_|KDA", "Kimi's delta attention"),
    (r"[Ll]ightning_?[Aa]ttention", "lightning attention"),
    (r"(?s)class \w*Mamba\w*Mixer.*\bx_proj\b", "Mamba 1 in another mix of layers"),
    (r"class \w*Mamba2?\w*Mixer|chunk_scan", "Mamba 2 in another mix of layers"),
    (r"[Aa]libi|ALiBi", "ALiBi"),
    (r"embed_positions|position_embeddings = nn\.Embedding|LearnedPositional", "learned or sinusoidal positions"),
    (r"relative_attention_bias|position_bias|relative_positional", "relative positions as biases"),
    (r"LSH|perm_mask", "its own attention pattern"),
    (r"layer_scalar", "Gemma 4's layers"),
    (r"class \w+(Experts|Router|Gate|MoE|Moe|SparseMoe)\w*\(", "its experts and router"),
]

# What a family without a description needs, where no pattern shows it.
REASONS = {
    "blt": "bytes in patches",
    "ctrl": "sinusoidal positions",
    "diffllama": "differences of two softmaxes",
    "doge": "a mask by content, experts by products of keys",
    "dory": "layers in loops, states of norm 1",
    "gemma4_assistant": "the keys and values of another model",
    "gemma4_unified_assistant": "the keys and values of another model",
    "hrm_text": "layers in loops",
    "jetmoe": "experts of attention",
    "longcat_flash": "two attentions a layer, experts that copy",
    "moshi": "a depth decoder for audio tokens",
    "moss_transcribe_diarize": "an audio tower",
    "openai-gpt": "norms behind the residual stream",
    "phi4_multimodal": "a fixture beside its image and audio towers",
    "xglm": "sinusoidal positions",
    "zamba": "layers that share an attention",
    "zaya": "convolved attention, a router with an mlp",
}


def source_of(architecture: str) -> str:
    module = getattr(transformers, architecture).__module__
    return pathlib.Path(importlib.util.find_spec(module).origin).read_text()


def missing_feature(model_type: str, architecture: str) -> str:
    if model_type in REASONS:
        return f"no description; needs {REASONS[model_type]}"
    try:
        source = source_of(architecture)
    except (AttributeError, ImportError, ModuleNotFoundError):
        return "transformers needs another package for it"
    found = next((feature for pattern, feature in FEATURES if re.search(pattern, source)), None)
    return f"no description; needs {found}" if found else "no description"


def refusal(pinion: pathlib.Path, model_type: str, architecture: str) -> str | None:
    """The error for the default config, without the folder's name; None if only the weights are missing."""
    with tempfile.TemporaryDirectory() as folder:
        config = CONFIG_MAPPING[model_type]()
        config.architectures = [architecture]
        config.save_pretrained(folder)
        (pathlib.Path(folder) / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
        done = subprocess.run([pinion, "inspect", "--model", folder], capture_output=True, text=True, check=False)
        text = (done.stderr.splitlines() or [""])[-1].removeprefix("pinion: ").replace(folder + "/", "")
        return text if text.startswith("config.json") else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pinion", type=pathlib.Path, default=CONFIGS.parent / "build" / "release" / "pinion")
    pinion = parser.parse_args().pinion.resolve()
    known = {name for family in descriptions().values() for name in family["architectures"]}
    configs = [json.loads(path.read_text()) for path in FIXTURES.glob("*/config.json")]
    tested = {(name, config["model_type"]) for config in configs for name in config.get("architectures", [])}
    rows = []
    for model_type, architecture in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items()):
        why = None
        if architecture not in known:
            why = missing_feature(model_type, architecture)
        elif (architecture, model_type) not in tested:
            why = refusal(pinion, model_type, architecture)
        rows.append((architecture, model_type, "no" if why else "yes", why or ""))
    runs = sum(row[2] == "yes" for row in rows)
    print(f"transformers {transformers.__version__}: {runs} of {len(rows)} model types run\n")
    print("| architecture | `model_type` | runs | reason |\n|---|---|---|---|")
    for architecture, model_type, answer, reason in rows:
        print(f"| {architecture} | {model_type} | {answer} | {reason} |")


if __name__ == "__main__":
    main()
