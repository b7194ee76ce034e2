"""The family descriptions of configs/models, each with what it inherits (`read_families` in loader/config/families.cpp)."""

import json
import pathlib

CONFIGS = pathlib.Path(__file__).parents[2] / "configs"
OWN = ["architectures", "model_types", "ignored", "skipped_tensors", "renamed_tensors", "skipped_endings"]


def merge_patch(base: dict, patch: dict) -> dict:
    """RFC 7396."""
    merged = dict(base)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = merge_patch(merged[key] if isinstance(merged.get(key), dict) else {}, value)
        else:
            merged[key] = value
    return merged


def description(name: str) -> dict:
    own = json.loads((CONFIGS / "models" / f"{name}.json").read_text())
    parent = own.pop("extends", None)
    if parent is None:
        return own
    return merge_patch({key: value for key, value in description(parent).items() if key not in OWN}, own)


def descriptions() -> dict[str, dict]:
    return {path.stem: description(path.stem) for path in sorted((CONFIGS / "models").glob("*.json"))}
