#!/usr/bin/env python3
"""Trains one small tokenizer of each kind and records what the reference libraries make of nasty texts.

    make_tokenizers.py OUT_DIR             writes the fixtures (tests/data/tokenizers)
    make_tokenizers.py OUT_DIR --stress N  writes N random texts and the reference's ids for each kind instead

Needs the packages tokenizers, sentencepiece and tiktoken. Everything random has a fixed seed; the training text is made here.
OUT_DIR/texts.json holds the texts; OUT_DIR/KIND/expected.json the special tokens "before" and "after" every text, the
"ids" between, the "plain_ids" when special tokens in the text are not recognised (null: the same), the "decoded" text
without special tokens (null: the text itself), and under "random" [ids, decoded without and with special tokens].
"""
import argparse
import base64
import io
import json
import pathlib
import random

import sentencepiece
import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tokenizer_texts import HAND_WRITTEN, long_texts, random_texts, training_text

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{SUFFIX}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{SUFFIX}|\p{{N}}{{1,3}}"
         r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def bpe_trainer(alphabet, special=(), vocab_size=620):
    return trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, special_tokens=list(special), show_progress=False)


def special(*contents, **flags):
    return [AddedToken(content, special=True, normalized=False, **flags) for content in contents]


def byte_level(pattern=None, normalizer=None, before=(), byte_level_options=None, vocab_size=620, **model_options):
    """A byte-level BPE tokenizer; `pattern` splits first, `before` are pre-tokenizers ahead of that."""
    tokenizer = Tokenizer(models.BPE(**model_options))
    if normalizer:
        tokenizer.normalizer = normalizer
    steps = list(before)
    if pattern:
        steps.append(pre_tokenizers.Split(Regex(pattern), "isolated"))
    steps.append(pre_tokenizers.ByteLevel(**(byte_level_options or {"add_prefix_space": False, "use_regex": False})))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(training_text(), bpe_trainer(sorted(pre_tokenizers.ByteLevel.alphabet()), vocab_size=vocab_size))
    return tokenizer


def spm_vocabulary(special_tokens, byte_tokens=True, vocab_size=700):
    """Vocabulary and merges of a sentencepiece-like BPE: trained on text with its spaces already replaced."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    trained.train_from_iterator((line.replace("\n", " ") for line in training_text()),
                                trainers.BpeTrainer(vocab_size=vocab_size - 256, limit_alphabet=170, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    tokens = list(special_tokens) + ([f"<0x{byte:02X}>" for byte in range(256)] if byte_tokens else [])
    tokens += sorted(model["vocab"], key=model["vocab"].get)
    return {token: i for i, token in enumerate(tokens)}, [tuple(merge) for merge in model["merges"]]


def spm_decoder(strip=True):
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))


def bos_template(tokenizer, token, after_byte_level=False):
    template = processors.TemplateProcessing(single=f"{token} $A", pair=f"{token} $A {token} $B:1",
                                             special_tokens=[(token, tokenizer.token_to_id(token))])
    return processors.Sequence([processors.ByteLevel(trim_offsets=False), template]) if after_byte_level else template


def make_llama3():
    tokenizer = byte_level(LLAMA3)
    data = json.loads(tokenizer.to_str())
    data["model"]["ignore_merges"] = True
    vocab = data["model"]["vocab"]
    for word in ["Ġwonderful", "ĠÐ¿ÑĢÐ¸Ð²ÐµÑĤ", "banana" * 5, "1234", "Hello"]:  # no merges lead here
        vocab[word] = len(vocab)
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.add_tokens(special("<|begin_of_text|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.post_processor = bos_template(tokenizer, "<|begin_of_text|>", after_byte_level=True)
    return tokenizer


def make_qwen2():
    tokenizer = byte_level(QWEN2, normalizers.NFC())
    tokenizer.add_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def make_qwen35():
    tokenizer = byte_level(QWEN35, normalizers.NFC())
    tokenizer.add_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    return tokenizer


def make_tekken():
    tokenizer = byte_level(TEKKEN)
    tokenizer.add_tokens(special("<unk>", "<s>", "</s>", "[INST]", "[/INST]"))
    tokenizer.post_processor = bos_template(tokenizer, "<s>")
    return tokenizer


def make_o200k():
    tokenizer = byte_level(O200K)
    tokenizer.add_tokens(special("<|endoftext|>"))
    tokenizer.add_tokens([AddedToken(token, special=True, rstrip=True, normalized=False) for token in ("<|user|>", "<|end|>")])
    return tokenizer


def make_gpt2():
    tokenizer = byte_level(byte_level_options={"add_prefix_space": False})
    tokenizer.add_tokens(special("<|endoftext|>"))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def make_digits():
    """Digits one by one, then GPT-2's pattern with a space in front, as code models have it; NFKC before."""
    tokenizer = byte_level(normalizer=normalizers.NFKC(), before=[pre_tokenizers.Digits(individual_digits=True)],
                           byte_level_options={"add_prefix_space": True})
    tokenizer.add_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.add_tokens([AddedToken("word", single_word=True), AddedToken("<lr>", lstrip=True, rstrip=True), "Foo"])
    return tokenizer


