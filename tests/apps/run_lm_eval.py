"""Runs lm-eval on tests/data/lm_eval against a server: run_lm_eval.py URL TOKENIZER. Prints one line of JSON: the accuracy and,
for each ending of each item, its text, its log likelihood and whether it is the greedy choice. Exits with 77 if lm-eval is
not installed."""

import json
import os
import pathlib
import sys
import tempfile

home = tempfile.TemporaryDirectory()
# No downloads, no files left behind.
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": home.name, "TOKENIZERS_PARALLELISM": "false"}
try:
    import lm_eval
    import lm_eval.tasks
    import transformers  # noqa: F401, for its tokenizer
except ImportError as missing:
    print(f"not installed: {missing.name}")
    sys.exit(77)

url, tokenizer = sys.argv[1:]
data = pathlib.Path(__file__).parents[1] / "data/lm_eval"
task = pathlib.Path(home.name) / "task"
task.mkdir()
files = json.dumps({"data_files": {"test": str(data / "stories.jsonl")}})
(task / "stories.yaml").write_text((data / "stories.yaml").read_text() + f"dataset_kwargs: {files}\n")
results = lm_eval.simple_evaluate(
    model="local-completions",
    model_args={
        "model": "pinion",
        "base_url": url + "/v1/completions",
        "tokenizer": tokenizer,
        "tokenizer_backend": "huggingface",
        "add_bos_token": True,
        "batch_size": 4,
        "max_retries": 1,
    },
    tasks=["pinion_stories"],
    task_manager=lm_eval.tasks.TaskManager(include_path=str(task)),
    bootstrap_iters=0,
)
ends = []
for sample in results["samples"]["pinion_stories"]:
    for request, response in zip(sample["arguments"], sample["filtered_resps"]):
        begin, end = request[0], request[1]
        ends.append({"begin": begin, "end": end, "loglikelihood": response[0], "is_greedy": bool(response[1])})
print(json.dumps({"acc": results["results"]["pinion_stories"]["acc,none"], "ends": ends}))
