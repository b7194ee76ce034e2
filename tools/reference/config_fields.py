"""Writes configs/config_fields.json: the fields that transformers' config classes have for the families of configs/models.

usage: config_fields.py

A config.json may hold any other field without that the model becomes another: transformers does not read it. Fields that
no arithmetic depends on, by configs/common_fields.json and the family's own "ignored", are left out. `all` is what every
family has.
"""

import dataclasses
import json

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from descriptions import CONFIGS, descriptions

# What is looked for in every file, though not all classes name it: settings of single layers, a model inside the model,
# where texts begin and end.
BASE = {"bos_token_id", "decoder", "eos_token_id", "generator", "per_layer_config", "text_config", "text_encoder"}


def fields_of(model_type: str) -> set[str]:
    config = CONFIG_MAPPING[model_type]
    return {field.name for field in dataclasses.fields(config)} | set(config.attribute_map)


def family_fields(family: dict) -> set[str]:
    """Of its own types that transformers has, and of those that have it beside a vision model."""
    beside = {
        model_type
        for model_type, architecture in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.items()
        if architecture in family["architectures"]
    }
    return set().union(BASE, *map(fields_of, beside | {t for t in family["model_types"] if t in CONFIG_MAPPING}))


def main() -> None:
    harmless = set(json.loads((CONFIGS / "common_fields.json").read_text())["ignored"])
    families = descriptions()
    fields = {name: family_fields(family) for name, family in families.items()}
    shared = set.intersection(*fields.values()) - harmless
    lists = {"all": shared} | {
        name: names - shared - harmless - set(families[name].get("ignored", [])) for name, names in fields.items()
    }
    lines = [f' "{name}": {json.dumps(sorted(names))}' for name, names in lists.items()]
    head = f' "transformers_version": "{transformers.__version__}"'
    (CONFIGS / "config_fields.json").write_text("{\n" + ",\n".join([head, *lines]) + "\n}\n")


if __name__ == "__main__":
    main()
