"""Held-out perplexity of the demo model: PyTorch fp32, bf16 weights in PyTorch, Pinion none and Pinion w8a8.

python evaluate.py --pinion ../../build/release/pinion
"""

import argparse
import pathlib
import subprocess
import tempfile
from collections.abc import Callable

import numpy
import sentencepiece
import torch
from transformers import Qwen3ForCausalLM

import corpus
from model import new_model
from train import FOLDER, WORK

Logits = Callable[[list[int]], numpy.ndarray]  # token ids -> [positions, vocabulary]


def from_torch(model: torch.nn.Module) -> Logits:
    @torch.no_grad()
    def logits(ids: list[int]) -> numpy.ndarray:
        return model(input_ids=torch.tensor([ids])).logits[0].numpy()

    return logits


def from_pinion(program: pathlib.Path, folder: pathlib.Path, quant: str) -> Logits:
    def logits(ids: list[int]) -> numpy.ndarray:
        with tempfile.TemporaryDirectory() as aside:
            out = pathlib.Path(aside) / "logits.npy"
            subprocess.run(
                [
                    program,
                    "logits",
                    "--model",
                    folder,
                    "--prompt-ids",
                    ",".join(map(str, ids)),
                    "--all",
                    "--out",
                    out,
                    "--quant",
                    quant,
                ],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            return numpy.load(out)

    return logits


def perplexity(logits: Logits, documents: list[list[int]]) -> float:
    """exp of the mean over all tokens of all documents, each document alone in its context."""
    total, count = 0.0, 0
    for ids in documents:
        scores = torch.from_numpy(logits(ids[:-1])).double()
        targets = torch.tensor(ids[1:])
        total += torch.nn.functional.cross_entropy(scores, targets, reduction="sum").item()
        count += len(targets)
    return float(numpy.exp(total / count))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=pathlib.Path, default=FOLDER)
    parser.add_argument("--fp32", type=pathlib.Path, default=WORK / "final.pt", help="weights before rounding to bf16")
    parser.add_argument("--pinion", type=pathlib.Path, help="the program, when it is built")
    parser.add_argument("--documents", type=int, default=200)
    arguments = parser.parse_args()
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(arguments.model / "tokenizer.model"))
    held_out = corpus.documents(corpus.HELD_OUT_SEED, arguments.documents, True)
    documents = [ids[: corpus.ROWS + 1] for ids in corpus.encode(tokenizer, held_out)]
    rows: list[tuple[str, Logits]] = []
    if arguments.fp32.exists():
        model = new_model().eval()
        model.load_state_dict(torch.load(arguments.fp32, weights_only=True))
        rows.append(("PyTorch, fp32 weights", from_torch(model)))
    rounded = Qwen3ForCausalLM.from_pretrained(arguments.model, dtype=torch.float32).eval()
    rows.append(("PyTorch, bf16 weights, fp32 arithmetic", from_torch(rounded)))
    if arguments.pinion:
        rows += [
            (f"Pinion {quant}", from_pinion(arguments.pinion, arguments.model, quant)) for quant in ("none", "w8a8")
        ]
    print(f"{len(documents)} held-out documents, {sum(len(ids) - 1 for ids in documents)} tokens")
    for name, logits in rows:
        print(f"{name}: perplexity {perplexity(logits, documents):.4f}", flush=True)


if __name__ == "__main__":
    main()
