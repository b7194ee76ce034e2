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
import string

import sentencepiece
import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

WORDS = {
    "english": "the a cat dog house river tree sees runs likes and under over small green old friend's don't we'll "
               "they're I'm it's HTTPServer camelCase snake_case NASA",
    "french": "où est déjà l'été garçon naïve cœur français élève Noël",
    "german": "Straße über Öl größer Häuser Übung süß Maß",
    "vietnamese": "tiếng Việt người đẹp được không",
    "turkish": "İstanbul ışık çiçek ığdır",
    "russian": "привет мир большая собака река дерево видит",
    "greek": "καλημέρα κόσμε σπίτι ποτάμι Ὀδυσσεύς",
    "hebrew": "שלום עולם בית נהר עץ",
    "arabic": "مرحبا بالعالم بيت نهر شجرة كبيرة",
    "hindi": "नमस्ते दुनिया घर नदी पेड़ क्षत्रिय",
    "tamil": "வணக்கம் உலகம் வீடு",
    "thai": "สวัสดีชาวโลก บ้าน แม่น้ำ",
    "chinese": "你好 世界 房子 河流 大 狗 看见 我们",
    "japanese": "こんにちは 世界 カタカナ 犬 です",
    "korean": "안녕하세요 세계 집 강 나무",
    "code": "def f(x): return x+1; if (a==b) { c[i] += 0x1F; } // TODO <html> </div> #include",
    "numbers": "0 1 12 123 1234 12345 3.14 1,000 2024 ١٢٣ ½ Ⅷ",
    "marks": "e\u0301 a\u0308 ñ \u200d 👩\u200d💻 👍🏽 🇩🇪 ❤\ufe0f 😀",
}

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


def training_text(lines=3000):
    rng = random.Random(1)
    groups = [words.split(" ") for words in WORDS.values()]
    for _ in range(lines):
        group = rng.choice(groups)
        yield " ".join(rng.choice(group) for _ in range(rng.randint(3, 12))) + rng.choice([".", "!", "\n", "?\n\n", ""])


HAND_WRITTEN = [
    "", " ", "  ", "   ", "\n", "\r\n", "\n\n", "\t", " \n", "\n ", " \n \n ", "a", " a", "a ", "  a  b   c    ", "\r", "\r\r\n\n\r",
    "Hello world", " Hello world ", "Hello  world", "Hello\nworld", "Hello\r\nworld\r\n", "Hello\t\tworld", "hello\n\n\n\nworld",
    "I'm you're he's we'll they've I'd can't I'M YOU'RE HE'S WE'LL THEY'VE I'D CAN'T", "'s't'm", "x's y'S z'ſ q'K 'ſ", "''' ' '",
    "0", "00", "1234567890", "12 345 6789", "3.14159e-10", "1,000,000.00", "x1y22z333", "٣٤٥ १२३ ๑๒๓ ½¾ ⅣⅧ ²³ ①②",
    "naïve café résumé", "nai\u0308ve cafe\u0301 re\u0301sume\u0301", "A\u030a \u212b Å", "q\u0307\u0323 q\u0323\u0307 \u1e0b\u0323",
    "\u1100\u1161\u11a8 각 가\u11a8", "ﬁ ﬂ ﬀ ﬃ ｆｕｌｌ ｗｉｄｔｈ ㎏ ① ﷺ", "ẞ ß SS ss İ i̇ ı I", "Ǆ ǅ ǆ", "ΑΣ ας ΑΣΣ",
    "👩‍💻 👨‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 ❤️ 😀😀😀", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "e\u0301\u0302\u0303\u0304\u0305\u0306", "\u0301", " \u0301", "\u0301a", "\u200b\u200c\u200d\u2060\ufeff",
    "\u00a0\u1680\u2000\u2003\u2028\u2029\u202f\u205f\u3000", "\u180e \u180e", "a\u180eb \u180e", "\x85\x85 \x85", "a\x0bb\x0cc\x1cd\x1fe",
    "\x00", "a\x00b", "\x01\x02\x7f", "\ufffd", "\ufffe\uffff", "\U0010ffff \U000e0001", "\ud7ff\ue000", "\u2581", "\u2581a \u2581\u2581b", " \u2581",
    "Ġ Ċ ĉ Ã©", "<0x41><0x0A>", "<0x", "日本語のテキスト、カタカナ。", "你好，世界！", "한국어 텍스트", "สวัสดีชาวโลก", "नमस्ते दुनिया क्षत्रिय",
    "مرحبا بالعالم", "שָׁלוֹם עולם", "Привет, мир!", "Ὀδυσσεύς ᾳ ᾼ", "𝐇𝐞𝐥𝐥𝐨 𝔘𝔫𝔦", "𐌰𐌱 𒀀 🀄 𠀀𠀁", "ｶﾞ ガ か\u3099",
    "def f(x):\n    return x + 1\n\n\nif __name__ == '__main__':\n\tf(0x1F)\n", "{\"a\": [1, 2.5, null], \"b\": \"\\u00e9\\n\"}",
    "<html><body class=\"x\">&amp;</body></html>", "https://example.com/a_b?c=d&e=%20#f", "a@b.c", "C:\\dir\\file.txt", "/usr/bin/env", "-- // ## ** ==",
    "!!!???...", "...", "…", "“quoted” ‘single’ «x»", "a-b–c—d", "(a)[b]{c}<d>", "$1.00 €2 £3 ¥4", "∀x∈ℝ: x²≥0", "♥♦♣♠", "camelCaseHTTPServerXMLHttpRequest2",
    "<s>", "</s>", "<s> a </s>", " <s>", "<s> ", "a<s>b", "a <s> b", "<s><s></s>", "<unk>", "<pad>x", "<|begin_of_text|>x", "<|im_start|>user\nhi<|im_end|>\n",
    "<|im_start|>", "<|im_start|", "x<|im_end|>y", "  <|im_end|>  ", "\n<|end|>\n\n x", "<|end|>  <|end|>", "<|user|>\nhi<|end|>\n<|assistant|>\n",
    "<think>\nx\n</think>\n\ny", "<|endoftext|>", "a <|endoftext|> b", "[INST] hi [/INST]", "[INST][/INST]", "<start_of_turn>user\nhi<end_of_turn>\n",
    "word", "aword", "word word words sword word", "WORD Word", "_word_", "word1 1word", "-word-", "wordword", "ｗｏｒｄ", "a<lr>b", "a  <lr>  b", " <lr> <lr> ",
    "<l>  <l>  a", "a  <l>b", "a<r>  b<r>", "foo", "Foo  FOO foobar xfoo", "foo\u0301", "<t> <t>a",
]


