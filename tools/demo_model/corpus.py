"""The corpus: documents from a seed, packed into rows of token ids; and how new the held-out text is.

Run as a program it prints samples and the share of held-out sentences that training never saw.
"""

import argparse
import random
import re

import numpy
import sentencepiece

from chats import MARKS, document, review_document
from model import BOS, EOS, ROWS

TRAIN_SEED, HELD_OUT_SEED, REVIEW_SEED = 1, 2, 4
TRAIN_DOCUMENTS, HELD_OUT_DOCUMENTS, REVIEW_DOCUMENTS = 160_000, 1_000, 16_000
LENGTHS = (192, 224, 256, 320, ROWS)
SENTENCE_END = re.compile(r'(?<=[.!?])"? |\n|' + "|".join(re.escape(mark) for mark in MARKS.values()))

Document = tuple[str, bool]  # text, ends with EOS


def documents(seed: int, count: int, held_out: bool) -> list[Document]:
    rng = random.Random(seed)
    return [document(rng, held_out) for _ in range(count)]


def review_documents() -> list[Document]:
    rng = random.Random(REVIEW_SEED)
    return [review_document(rng, False) for _ in range(REVIEW_DOCUMENTS)]


def encode(tokenizer: sentencepiece.SentencePieceProcessor, docs: list[Document]) -> list[list[int]]:
    ids = tokenizer.encode([text for text, _ in docs])
    return [[BOS, *row, EOS] if ends else [BOS, *row] for row, (_, ends) in zip(ids, docs, strict=True)]


def pack(rows: list[list[int]], length: int, open_bins: int = 64) -> numpy.ndarray:
    """Whole documents side by side in rows of one length, padded with -1; each goes where it fits most tightly."""
    done: list[list[int]] = []
    bins: list[list[int]] = []
    for row in rows:
        fits = [b for b in bins if len(b) + len(row) <= length]
        if fits:
            max(fits, key=len).extend(row)
            continue
        bins.append(row[:length])
        if len(bins) > open_bins:
            fullest = max(range(len(bins)), key=lambda i: len(bins[i]))
            done.append(bins.pop(fullest))
    packed = numpy.full((len(done) + len(bins), length), -1, numpy.int16)
    for i, row in enumerate(done + bins):
        packed[i, : len(row)] = row
    return packed


def pack_by_length(rows: list[list[int]]) -> dict[str, numpy.ndarray]:
    """Attention costs the square of a row, so documents travel with others of about their own length."""
    packed, shorter = {}, 0
    for length in LENGTHS:
        fit = [row for row in rows if shorter < len(row) and (len(row) <= length + 1 or length == LENGTHS[-1])]
        packed[str(length)] = pack(fit, length + 1)  # one more: the last token is only a target
        shorter = length + 1
    return packed


def sentences(docs: list[Document]) -> list[str]:
    return [s for text, _ in docs for s in SENTENCE_END.split(text) if s]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=5)
    arguments = parser.parse_args()
    train = documents(TRAIN_SEED, TRAIN_DOCUMENTS, False) + review_documents()
    held = documents(HELD_OUT_SEED, HELD_OUT_DOCUMENTS, True)
    for text, _ in held[: arguments.samples]:
        print(text.replace(MARKS["end"], "\n"), end="\n\n")
    seen_sentences, seen_documents = set(sentences(train)), {text for text, _ in train}
    held_sentences = sentences(held)
    stories = [text for text, ends in held if ends and len(text) > 300]
    print(f"training: {len(train)} documents, {sum(len(t) for t, _ in train) / 1e6:.1f} MB")
    for what, items, seen in (
        ("sentences", held_sentences, seen_sentences),
        ("different sentences", list(set(held_sentences)), seen_sentences),
        ("stories", stories, seen_documents),
    ):
        new = sum(item not in seen for item in items)
        print(f"held-out {what}: {len(items)}, new: {new} ({100 * new / len(items):.1f} %)")


if __name__ == "__main__":
    main()
