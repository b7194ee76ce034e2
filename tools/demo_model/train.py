"""Makes the demo model: corpus, tokenizer, training on a CPU, and the finished folder.

    python train.py             about an hour on two cores; an interrupted run goes on where it stopped
"""

import argparse
import math
import pathlib
import time

import numpy
import sentencepiece
import torch
from torch.nn.functional import cross_entropy

import corpus
from model import CONFIG, new_model, save_folder, train_tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "demo_model"
FOLDER = ROOT / "configs" / "demo"

SEED = 1
BATCH = 16           # rows of 512 tokens
PEAK, FLOOR = 3e-3, 1e-4
WARM_UP = 100        # steps
DECAY = 0.1
SAVE_EVERY = 100     # steps
TOKENIZER_DOCUMENTS = 20_000


def prepare(work: pathlib.Path) -> None:
    """The tokenizer and both packed corpora, made once."""
    work.mkdir(parents=True, exist_ok=True)
    if (work / "held_out.npy").exists():
        return
    train = corpus.documents(corpus.TRAIN_SEED, corpus.TRAIN_DOCUMENTS, False)
    train_tokenizer([text for text, _ in train[:TOKENIZER_DOCUMENTS]], work / "tokenizer.model")
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(work / "tokenizer.model"))
    numpy.save(work / "train.npy", corpus.pack(corpus.encode(tokenizer, train)))
    held = corpus.documents(corpus.HELD_OUT_SEED, corpus.HELD_OUT_DOCUMENTS, True)
    numpy.save(work / "held_out.npy", corpus.pack(corpus.encode(tokenizer, held)))


def loss_of(model: torch.nn.Module, rows: numpy.ndarray, bf16: bool = True) -> torch.Tensor:
    """Mean over all tokens of the rows; padding (-1) does not count."""
    ids = torch.from_numpy(rows.astype(numpy.int64))
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        logits = model(input_ids=ids[:, :-1].clamp(min=0), use_cache=False).logits
    return cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten(), ignore_index=-1)


def rate(step: int, steps: int) -> float:
    if step < WARM_UP:
        return PEAK * (step + 1) / WARM_UP
    part = (step - WARM_UP) / max(1, steps - WARM_UP)
    return FLOOR + (PEAK - FLOOR) * 0.5 * (1 + math.cos(math.pi * part))


def held_out_loss(model: torch.nn.Module, rows: numpy.ndarray) -> float:
    model.eval()
    with torch.no_grad():
        loss = loss_of(model, rows).item()
    model.train()
    return loss


def train(work: pathlib.Path, folder: pathlib.Path) -> None:
    torch.manual_seed(SEED)
    rows, held = numpy.load(work / "train.npy"), numpy.load(work / "held_out.npy")[:32]
    steps = len(rows) // BATCH
    order = numpy.random.default_rng(SEED).permutation(len(rows))
    model = new_model()
    model.train()
    wide = [p for p in model.parameters() if p.dim() > 1]
    thin = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": wide, "weight_decay": DECAY}, {"params": thin, "weight_decay": 0.0}],
                                  lr=PEAK, betas=(0.9, 0.98), fused=True)
    first, checkpoint = 0, work / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters, {steps} steps of {BATCH} rows", flush=True)
    started = last = time.time()
    for step in range(first, steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps)
        loss = loss_of(model, rows[order[step * BATCH:(step + 1) * BATCH]])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        done = step + 1
        if done % SAVE_EVERY == 0 or done == steps:
            now = time.time()
            print(f"step {done} loss {loss.item():.4f} held out {held_out_loss(model, held):.4f} "
                  f"{SAVE_EVERY * BATCH * CONFIG['max_position_embeddings'] / (now - last):.0f} tokens/s "
                  f"{(now - started) / 60:.1f} min", flush=True)
            last = time.time()
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": done}
            torch.save(state, work / "checkpoint.tmp")
            (work / "checkpoint.tmp").replace(checkpoint)
    torch.save(model.state_dict(), work / "final.pt")
    save_folder(model, work / "tokenizer.model", folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=pathlib.Path, default=WORK, help="corpus, checkpoints, fp32 weights")
    parser.add_argument("--out", type=pathlib.Path, default=FOLDER, help="the Hugging Face folder to write")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    prepare(arguments.work)
    train(arguments.work, arguments.out)


if __name__ == "__main__":
    main()