def random_texts(count, seed):
    rng = random.Random(seed)
    ranges = [(0x20, 0x7e), (0x20, 0x7e), (0xa0, 0x24f), (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x45f), (0x5d0, 0x5ea),
              (0x620, 0x64a), (0x900, 0x94d), (0xe01, 0xe3a), (0x1100, 0x11ff), (0x2000, 0x206f), (0x20a0, 0x20bf), (0x2100, 0x214f),
              (0x2150, 0x218b), (0x2200, 0x22ff), (0x3040, 0x30ff), (0x4e00, 0x4fff), (0xac00, 0xad00), (0xff01, 0xff5e),
              (0x1f300, 0x1f64f), (0x1d400, 0x1d4ff), (0x1e00, 0x1fff)]
    special = [text for text in HAND_WRITTEN if "<" in text or "[" in text]
    words = [word for group in WORDS.values() for word in group.split(" ")]
    for _ in range(count):
        parts = []
        for _ in range(rng.randint(1, 12)):
            kind = rng.random()
            if kind < 0.35:
                parts.append(rng.choice(words))
            elif kind < 0.5:
                parts.append(rng.choice([" ", "  ", "\n", "\r\n", "\t", "\u3000", "\u00a0", "   ", "\n\n", " \n"]) * rng.randint(1, 3))
            elif kind < 0.6:
                parts.append("".join(rng.choice(string.digits) for _ in range(rng.randint(1, 7))))
            elif kind < 0.65:
                parts.append(rng.choice(["'s", "'LL", "'re", "'", "’s"]))
            elif kind < 0.75:
                parts.append("".join(rng.choice(string.punctuation) for _ in range(rng.randint(1, 5))))
            elif kind < 0.8:
                parts.append(rng.choice(special))
            else:
                low, high = rng.choice(ranges)
                parts.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 6))))
            if rng.random() < 0.4:
                parts.append(" ")
        yield "".join(parts)


def long_texts():
    rng = random.Random(5)
    return ["banana" * 1700, "".join(rng.choice("abcdeэюя") for _ in range(600)), " " * 700, "\n" * 300, "=" * 500, "é" * 200, "1" * 100]


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
