"""A hand-made vocabulary of some 300 pieces, and what the `tokenizers` library makes of it.

Program: tokenizers (version in the provenance file). Seed: 5.
Rerun:   python -m venv v && v/bin/pip install tokenizers
         v/bin/python tools/reference/make_tiny_tokenizer_golden.py tests/golden/tokenizer

Writes tiny_tokenizer.json (the vocabulary with its merge list), tiny_pieces.jsonl (the same pieces as a
GGUF file has them: text, score, type of 1 normal, 3 control, 4 user-defined, 6 byte) and tiny.jsonl:
text, ids (control tokens parsed), plain (their spellings as text), decoded and decoded_skip of ids.
The merges come from the scores by the rule that the published vocabularies follow: all pairs of normal
or user-defined pieces whose concatenation is one, by score (user-defined: 0) descending, then length of
left, then of right descending.
"""

import json
import random
import sys

from tokenizers import Tokenizer

import provenance

SPACE = "\u2581"
SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
ADDED = ["\n", "\n\n", "\n\n\n", SPACE * 2, SPACE * 3, SPACE * 4, "\t\t", "<h1>", "</h1>", "[multimodal]"]
WORDS = ["th", "he", "the", "▁the", "▁t", "in", "ing", "er", "ab", "aba", "abab", "▁a", "an", "and", "▁and",
         "aa", "aaaa", "日本", "é", "le", "▁e", "us", "user", "mo", "de", "model", "del", "\n\ta"]
CHARACTERS = "▁abdeghilmnorstu<>/_é日本\t\n"


def pieces():
    rows = [(text, -1000.0, 3) for text in SPECIAL]
    rows += [(text, -1000.0, 4) for text in ADDED]
    rows += [(f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)]
    rows += [(text, -1.0 - i, 1) for i, text in enumerate(dict.fromkeys(WORDS))]
    have = {text for text, _, _ in rows}
    rows += [(text, -200.0 - i, 1) for i, text in enumerate(CHARACTERS) if text not in have]
    return rows


def merges(rows):
    score = {text: 0.0 if kind == 4 else s for text, s, kind in rows if kind in (1, 4)}
    pairs = [(text[:k], text[k:]) for text in score for k in range(1, len(text))]
    pairs = [(left, right) for left, right in pairs if left in score and right in score]
    return sorted(pairs, key=lambda p: (-score[p[0] + p[1]], -len(p[0]), -len(p[1])))


def tokenizer_json(rows):
    added = [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": kind == 3}
             for i, (text, _, kind) in enumerate(rows) if kind in (3, 4)]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                          "invert": False},
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True,
                  "ignore_merges": False, "vocab": {text: i for i, (text, _, _) in enumerate(rows)},
                  "merges": [list(pair) for pair in merges(rows)]},
    }


def strings(rows):
    rng = random.Random(5)
    texts = [text for text, _, _ in rows if len(text) != 6 or not text.startswith("<0x")]
    alphabet = CHARACTERS + "  xyzЖ😀\u00a0\u200b"
    out = ["", " ", "the", " the", "    the", "a" * 70, "ab" * 60, " " * 100, "\n" * 40, "the" * 50, "<0x41>"]
    for _ in range(500):
        parts = []
        for _ in range(rng.randint(1, 9)):
            kind = rng.random()
            if kind < 0.5:
                parts.append(rng.choice(texts).replace(SPACE, rng.choice([" ", " ", SPACE])))
            elif kind < 0.8:
                parts.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 8))))
            else:
                parts.append(rng.choice(alphabet) * rng.randint(1, 60))
        out.append("".join(parts))
    return list(dict.fromkeys(out))


def main():
    folder = sys.argv[1]
    rows = pieces()
    with open(f"{folder}/tiny_tokenizer.json", "w", encoding="utf-8") as f:
        json.dump(tokenizer_json(rows), f, ensure_ascii=False, indent=0)
        f.write("\n")
    with open(f"{folder}/tiny_pieces.jsonl", "w", encoding="utf-8") as f:
        for text, score, kind in rows:
            f.write(json.dumps({"piece": text, "score": score, "type": kind}, ensure_ascii=False) + "\n")
    tokenizer = Tokenizer.from_file(f"{folder}/tiny_tokenizer.json")
    with open(f"{folder}/tiny.jsonl", "w", encoding="utf-8") as f:
        for text in strings(rows):
            tokenizer.encode_special_tokens = False
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            tokenizer.encode_special_tokens = True
            plain = tokenizer.encode(text, add_special_tokens=False).ids
            f.write(json.dumps({"text": text, "ids": ids, "plain": plain,
                                "decoded": tokenizer.decode(ids, skip_special_tokens=False),
                                "decoded_skip": tokenizer.decode(ids, skip_special_tokens=True)},
                               ensure_ascii=False) + "\n")
    provenance.write(folder, __file__, ["tokenizers"], seed=5, name="tiny.provenance.json", bos=False)


if __name__ == "__main__":
    main()