def make_deepseek():
    before = [pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"), pre_tokenizers.Split(Regex("[一-龥぀-ゟ゠-ヿ]+"), "isolated")]
    tokenizer = byte_level(DEEPSEEK, before=before)
    tokenizer.add_tokens(special("<s>", "</s>"))
    tokenizer.post_processor = bos_template(tokenizer, "<s>")
    return tokenizer


def make_llama2():
    vocab, merges = spm_vocabulary(["<unk>", "<s>", "</s>"])
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = spm_decoder()
    tokenizer.add_tokens(special("<unk>", "<s>", "</s>"))
    tokenizer.post_processor = bos_template(tokenizer, "<s>")
    return tokenizer


def make_phi3():
    tokenizer = make_llama2()
    tokenizer.add_tokens(special("<|endoftext|>"))
    tokenizer.add_tokens([AddedToken(token, special=True, rstrip=True, normalized=False)
                          for token in ("<|user|>", "<|end|>", "<|assistant|>", "<r>")])
    tokenizer.add_tokens([AddedToken("<l>", lstrip=True, normalized=False), AddedToken("<t>", normalized=True)])
    return tokenizer


def make_mistral():
    vocab, merges = spm_vocabulary(["<unk>", "<s>", "</s>", "[INST]", "[/INST]"])
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = spm_decoder()
    tokenizer.add_tokens(special("<unk>", "<s>", "</s>", "[INST]", "[/INST]"))
    tokenizer.post_processor = bos_template(tokenizer, "<s>")
    return tokenizer


def make_gemma():
    runs = ["\n" * n for n in range(2, 9)] + ["\t\t", "▁▁", "▁▁▁", "▁▁▁▁"]
    vocab, merges = spm_vocabulary(["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"] + runs)
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = spm_decoder(strip=False)
    tokenizer.add_tokens(special("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"))
    tokenizer.add_tokens([AddedToken(run, normalized=False) for run in runs])
    tokenizer.post_processor = bos_template(tokenizer, "<bos>")
    return tokenizer


def make_metaspace():
    """No byte fallback, unknown tokens unfused; normalised added tokens; the Metaspace decoder."""
    vocab, merges = spm_vocabulary(["<unk>", "<s>", "</s>"], byte_tokens=False)
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.Strip(), normalizers.Lowercase(),
                                                 normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation("merged_with_next"),
                                                       pre_tokenizers.Digits()])
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_tokens(special("<s>", "</s>"))
    tokenizer.add_tokens([AddedToken("word", single_word=True), AddedToken("Foo", normalized=True), AddedToken("<l>", lstrip=True)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    return tokenizer


KINDS = {"llama3": make_llama3, "qwen2": make_qwen2, "qwen35": make_qwen35, "tekken": make_tekken, "o200k": make_o200k,
         "gpt2": make_gpt2, "digits": make_digits, "deepseek": make_deepseek, "llama2": make_llama2, "phi3": make_phi3,
         "mistral": make_mistral, "gemma": make_gemma, "metaspace": make_metaspace}
STRING_MERGES = {"qwen2", "gpt2", "llama2"}  # the spelling of older files


def sentencepiece_model(kind):
    """Serialised model, and the text of its tokenizer_config.json."""
    model = io.BytesIO()
    options = {"bpe": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
                           user_defined_symbols=["<|im_start|>", "<|im_end|>"], split_digits=True),
               "unigram": dict(model_type="unigram", byte_fallback=False)}[kind]
    # Coverage below 1 leaves characters out, so that fallback and the unknown token are met.
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=(line.replace("\n", " ") for line in training_text()), model_writer=model,
                                             vocab_size=560 if kind == "bpe" else 400, character_coverage=0.98,
                                             hard_vocab_limit=False, minloglevel=2, num_threads=1, **options)
    config = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    if kind == "unigram":
        config.update(add_bos_token=False, add_eos_token=True)
    return model.getvalue(), config


