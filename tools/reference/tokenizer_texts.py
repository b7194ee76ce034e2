"""Texts in many languages and notations, some nasty, to train small tokenizers on and to try them with."""
import random
import string

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
