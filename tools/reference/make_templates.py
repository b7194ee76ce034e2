"""Renders every template of a folder with every conversation, as transformers' apply_chat_template does.

usage: make_templates.py [FOLDER]

FOLDER (default: tests/data/templates) has NAME.jinja files and conversations.json, a list of objects with a name,
messages, and perhaps tools, variables and add_generation_prompt. expected.json becomes {template: {conversation: text}},
the text being null where the template refuses the conversation. differences.json, a list of templates for which Pinion
gives something else, gets what the reference gives as "expected".
"""

import json
import pathlib
import sys

from transformers.utils.chat_template_utils import render_jinja_template

FOLDER = pathlib.Path(__file__).parents[2] / "tests/data/templates"
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def render(source: str, conversation: dict) -> str | None:
    try:
        texts, _ = render_jinja_template(
            conversations=[conversation["messages"]],
            tools=conversation.get("tools"),
            chat_template=source,
            add_generation_prompt=conversation.get("add_generation_prompt", True),
            **(SPECIAL_TOKENS | conversation.get("variables", {})),
        )
    except Exception as refusal:  # whatever a template calls for: TemplateError, UndefinedError, TypeError
        print(f"  {conversation.get('name', source)}: {type(refusal).__name__}: {refusal}")
        return None
    return texts[0]


def main() -> int:
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    conversations = json.loads((folder / "conversations.json").read_text(encoding="utf-8"))
    expected = {}
    for file in sorted(folder.glob("*.jinja")):
        print(file.name)
        source = file.read_text(encoding="utf-8")
        expected[file.name] = {c["name"]: render(source, c) for c in conversations}
    text = json.dumps(expected, ensure_ascii=False, indent=1)
    (folder / "expected.json").write_text(text + "\n", encoding="utf-8")
    print("differences.json")
    differences = json.loads((folder / "differences.json").read_text(encoding="utf-8"))
    for difference in differences:
        difference["expected"] = render(difference["template"], {"messages": []})
    lines = ",\n ".join(json.dumps(difference, ensure_ascii=False) for difference in differences)
    (folder / "differences.json").write_text(f"[\n {lines}\n]\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
