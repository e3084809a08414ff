"""Strings that try a tokenizer: scripts, emoji, whitespace, control tokens as text, random bytes, ...

strings(tokenizer, added, texts, count, seed) gives `count` different strings, the same ones for the
same arguments and Unicode version. `added` are the spellings of the tokenizer's added tokens.
"""

import random
import unicodedata

# (first, last) code points of blocks that people write in.
BLOCKS = [
    (0x20, 0x7E), (0xA1, 0xFF), (0x100, 0x24F), (0x370, 0x3FF), (0x400, 0x52F), (0x530, 0x58F),
    (0x590, 0x5FF), (0x600, 0x6FF), (0x700, 0x74F), (0x780, 0x7BF), (0x900, 0x97F), (0x980, 0x9FF),
    (0xA00, 0xA7F), (0xA80, 0xAFF), (0xB00, 0xB7F), (0xB80, 0xBFF), (0xC00, 0xC7F), (0xC80, 0xCFF),
    (0xD00, 0xD7F), (0xD80, 0xDFF), (0xE00, 0xE7F), (0xE80, 0xEFF), (0xF00, 0xFFF),
    (0x1000, 0x109F), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x137F), (0x13A0, 0x13FF),
    (0x1400, 0x167F), (0x1780, 0x17FF), (0x1800, 0x18AF), (0x1E00, 0x1EFF), (0x1F00, 0x1FFF),
    (0x2C00, 0x2C5F), (0x2D30, 0x2D7F), (0x3040, 0x309F), (0x30A0, 0x30FF), (0x3100, 0x312F),
    (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFF00, 0xFFEF), (0x10330, 0x1034F), (0x12000, 0x123FF),
    (0x13000, 0x1342F), (0x1D400, 0x1D7FF), (0x20000, 0x2A6DF),
]  # fmt: skip
EMOJI = [
    "😀", "🤣", "❤️", "❤", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "🇯🇵🇺🇸", "1️⃣", "#️⃣", "👨🏿‍🚀", "🧑‍💻", "🐻‍❄️",
    "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "⌚", "☎️", "🫠", "🪿", "👁️‍🗨️", "🀄", "🃏", "\u200d", "\ufe0f", "🏻", "🇦",
]  # fmt: skip
SPACES = [" ", "  ", "\n", "\t", "\r\n", "\r", "\v", "\f", "\u00a0", "\u2003", "\u3000", "\u200b",
          "\u2028", "\u0085", "\u2581", "\ufeff"]  # fmt: skip
ODD = [0x0, 0x1, 0x7, 0x1B, 0x7F, 0x80, 0xAD, 0x300, 0x301, 0x327, 0x323, 0x489, 0x202E, 0x202C,
       0x2066, 0xE000, 0xFDD0, 0xFFFD, 0xFFFE, 0xFFFF, 0x10FFFF, 0xF0000, 0xE0001, 0x378, 0x1F9FF,
       0xD7FF, 0xFFFC, 0x2580, 0x2582]  # fmt: skip
CODE = [
    "def f(x):\n    return x**2  # square\n", "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\n",
    "SELECT * FROM t WHERE a = 'b';", "#include <vector>\n", "std::vector<std::pair<int,int>> v{};",
    "<div class=\"a\"><p>x &amp; y</p></div>", "{\"key\": [1, 2.5e-3, null, true]}", "if [ -z \"$x\" ]; then",
    "fn main() -> Result<(), Box<dyn Error>> {", "x = lambda a, *b, **c: (a, b, c)", "a&&b||!c?d:e;",
    "\\begin{equation} e^{i\\pi} + 1 = 0 \\end{equation}", "/* comment */ // other", "```python\nprint()\n```",
    "git commit -m \"msg\" && make -j8", "$$\\frac{a}{b}$$", "@decorator\nasync def g(): ...", "0xDEADBEEF",
]  # fmt: skip
TAGS = ["table", "tr", "td", "th", "h1", "h3", "b", "i", "em", "strong", "code", "a", "ul", "li",
        "div", "span", "img", "html", "body", "sub", "sup", "p", "br", "script"]  # fmt: skip


