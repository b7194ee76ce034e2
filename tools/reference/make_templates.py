"""Renders every template of a folder with every conversation, as transformers' apply_chat_template does.

usage: make_templates.py [FOLDER]

FOLDER (default: tests/data/templates) contains NAME.jinja files and conversations.json, a list of objects with a name,
messages, and optional tools, variables, add_generation_prompt and continue_final_message (true, or the name of the
thoughts). expected.json becomes {template: {conversation: text}}; the text is null if the template refuses the
conversation. differences.json lists templates that Pinion renders differently; their "expected" becomes the output of
the reference. jinja.json becomes the results of jinja_cases.py.
"""

import copy
import json
import pathlib
import sys

import jinja_cases
from transformers.utils.chat_template_utils import _compile_jinja_template, render_jinja_template

FOLDER = pathlib.Path(__file__).parents[2] / "tests/data/templates"
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def render(source: str, conversation: dict) -> str | None:
    continued = conversation.get("continue_final_message", False)
    messages = copy.deepcopy(conversation["messages"])
    if isinstance(continued, str):
        messages[-1].setdefault("content", "")  # the prompt ends before it, but templates read it
    try:
        texts, _ = render_jinja_template(
            conversations=[messages],
            tools=conversation.get("tools"),
            chat_template=source,
            add_generation_prompt=conversation.get("add_generation_prompt", not continued),
            continue_final_message=continued,
            **(SPECIAL_TOKENS | conversation.get("variables", {})),
        )
    except Exception as refusal:  # TemplateError, UndefinedError, TypeError, ...
        print(f"  {conversation.get('name', source)}: {type(refusal).__name__}: {refusal}")
        return None
    return texts[0]


def render_alone(source: str) -> str | bool | None:
    """The text without a conversation; None if it fails, False if it contains an address of this process."""
    try:
        text = _compile_jinja_template(source).render(copy.deepcopy(jinja_cases.VARIABLES))  # some filters change them
    except Exception:  # as above
        return None
    return " at 0x" not in text and text


def write_jinja_cases(file: pathlib.Path) -> None:
    def dump(value: object) -> str:
        return json.dumps(value, ensure_ascii=False)

    groups = []
    for values, forms in jinja_cases.groups():
        expected = {form: [render_alone(form.replace("X", value, 1)) for value in values] for form in forms}
        lines = ",\n  ".join(f"{dump(form)}: {dump(texts)}" for form, texts in expected.items())
        groups.append(f'{{"values": {dump(values)},\n "forms": {{\n  {lines}}}}}')
    all_groups = ",\n".join(groups)
    file.write_text(f'{{"variables": {dump(jinja_cases.VARIABLES)},\n"groups": [\n{all_groups}\n]}}\n', encoding="utf-8")


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
    print("jinja.json")
    write_jinja_cases(folder / "jinja.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
