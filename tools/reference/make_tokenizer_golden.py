"""Goldens of tokenization, by the `tokenizers` library on a published tokenizer.json.

Program: tokenizers (version in provenance file). Seed: 11.
Inputs:  tokenizer.json or tokenizer.json.xz of Gemma 3 or Gemma 4 (given by the caller; it is not
         part of this repository), the texts of tests/golden/texts.
Rerun:   python -m venv v && v/bin/pip install tokenizers
         v/bin/python tools/reference/make_tokenizer_golden.py gemma3-tokenizer.json \
             tests/golden/texts tests/golden/tokenizer/gemma3.jsonl --count 20500 [--full F.jsonl]
         v/bin/python tools/reference/make_tokenizer_golden.py gemma4-tokenizer.json \
             tests/golden/texts tests/golden/tokenizer/gemma4.jsonl --count 20500 && xz -9 \
             tests/golden/tokenizer/gemma4.jsonl

The golden is UTF-8, one JSON object a line; what is left out equals what stands before it:
  text           the string
  ids            without <bos>, control tokens' spellings parsed
  plain          ids with the spellings of special tokens treated as plain text; absent: = ids
  decoded        of ids, special tokens kept; absent: = text
  decoded_skip   of ids, special tokens left out; absent: = decoded
"Special" are the added tokens whose "special" flag is set in tokenizer.json; other added tokens
(HTML tags, runs of newlines) are matched in both modes. Strings never hold <image_soft_token>,
whose id lies outside the vocabulary of text-only files. --full also writes every field of every
string, and of a few long ones, to another file.
"""

import argparse
import json
import lzma
import pathlib

import tokenizers

import provenance
import tokenizer_strings

SEED = 11
LEFT_OUT = {"<image_soft_token>"}


def read(path):
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rb") as file:
        return file.read()


def golden(tokenizer, text):
    tokenizer.encode_special_tokens = False
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    tokenizer.encode_special_tokens = True
    plain = tokenizer.encode(text, add_special_tokens=False).ids
    return {
        "text": text,
        "ids": ids,
        "ids_plain": plain,
        "decoded": tokenizer.decode(ids, skip_special_tokens=False),
        "decoded_skip_special": tokenizer.decode(ids, skip_special_tokens=True),
    }


def compact(full):
    line = {"text": full["text"], "ids": full["ids"]}
    if full["ids_plain"] != full["ids"]:
        line["plain"] = full["ids_plain"]
    if full["decoded"] != full["text"]:
        line["decoded"] = full["decoded"]
    if full["decoded_skip_special"] != full["decoded"]:
        line["decoded_skip"] = full["decoded_skip_special"]
    return line


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tokenizer", type=pathlib.Path)
    parser.add_argument("texts", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--full", type=pathlib.Path)
    args = parser.parse_args()
    raw = read(args.tokenizer)
    tokenizer = tokenizers.Tokenizer.from_buffer(raw)
    added = [t["content"] for t in json.loads(raw)["added_tokens"] if t["content"] not in LEFT_OUT]
    paths = sorted(args.texts.glob("*.txt"))
    texts = [path.read_text(encoding="utf-8") for path in paths]
    strings = tokenizer_strings.strings(tokenizer, added, texts, args.count, SEED)
    rows = [golden(tokenizer, text) for text in strings if "<image_soft_token>" not in text]
    write_lines(args.out, (compact(row) for row in rows))
    if args.full:
        long = [golden(tokenizer, text) for text in tokenizer_strings.long_strings(texts, SEED)]
        write_lines(args.full, rows + long)
    name = f"{args.out.stem}.provenance.json"
    provenance.write(
        args.out.parent, __file__, ["tokenizers"], SEED, [args.tokenizer, *paths], name,
        count=len(rows), special_tokens="parsed in ids, plain text in plain", bos=False,
    )  # fmt: skip
    plain = sum(row["ids"] != row["ids_plain"] for row in rows)
    changed = sum(row["decoded"] != row["text"] for row in rows)
    print(f"{len(rows)} strings, {plain} differ when plain, {changed} not restored by decoding")


if __name__ == "__main__":
    main()