class Maker:
    def __init__(self, tokenizer, added, texts, seed):
        self.rng = random.Random(seed)
        self.texts = texts
        self.added = added
        self.named = [token for token in added if not token.startswith("<unused") and token.strip()]
        vocab = tokenizer.get_vocab(with_added_tokens=False)
        self.tokens = [t for t, i in sorted(vocab.items(), key=lambda kv: kv[1])][300:]

    def char(self, block):
        while True:
            char = chr(self.rng.randint(*block))
            if unicodedata.category(char) != "Cn":
                return char

    def word(self, block, longest=9):
        return "".join(self.char(block) for _ in range(self.rng.randint(1, longest)))

    def script(self):
        block = self.rng.choice(BLOCKS)
        return " ".join(self.word(block) for _ in range(self.rng.randint(1, 5)))

    def mixed_scripts(self):
        return self.rng.choice(["", " "]).join(
            self.word(self.rng.choice(BLOCKS), 4) for _ in range(self.rng.randint(2, 6))
        )

    def slice_of_text(self):
        text = self.rng.choice(self.texts)
        start = self.rng.randrange(len(text))
        return text[start : start + self.rng.randint(1, 60)]

    def emoji(self):
        parts = self.rng.choices(EMOJI + ["a", " ", "ok"], k=self.rng.randint(1, 8))
        return "".join(parts)

    def symbols(self):
        ranges = [(0x1F300, 0x1FAFF), (0x2000, 0x2BFF), (0x2190, 0x23FF)]
        return "".join(self.char(self.rng.choice(ranges)) for _ in range(self.rng.randint(1, 10)))

    def whitespace(self):
        out = ""
        for _ in range(self.rng.randint(1, 5)):
            longest = 40 if self.rng.random() < 0.1 else 5
            out += self.rng.choice(SPACES) * self.rng.randint(1, longest)
            out += self.rng.choice(["", "", "a", "The", "9", "中", "."])
        return out

    def control(self):
        out = ""
        for _ in range(self.rng.randint(1, 4)):
            token = self.rng.choice(self.named if self.rng.random() < 0.8 else self.added)
            roll = self.rng.random()
            if roll < 0.1:
                token = token[: self.rng.randint(1, len(token))]
            elif roll < 0.2:
                token = token[self.rng.randint(0, len(token) - 1) :]
            elif roll < 0.25:
                token = token.upper()
            out += token + self.rng.choice(["", " ", "\n", "user\n", "x", "<", ">", "  ", "\u2581"])
        return self.rng.choice(["", " ", "a", "<"]) + out

    def byte_tokens(self):
        return "".join(
            self.rng.choice([f"<0x{self.rng.randrange(256):02X}>", "<unk>", "<0x", "\u2581", " x"])
            for _ in range(self.rng.randint(1, 5))
        )

    def bytes_latin1(self):
        return self.rng.randbytes(self.rng.randint(1, 32)).decode("latin-1")

    def bytes_replaced(self):
        return self.rng.randbytes(self.rng.randint(1, 32)).decode("utf-8", "replace")

    def code(self):
        text = "".join(self.rng.choices(CODE, k=self.rng.randint(1, 2)))
        start = self.rng.randrange(len(text))
        return text[start : start + 70] if self.rng.random() < 0.5 else text[:70]

    def numbers(self):
        forms = [
            lambda: str(self.rng.randrange(10 ** self.rng.randint(1, 20))),
            lambda: f"{self.rng.uniform(-1e6, 1e6):.{self.rng.randint(0, 9)}f}",
            lambda: f"{self.rng.uniform(0, 1):.3e}",
            lambda: f"{self.rng.randint(1, 31)}/{self.rng.randint(1, 12)}/{self.rng.randint(1, 2999)}",
            lambda: f"{self.rng.randrange(10**9):,}",
            lambda: f"${self.rng.randrange(10**4)}.{self.rng.randrange(100):02d}",
            lambda: f"https://example.org/{self.rng.randrange(10**6):x}?q={self.rng.randrange(99)}",
            lambda: "".join(self.char((0x660, 0x669)) for _ in range(4)),
        ]
        return self.rng.choice([" ", ", ", ""]).join(
            self.rng.choice(forms)() for _ in range(self.rng.randint(1, 3))
        )

    def odd(self):
        parts = [chr(self.rng.choice(ODD)) for _ in range(self.rng.randint(1, 4))]
        parts += [self.word((0x61, 0x7A), 3) for _ in range(2)]
        self.rng.shuffle(parts)
        return "".join(parts)

    def any_code_point(self):
        out = ""
        for _ in range(self.rng.randint(1, 8)):
            point = self.rng.choice([0x80, 0x800, 0x10000, 0x110000])
            char = chr(self.rng.randrange(point))
            out += "" if 0xD800 <= ord(char) <= 0xDFFF else char
        return out

    def combining(self):
        text = self.slice_of_text()[:12] + self.word((0xC0, 0x17F), 4)
        out = unicodedata.normalize(self.rng.choice(["NFD", "NFKD", "NFC"]), text)
        return "".join(c + chr(0x300 + self.rng.randrange(0x70)) * self.rng.choice([0, 0, 1, 3]) for c in out)

    def tokens_joined(self):
        text = "".join(self.rng.choices(self.tokens, k=self.rng.randint(1, 5)))
        return text if self.rng.random() < 0.2 else text.replace("\u2581", " ")

    def tags(self):
        out = ""
        for _ in range(self.rng.randint(1, 5)):
            tag = self.rng.choice(TAGS)
            out += self.rng.choice([f"<{tag}>", f"</{tag}>", f"<{tag} x=1>", f"<{tag}/>", "text", "\n "])
        return out

    def repeated(self):
        unit = self.rng.choice(["a", "A", "!", "=", "-", "ab", "ha", "0", "é", "中", "<", "_", ".", "xX", "\u2581"])
        return unit * self.rng.randint(2, 60)

    def casing(self):
        text = self.slice_of_text()
        return self.rng.choice([text.upper(), text.swapcase(), text.title(), text.replace(" ", "")])


