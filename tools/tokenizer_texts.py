"""Texts on which tokenizers like to differ: a fixed list and seeded random ones."""

import random

FIXED = [
    "",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "a",
    " a",
    "a ",
    "Hello world",
    " Hello  world ",
    "Hello, world! How's it going? I'll say we've won; they're DON'T'S 'twas o'clock",
    "I'M WE'LL they'Ve 'S 'ſ 'RE",
    "The quick brown fox jumps over the lazy dog.",
    "def f(x):\n\tif x > 0:\n\t\treturn x**2  # square\n    else:\n        return None\n",
    "#include <vector>\nint main() { std::vector<int> v{1,2,3}; return v[0] != 0xFF; }\r\n",
    '{"a": [1, 2.5e-10, null], "b\\n": "\\u00e9"}',
    '<html><body class="x">1 &lt; 2</body></html>',
    "https://example.org/a/b?c=d&e=%20f#g",
    "1 12 123 1234 12345 123456 1234567 3.14159 1,000,000 0x1F 2024-01-31 12:34:56",
    "٠١٢٣٤٥ १२३ ๑๒๓ ½ ² Ⅷ ㊿ 𝟘𝟙𝟚 ٣٫١٤",
    "你好，世界！这是一个测试。汉字漢字かなカナ한국어",
    "今日は良い天気ですね。ﾊﾝｶｸ",
    "안녕하세요 세계 각 각",
    "مرحبا بالعالم كيف حالك؟ مُحَمَّد",
    "שלום עולם שָׁלוֹם",
    "Привет, мир! Ёлка ёжик",
    "नमस्ते दुनिया क्षत्रिय",
    "สวัสดีชาวโลก",
    "Γειά σου Κόσμε ΐ",
    "Café café naïve naïve Å Å Ω Ω ﬁ ﬂ ẛ̣",
    "e\u0301\u0327 e\u0327\u0301 q\u0307\u0323 \u0301\u0302\u0303 a\u0315\u0300\u05ae\u0062",
    "😀 😀😀 👨‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇩🇪🇫🇷 ☎️ ❤️‍🔥 1️⃣",
    "– — ― … “quotes” ‘single’ «guillemets» „low“ ‐ ‑ •",
    "a\u00a0b\u2003c\u3000d\u2028e\u2029f\u200bg\ufeffh\u180ei\u0085j",
    "x\r\ny\r\n\r\nz\n\n\nw\r\r",
    "a   b    c     d\t\te \t f\n  g\n \n h  \n",
    " \n \n  \n\t\n",
    "...!!!???---===***///\\\\\\|||~~~```",
    "foo_bar fooBar FooBAR foo-bar foo.bar @foo #bar $baz %qux ^ & * ( )",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "                                                                    x",
    "\n" * 40 + "x" + "\t" * 40,
    "\u0000\u0001\u0002\u007f\u0080\u009f control",
    "▁ ▁a a▁b ▁▁ a ▁ b",
    "Ġ Ċ ĠĠ Ã©",
    "<0x0A> <0xFF> <s> </s> <unk> <pad> <bos> <eos>",
    "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
    "<|endoftext|><|endoftext|> <|endoftext|> x<|im_end",
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nYou are.<|eot_id|>",
    "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n",
    "<s>[INST] <<SYS>>\nBe nice\n<</SYS>>\n\nHi [/INST] Hello </s><s> again",
    '<think>\nhm\n</think>\n\n<tool_call>\n{"name": "f"}\n</tool_call>',
    "mixed中文and英文word字1234年",
    "ａｂｃ１２３ fullwidth",
    "𐍈𠀀𠮷🀄\U0010ffff\U000f0000",
    "\ufffd\ufffe\uffff",
    "ǅ ǈ ǋ ß ẞ İ ı ŉ",
    "10€ £5 ¥100 ₹ 5° ±1 × ÷ ≠ ∞ ∑ √ ∫",
    "I've told you: \"don't\"—she said…",
]

ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyz",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "etaoin shrdlu ",
    "0123456789",
    " \t\n\r",
    "    ",
    ".,;:!?'\"-()[]{}<>/\\|@#$%^&*_+=~`",
    "'stremvlldSTREMVLLD'",
    "éèüöäßñçåøÅÉ",
    "\u0300\u0301\u0308\u0327\u0323\u05b0\u0651\u20dd\u094d\u0e31",
    "абвгдежзийклмнопрстуфхцчшщъыьэюя",
    "αβγδεζηθΑΒΓΔ",
    "的一是不了人我在有他这中大来上国",
    "ひらがなカタカナー",
    "가나다라마바사한국어각",
    "ابتثجحخدذرزسشصضطظعغفقكلمنهوي",
    "नमस्तेदुनिया",
    "٠١٢٣٤٥٦٧٨٩०१२३½²Ⅷ",
    "😀👍🏽❤️\u200d👨👩👧🏳🌈🇩🇪",
    "\u00a0\u2003\u3000\u2028\u0085\u200b\ufeff",
    "–—…“”‘’«»•€£°±×",
    "𝐀𝐁𝟘𠀀🀄",
    "▁Ġ",
]


def random_texts(seed: int, count: int, specials: list[str] | None = None, longest: int = 60) -> list[str]:
    """`specials`: strings that are mixed in whole now and then."""
    rng = random.Random(seed)
    words = " ".join(FIXED[9:24]).split(" ")
    texts = []
    for _ in range(count):
        parts = []
        size = rng.randrange(1, longest)
        while sum(map(len, parts)) < size:
            kind = rng.random()
            if kind < 0.08 and specials:
                parts.append(rng.choice(specials))
            elif kind < 0.35:
                parts.append(rng.choice([" ", "", "\n"]) + rng.choice(words))
            else:
                alphabet = rng.choice(ALPHABETS)
                parts.append("".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 7))))
        texts.append("".join(parts))
    return texts
