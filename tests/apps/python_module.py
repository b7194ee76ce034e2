"""The Python module against the program: python_module.py PROGRAM SOURCES. Its folder is on PYTHONPATH, the library's on
LD_LIBRARY_PATH."""

import array
import json
import os
import subprocess
import sys
import threading

import pinion

program, sources = sys.argv[1:]
stories = f"{sources}/tests/data/stories260k"
demo = f"{sources}/configs/demo"


def run(*arguments):
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout


def raises(kind, call):
    try:
        call()
    except kind as failure:
        return str(failure)
    raise AssertionError(f"no {kind.__name__}")


def ids_and_texts(model):
    answer = json.loads(run("generate", "--model", stories, "--no-cache", "--prompt", "Once upon a time", "--max-tokens",
                            "30", "--temperature", "0.7", "--seed", "5", "--stop", "zzz", "--json"))
    heard = []
    result = model.session().generate("Once upon a time", on_token=lambda id, text: heard.append((id, text)),
                                      max_tokens=30, temperature=0.7, seed=5, stop=["zzz"])
    assert result.ids == answer["ids"] and result.text == answer["text"], (result.text, answer["text"])
    assert f"{result.logits_hash:016x}" == answer["stats"]["logits_hash"]
    assert "".join(text for _, text in heard) == result.text
    assert [id for id, _ in heard if id >= 0] == result.ids
    alone = [model.session().generate(p, temperature=0, max_tokens=9) for p in ("Once", "The dog")]
    vectors = model.embed(["Once", "The dog"], pooling="mean", dimensions=8)
    assert vectors.shape == (2, 8)
    assert vectors.tolist()[1] == model.embed(["The dog"], pooling="mean", dimensions=8).tolist()[0]
    batch = model.generate_batch(["Once", model.tokenize("The dog")], temperature=0, max_tokens=9)
    assert [b.ids for b in batch] == [a.ids for a in alone]
    assert model.detokenize(model.tokenize("Once upon")) == "Once upon"


# The numbers of an .npy file of floats, by rows.
def rows_of(path, count):
    with open(path, "rb") as file:
        data = file.read()
    floats = array.array("f", data[10 + int.from_bytes(data[8:10], "little") :])
    width = len(floats) // count
    return [floats[i * width : (i + 1) * width].tolist() for i in range(count)]


def logits_and_states(model):
    ids = [1, 403, 407, 261, 378]
    run("logits", "--model", stories, "--no-cache", "--prompt-ids", ",".join(map(str, ids)), "--all", "--out", "F.npy")
    session = model.session(64)
    logits = session.evaluate(ids, all=True)
    assert logits.shape == (5, 512) and logits.tolist() == rows_of("F.npy", 5)
    assert session.ids == ids and session.context == 64
    state = session.save()
    want = session.evaluate([7]).tolist()
    other = model.session(64)
    other.load(state)
    assert other.evaluate([7]).tolist() == want
    assert other.rewind(5) == 5
    assert other.evaluate([7]).tolist() == want
    assert "damaged" in raises(pinion.Error, lambda: other.load(state[:-1]))


def conversations():
    model = pinion.Model(demo, no_cache=True)
    messages = [{"role": "user", "content": "Hello é"}]
    with open("m.json", "w", encoding="utf-8") as file:
        json.dump(messages, file)
    text, ids = model.chat(messages)
    assert text == run("template", "--model", demo, "--messages", "m.json")
    assert ids == [int(id) for id in run("template", "--model", demo, "--messages", "m.json", "--ids").split(",")]


def mistakes(model):
    assert "nowhere" in raises(pinion.Error, lambda: pinion.Model("nowhere"))
    assert "w2" in raises(pinion.Error, lambda: pinion.Model(stories, quant="w2"))
    session = model.session()
    assert "temprature" in raises(pinion.Error, lambda: session.generate("a", temprature=1))

    raises(OverflowError, lambda: model.detokenize([2**32 + 5]))
    raises(OverflowError, lambda: session.generate("a", seed=-1))
    raises(TypeError, lambda: session.generate("a", stop="END"))
    raises(TypeError, lambda: model.generate_batch(["a"], on_token=print))

    def refuse(id, text):
        raise ValueError("enough")

    assert raises(ValueError, lambda: session.generate("a", on_token=refuse)) == "enough"
    assert len(session.generate("a", on_token=lambda id, text: False, temperature=0).ids) == 1


# Each with a session of its own; the model's passes wait for each other, and callbacks for the interpreter.
def threads(model):
    want = model.session().generate("The cat", temperature=0, max_tokens=15).ids
    have = []

    def work():
        session = model.session()
        for _ in range(3):
            have.append(session.generate("The cat", on_token=lambda id, text: None, temperature=0, max_tokens=15).ids)
            session.rewind(0)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert have == [want] * 9


model = pinion.Model(stories, no_cache=True)
assert (model.family, model.vocab_size, model.quant) == ("llama", 512, "w8a8")
assert f"pinion {pinion.__version__}\n" in run("--version") and pinion.build + "\n" == run("--version")
for test in (ids_and_texts, logits_and_states, mistakes, threads):
    test(model)
conversations()
for name in ("F.npy", "m.json"):
    os.remove(name)