WEIGHTS = {
    "script": 4, "mixed_scripts": 2, "slice_of_text": 3, "emoji": 2, "symbols": 1, "whitespace": 4,
    "control": 4, "byte_tokens": 1, "bytes_latin1": 1, "bytes_replaced": 1, "code": 2, "numbers": 2,
    "odd": 1, "any_code_point": 1, "combining": 1, "tokens_joined": 5, "tags": 2, "repeated": 1,
    "casing": 1,
}  # fmt: skip


def fixed():
    """The empty string, every ASCII character, runs of every length up to 70 of some characters."""
    yield ""
    yield from (chr(i) for i in range(128))
    for unit in (" ", "\n", "\t", "\u2581", "a"):
        yield from (unit * n for n in range(2, 71))
        yield from (f"a{unit * n}b" for n in (1, 2, 3, 4, 15, 16, 17, 31, 32, 33, 64))
    yield from EMOJI
    yield from CODE


def long_strings(texts, seed):
    """A few strings of 10 kB and more."""
    rng = random.Random(seed)
    yield from ("a" * 20000, " " * 20000, "\n" * 5000, "ab " * 5000, "中" * 5000)
    yield rng.randbytes(20000).decode("latin-1")
    yield rng.randbytes(20000).decode("utf-8", "replace")
    yield from texts


def strings(tokenizer, added, texts, count, seed):
    maker = Maker(tokenizer, added, texts, seed)
    seen, out = set(), []
    for text in fixed():
        if text not in seen:
            seen.add(text)
            out.append(text)
    names, weights = list(WEIGHTS), list(WEIGHTS.values())
    while len(out) < count:
        text = getattr(maker, maker.rng.choices(names, weights)[0])()
        if text not in seen:
            seen.add(text)
            out.append(text)
    return out[:count]
