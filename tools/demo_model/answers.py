"""How often the demo model answers its own kinds of questions rightly: greedy, in chat format, with PyTorch.

An answer is right when it is, word for word, one that the grammar gives to that question.
"""

import argparse
import collections
import pathlib
import random

import torch

import chats
import facts
import sample
import stories
from model import BOS, CHAT_END
from train import FOLDER

SEED = 3
DRAWS = 4_000  # of each topic, to know every right answer


def answer(model: torch.nn.Module, tokenizer: sample.Tokenizer, turns: list[chats.Turn], question: str) -> str:
    text = chats.chat_text(turns) + chats.MARKS["user"] + question + chats.MARKS["end"] + chats.MARKS["assistant"]
    ids = sample.continue_ids(model, [BOS, *tokenizer.encode(text)], greedy=True)
    return tokenizer.decode([i for i in ids if i > CHAT_END])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=pathlib.Path, default=FOLDER)
    parser.add_argument("--questions", type=int, default=60, help="of each topic")
    parser.add_argument("--show", action="store_true", help="print the wrong ones")
    arguments = parser.parse_args()
    model, tokenizer = sample.load(arguments.model)
    rng = random.Random(SEED)

    def report(name: str, asked: list[tuple[list[chats.Turn], str, set[str]]]) -> None:
        right = 0
        for turns, question, good in asked:
            said = answer(model, tokenizer, turns, question)
            right += said in good
            if arguments.show and said not in good:
                print(f"  {question} -> {said} (want: {sorted(good)[0]})")
        print(f"{name}: {right} of {len(asked)} right", flush=True)

    for topic, _ in facts.TOPICS:
        good: dict[str, set[str]] = collections.defaultdict(set)
        for _ in range(DRAWS):
            question, right = topic(rng)
            good[question].add(right)
        chosen = rng.sample(sorted(good), min(arguments.questions, len(good)))
        report(topic.__name__.replace("_", " "), [([], question, good[question]) for question in chosen])
    about_stories = []
    while len(about_stories) < 3 * arguments.questions:
        story = stories.make_story(rng, want_held_out=True)
        question, right = rng.choice(story.asks)
        good_answers = {right, right.replace("felt very", "felt")}
        about_stories.append(([("Tell me a story.", story.text)], question, good_answers))
    report("questions about a held-out story", about_stories)


if __name__ == "__main__":
    main()
