"""A tiny text grammar: nested alternatives, named slots, and the English small change (a/an, capitals).

Owns the notation only; the words are in words.py and the sentences in stories.py, facts.py and chats.py.
"""

import random
import re

INNERMOST = re.compile(r"\{([^{}]*)\}")
SLOT = re.compile(r"\$(\w+)")
ARTICLE = re.compile(r"\b([Aa]) (?=[aeiou]|honest)(?!uni|use|one)")
SPACES = re.compile(r" +(?=[ .,!?]|$)")

Slots = dict[str, str | list[str]]


def capital(text: str) -> str:
    """First letter in upper case, the rest as it is."""
    return text[:1].upper() + text[1:]


def expand(rng: random.Random, template: str, slots: Slots | None = None) -> str:
    """`{a|b|}` takes one alternative; `$name` takes a slot (one of a list); `$Name` is `$name` with a capital."""
    while "{" in template:
        template = INNERMOST.sub(lambda m: rng.choice(m[1].split("|")), template)

    def value(match: re.Match[str]) -> str:
        name = match[1]
        known = slots or {}
        upper = name not in known
        found = known[name[0].lower() + name[1:] if upper else name]
        text = found if isinstance(found, str) else rng.choice(found)
        return capital(text) if upper else text

    text = SLOT.sub(value, template)
    return ARTICLE.sub(r"\1n ", SPACES.sub("", text).strip())
