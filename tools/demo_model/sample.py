"""Reads aloud from a demo folder with PyTorch: plain prompts and chats, greedy or sampled. For judging by eye."""

import argparse
import pathlib

import sentencepiece
import torch
from transformers import Qwen3ForCausalLM

from chats import MARKS, chat_text
from model import BOS, CHAT_END, EOS, GENERATION, ROWS
from train import FOLDER

PROMPTS = (
    "Once upon a time",
    "There was once a little fox",
    "One day, Tom",
    "A brave girl named",
    "What colour is the sky?",
    "Tell me a story about a dragon.",
)
Tokenizer = sentencepiece.SentencePieceProcessor
CHATS = (
    ("Hello!", "Who are you?", "What sound does a cow make?", "What is 7 plus 5?"),
    ("Tell me a story about a fox.", "Who is the story about?", "How did it end?", "Thank you!"),
    ("Tell me a story about a brave girl and a kite.", "What was her name?", "Who helped her?"),
    ("What is the opposite of hot?", "And up?", "What day comes after Monday?", "How many legs does a spider have?"),
    ("What is the capital of France?", "Tell me a joke.", "Write a short poem about the moon."),
    ("My name is Anna.", "What do bees make?", "What is my name?"),
)


def load(folder: pathlib.Path) -> tuple[torch.nn.Module, Tokenizer]:
    """bf16 weights, fp32 arithmetic."""
    model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return model, Tokenizer(model_file=str(folder / "tokenizer.model"))


@torch.no_grad()
def continue_ids(model: torch.nn.Module, ids: list[int], greedy: bool) -> list[int]:
    how = {} if greedy else {name: GENERATION[name] for name in ("temperature", "top_k", "top_p")}
    out = model.generate(
        torch.tensor([ids]),
        do_sample=not greedy,
        max_new_tokens=ROWS - len(ids),
        eos_token_id=[EOS, CHAT_END],
        pad_token_id=EOS,
        **how,
    )
    return out[0, len(ids) :].tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=pathlib.Path, default=FOLDER)
    parser.add_argument("--greedy", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    model, tokenizer = load(arguments.model)
    for prompt in PROMPTS:
        text = tokenizer.decode(continue_ids(model, [BOS, *tokenizer.encode(prompt)], arguments.greedy))
        print(f"[{prompt}]{text}\n")
    for questions in CHATS:
        turns: list[tuple[str, str]] = []
        for question in questions:
            text = chat_text(turns) + MARKS["user"] + question + MARKS["end"] + MARKS["assistant"]
            ids = continue_ids(model, [BOS, *tokenizer.encode(text)], arguments.greedy)
            turns.append((question, tokenizer.decode([i for i in ids if i > CHAT_END])))
            print(f"> {question}\n{turns[-1][1]}")
        print()


if __name__ == "__main__":
    main()
