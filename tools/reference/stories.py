"""Re-makes the numbers of tests/data/stories260k/expected.json with transformers, and says whether they agree.

usage: stories.py [FOLDER]
"""

import json
import pathlib
import sys

from reference import greedy, load_model, logits, perplexity

FOLDER = pathlib.Path(__file__).parents[2] / "tests/data/stories260k"
MODES = {"none": ("greedy_ids", "ppl"), "w8a8": ("greedy_ids_w8a8", "ppl_w8a8")}


def check_mode(folder: str, quant: str, expected: dict) -> bool:
    ids_key, ppl_key = MODES[quant]
    model = load_model(folder, quant)
    passage = expected["perplexity"]
    ppl = perplexity(logits(model, passage["ids"]), passage["ids"])
    agrees = abs(ppl - passage[ppl_key]) < 1e-4
    print(f"{quant}: perplexity {ppl:.5f}, expected {passage[ppl_key]}")
    for generation in expected["generations"]:
        ids, margin = greedy(model, generation["prompt_ids"], len(generation[ids_key]))
        same = ids == generation[ids_key]
        agrees = agrees and same
        print(
            f"{quant}: {generation['prompt']!r}: {'same ids' if same else 'ids differ'}, smallest margin {margin:.5f}"
        )
    return agrees


def main() -> int:
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    expected = json.loads((folder / "expected.json").read_text())
    return 0 if all([check_mode(str(folder), quant, expected) for quant in MODES]) else 1


if __name__ == "__main__":
    sys.exit(main())
