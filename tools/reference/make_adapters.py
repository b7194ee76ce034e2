"""Writes tests/data/lora: small LoRA adapters made by peft for models of tests/data/families, and the logits with them.

usage: make_adapters.py

Each folder holds an adapter and expected.json: the base model, all adapters with their factors, a prompt, and the logits
after its last token. Merged weights are rounded to bf16, as Pinion holds them. Needs peft besides requirements.txt.
"""

import json
import pathlib
import shutil
import tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

from reference import load_plain

DATA = pathlib.Path(__file__).parents[2] / "tests" / "data"
IDS = [3, 17, 5, 60, 42, 9, 77, 1, 30, 11, 88, 4]

# Name of the folder: base, other adapters with their factors, LoraConfig.
CASES = {
    "llama": (
        "llama",
        {},
        {
            "r": 4,
            "lora_alpha": 8,
            "target_modules": ["q_proj", "v_proj", "down_proj"],
            "rank_pattern": {"layers.0.self_attn.q_proj": 2},
            "alpha_pattern": {"v_proj": 16, r"model\.layers\.1\.mlp\..*": 3},
        },
    ),
    "llama_second": ("llama", {"llama": 0.5}, {"r": 2, "lora_alpha": 2, "target_modules": ["q_proj", "o_proj"]}),
    "phi3": (
        "phi3",
        {},
        {"r": 4, "lora_alpha": 4, "use_rslora": True, "target_modules": ["qkv_proj", "gate_up_proj", "o_proj"]},
    ),
    "qwen3": (
        "qwen3",
        {},
        {"r": 3, "lora_alpha": 6, "target_modules": ["k_proj", "up_proj"], "modules_to_save": ["lm_head", "norm"]},
    ),
    "smollm2_head": ("smollm2", {}, {"r": 2, "lora_alpha": 4, "target_modules": ["lm_head", "gate_proj"]}),
}


def random_adapter(base: torch.nn.Module, settings: dict) -> PeftModel:
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **settings))
    for name, weight in model.named_parameters():
        if "lora_" in name:
            weight.data = torch.randn_like(weight) * 0.3
        elif "modules_to_save" in name:
            weight.data = (weight.data + torch.randn_like(weight) * 0.1).bfloat16().float()
    return model


def apply_adapter(base: torch.nn.Module, folder: pathlib.Path, factor: float) -> torch.nn.Module:
    model = PeftModel.from_pretrained(base, folder)
    if model.peft_config["default"].modules_to_save:
        return model.merge_and_unload()
    for module in model.modules():  # merged by hand: peft would merge a tied head into the embedding, too
        if hasattr(module, "lora_A") and "default" in module.lora_A:
            delta = module.get_delta_weight("default") * factor
            module.base_layer.weight = torch.nn.Parameter(module.base_layer.weight + delta)
    return model.unload()


def write_expected(folder: pathlib.Path, base: str, adapters: dict[str, float], model: torch.nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight.data = module.weight.data.bfloat16().float()
    with torch.no_grad():
        logits = model(torch.tensor([IDS])).logits[0, -1]
    expected = {"base": base, "adapters": adapters, "ids": IDS, "logits": logits.tolist()}
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


def write_experts() -> None:
    """For experts with tensors of their own, which transformers 5 fuses: merged in the file."""
    torch.manual_seed(99)
    folder, source = DATA / "lora" / "qwen3_moe_experts", DATA / "families" / "qwen3_moe"
    folder.mkdir()
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["gate_proj", "down_proj", "gate"]}
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")
    weights, adapter = load_file(source / "model.safetensors"), {}
    for module in ("experts.1.gate_proj", "experts.3.down_proj", "experts.0.up_proj", "gate"):
        module = f"model.layers.1.mlp.{module}"
        rows, columns = weights[f"{module}.weight"].shape
        a, b = (torch.randn(2, columns) * 0.3).bfloat16(), (torch.randn(rows, 2) * 0.3).bfloat16()
        adapter |= {f"base_model.model.{module}.lora_A.weight": a, f"base_model.model.{module}.lora_B.weight": b}
        merged = weights[f"{module}.weight"].float() + 2 * (b.float() @ a.float())
        weights[f"{module}.weight"] = merged.bfloat16()
    save_file(adapter, folder / "adapter_model.safetensors")
    with tempfile.TemporaryDirectory() as merged_folder:
        shutil.copy(source / "config.json", merged_folder)
        save_file(weights, pathlib.Path(merged_folder) / "model.safetensors", {"format": "pt"})
        write_expected(folder, "qwen3_moe", {"qwen3_moe_experts": 1.0}, load_plain(merged_folder, False))


def main() -> None:
    shutil.rmtree(DATA / "lora", ignore_errors=True)
    for seed, (name, (base, others, settings)) in enumerate(CASES.items()):
        torch.manual_seed(seed)
        folder, source = DATA / "lora" / name, str(DATA / "families" / base)
        random_adapter(load_plain(source, False), settings).save_pretrained(folder)
        (folder / "README.md").unlink(missing_ok=True)
        config = json.loads((folder / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = base
        config["target_modules"] = sorted(config["target_modules"])
        (folder / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")
        tensors = load_file(folder / "adapter_model.safetensors")
        save_file({key: value.bfloat16() for key, value in tensors.items()}, folder / "adapter_model.safetensors")
        model = load_plain(source, False)
        adapters = {**others, name: 1.0}
        for adapter, factor in adapters.items():
            model = apply_adapter(model, DATA / "lora" / adapter, factor)
        write_expected(folder, base, adapters, model)
    write_experts()


if __name__ == "__main__":
    main()