def ranked_tokens(pattern, extra):
    """The bytes of tokens by rank: single bytes, then trained tokens and `extra` ones, to which no merge need lead. The
    later ones are in random order, so that tokens come before their parts and one word can be cut in many ways."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    byte_of = {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
    vocabulary = json.loads(byte_level(pattern).to_str())["model"]["vocab"]
    trained = [bytes(byte_of[c] for c in token) for token in sorted(vocabulary, key=vocabulary.get)]
    single, longer = sorted(trained, key=len)[:256], [token for token in trained if len(token) > 1]
    late = longer[200:] + [word.encode() for word in extra]
    random.Random(9).shuffle(late)
    return sorted(single) + longer[:200] + late


EXTRA = [" wonderful", " привет", "banana" * 5, "1234", "Hello", "<s>"]


def make_tekken_ranks():
    """Reference and files. More special tokens than have names, more ranks than the model uses."""
    names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "<pad>"]
    tokens, special_count, unused = ranked_tokens(TEKKEN, EXTRA), 20, 30
    config = {"pattern": TEKKEN, "num_vocab_tokens": len(tokens), "default_vocab_size": len(tokens) - unused + special_count,
              "default_num_special_tokens": special_count, "version": "v11"}
    vocab = [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None} for rank, token in enumerate(tokens)]
    listed = [{"rank": rank, "token_str": name, "is_control": True} for rank, name in enumerate(names)]
    ranks = {token: special_count + rank for rank, token in enumerate(tokens[:-unused])}
    special_ids = {name: i for i, name in enumerate(names + [f"<SPECIAL_{i}>" for i in range(len(names), special_count)])}
    files = {"tekken.json": compact({"config": config, "vocab": vocab, "special_tokens": listed}).encode()}
    return TiktokenReference(TEKKEN, ranks, special_ids, before="<s>"), files


def make_llama3_ranks():
    """Reference and files, special tokens as in the code that Meta published with the models."""
    tokens = ranked_tokens(LLAMA3, EXTRA)
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>",
             "<|finetune_right_pad_id|>", "<|step_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"]
    names += [f"<|reserved_special_token_{2 + i}|>" for i in range(256 - len(names))]
    ranks = {token: rank for rank, token in enumerate(tokens)}
    lines = [base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items()]
    special_ids = {name: len(tokens) + i for i, name in enumerate(names)}
    return TiktokenReference(LLAMA3, ranks, special_ids, before="<|begin_of_text|>"), {"tokenizer.model": b"".join(lines)}


RANK_KINDS = {"tekken_ranks": make_tekken_ranks, "llama3_ranks": make_llama3_ranks}


class TiktokenReference:
    def __init__(self, pattern, ranks, special_ids, before):
        self.encoding = tiktoken.Encoding("own", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special_ids)
        self.special = set(special_ids.values())
        self.before = [special_ids[before]]

    def encode(self, text, add_special=True, parse_special=True):
        ids = self.encoding.encode(text, allowed_special="all") if parse_special else self.encoding.encode_ordinary(text)
        return self.before + ids if add_special else ids

    def decode(self, ids, skip_special):
        return self.encoding.decode([i for i in ids if not (skip_special and i in self.special)])

    def vocab_size(self):
        return self.encoding.n_vocab


class SentencePieceReference:
    """The library between <unk>, <s> and </s>, which are tokens wherever the text has them."""

    def __init__(self, model, config):
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.before = [1] if config.get("add_bos_token", True) else []
        self.after = [2] if config.get("add_eos_token", False) else []
        self.control = ["<unk>", "<s>", "</s>"]

    def ids(self, text):
        found = [(at, token) for token in self.control if (at := text.find(token)) >= 0]
        if not found:
            return self.processor.encode(text)
        at, token = min(found)
        return self.processor.encode(text[:at]) + [self.control.index(token)] + self.ids(text[at + len(token):])

    def encode(self, text, add_special=True, parse_special=True):
        ids = self.ids(text) if parse_special else self.processor.encode(text)
        return self.before + ids + self.after if add_special else ids

    def decode(self, ids, skip_special):
        assert skip_special
        return self.processor.decode([i for i in ids if i > 2])

    def vocab_size(self):
        return self.processor.get_piece_size()


class TokenizersReference:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def encode(self, text, add_special=True, parse_special=True):
        self.tokenizer.encode_special_tokens = not parse_special
        return self.tokenizer.encode(text, add_special_tokens=add_special).ids

    def decode(self, ids, skip_special):
        return self.tokenizer.decode(ids, skip_special_tokens=skip_special)

    def vocab_size(self):
        return self.tokenizer.get_vocab_size()


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def expected(reference, texts, skip_special_only):
    rng = random.Random(7)
    around, inner = reference.encode("x"), reference.encode("x", add_special=False)
    start = next(i for i in range(len(around)) if around[i:i + len(inner)] == inner)
    record = {"before": around[:start], "after": around[start + len(inner):], "ids": [], "plain_ids": [], "decoded": [], "random": []}
    for text in texts:
        ids = reference.encode(text, add_special=False)
        assert reference.encode(text) == record["before"] + ids + record["after"]
        plain = reference.encode(text, add_special=False, parse_special=False)
        decoded = reference.decode(ids, True)
        record["ids"].append(ids)
        record["plain_ids"].append(None if plain == ids else plain)
        record["decoded"].append(None if decoded == text else decoded)
    for _ in range(60):
        ids = [rng.randrange(reference.vocab_size()) for _ in range(rng.randint(1, 10))]
        decoded = [reference.decode(ids, skip) for skip in ((True,) if skip_special_only else (True, False))]
        record["random"].append([ids] + decoded)
    return record


def references():
    """(kind, reference, {file name: contents}) for every kind."""
    for kind, make in KINDS.items():
        data = json.loads(make().to_str())
        if kind in STRING_MERGES:
            data["model"]["merges"] = [" ".join(merge) for merge in data["model"]["merges"]]
        text = compact(data)
        yield kind, TokenizersReference(Tokenizer.from_str(text)), {"tokenizer.json": text.encode()}
    for kind in ("bpe", "unigram"):
        model, config = sentencepiece_model(kind)
        files = {"tokenizer.model": model, "tokenizer_config.json": compact(config).encode()}
        yield "sentencepiece_" + kind, SentencePieceReference(model, config), files
    for kind, make in RANK_KINDS.items():
        yield kind, *make()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--stress", type=int, default=0)
    arguments = parser.parse_args()
    texts = list(random_texts(arguments.stress, 11)) if arguments.stress else HAND_WRITTEN + list(random_texts(80, 3)) + long_texts()
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "texts.json").write_text(compact(texts).replace('","', '",\n"') + "\n")
    for kind, reference, files in references():
        folder = arguments.out / kind
        folder.mkdir(exist_ok=True)
        for name, contents in files.items():
            (folder / name).write_bytes(contents)
        record = expected(reference, texts, skip_special_only=kind.startswith("sentencepiece"))
        (folder / "expected.json").write_text(compact(record) + "\n")


if __name__ == "__main__":
    main()
