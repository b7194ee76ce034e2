"""Compares Pinion's logits of a text with the reference's, for any Hugging Face folder.

usage: compare_logits.py DIR --pinion build/release/pinion [--quant w8a8] [--text FILE]

The ids come from Pinion's tokenizer, so that only the arithmetic is compared; the head is kept at bf16 on both sides.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch

from reference import load_model, logits, perplexity, relative_l2

TEXT = (
    "The lighthouse keeper wrote down the weather every morning. On the third of May the wind came from the west, the "
    "sea was calm, and two ships passed before noon. He drank his tea, cleaned the lamp, and waited for the post."
)


def tokenize(pinion: str, folder: str, text: str) -> list[int]:
    command = [pinion, "tokenize", "--model", folder, "--jsonl"]
    reply = subprocess.run(command, input=json.dumps(text) + "\n", capture_output=True, text=True, check=True)
    return json.loads(reply.stdout)


def pinion_logits(pinion: str, folder: str, ids: list[int], options: list[str]) -> torch.Tensor:
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch) / "logits.npy"
        command = [pinion, "logits", "--model", folder, "--prompt-ids", ",".join(map(str, ids)), "--all"]
        command += [*options, "--kv", "f32", "--out", str(out)]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        return torch.from_numpy(np.load(out))


def report(ours: torch.Tensor, theirs: torch.Tensor, ids: list[int]) -> None:
    agreement = (ours.argmax(-1) == theirs.argmax(-1)).double().mean()
    print(f"positions           {len(ids)}")
    print(f"relative L2         {relative_l2(ours, theirs):.3e}")
    print(f"largest difference  {float((ours - theirs).abs().max()):.3e}")
    print(f"same best token     {100 * float(agreement):.1f} %")
    print(f"perplexity          {perplexity(ours, ids):.5f}, reference {perplexity(theirs, ids):.5f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--pinion", default="build/release/pinion", help="the program (default: %(default)s)")
    parser.add_argument("--quant", choices=("none", "w8a8"), default="none")
    parser.add_argument("--text", type=pathlib.Path, metavar="FILE", help="UTF-8 text (default: a built-in passage)")
    args = parser.parse_args()
    text = args.text.read_text(encoding="utf-8") if args.text else TEXT
    try:
        ids = tokenize(args.pinion, args.folder, text)
        ours = pinion_logits(args.pinion, args.folder, ids, ["--quant", args.quant, "--keep", "lm_head"])
    except subprocess.CalledProcessError as failure:
        print(failure.stderr or f"{args.pinion} failed\n", end="", file=sys.stderr)
        return 1
    except OSError as failure:
        print(failure, file=sys.stderr)
        return 1
    report(ours, logits(load_model(args.folder, args.quant), ids), ids)
    return 0


if __name__ == "__main__":
    sys.exit(main())
