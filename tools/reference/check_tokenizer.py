"""Compares `markbase tokenize` with the `tokenizers` library on strings that no golden holds.

Program: tokenizers. Nothing is written. Any number of models with the same vocabulary is compared:
         directories with tokenizer.json, GGUF files with or without weights.
Rerun:   python -m venv v && v/bin/pip install tokenizers
         v/bin/python tools/reference/check_tokenizer.py build/release/markbase tokenizer.json \
             tests/golden/texts MODEL... [--count 20000] [--seed 1]

For each model and string: ids with control tokens parsed, ids with them as plain text, and the text
of the parsed ids, special tokens kept and left out. Ends with 1 if anything differs. Strings with
<image_soft_token> are left out: files of text models have no such token.
"""

import argparse
import json
import pathlib
import subprocess

import make_tokenizer_golden
import tokenizers
import tokenizer_strings


def ask(markbase, model, arguments, rows):
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    done = subprocess.run(
        [markbase, "tokenize", model, *arguments], input=lines.encode(), capture_output=True, check=True
    )
    return [json.loads(line) for line in done.stdout.decode().split("\n") if line]


def compare(args, model, goldens):
    """{what: number of differences}, and the first string of each."""
    faults, examples = {}, {}
    for special, name in ((True, "ids"), (False, "ids_plain")):
        rows = [{"text": g["text"], "special": special, "bos": False} for g in goldens]
        answers = ask(args.markbase, model, ["--jsonl"], rows)
        pairs = [(a["ids"], g[name], g["text"]) for a, g in zip(answers, goldens, strict=True)]
        faults[name] = sum(ours != theirs for ours, theirs, _ in pairs)
        examples[name] = next((text for ours, theirs, text in pairs if ours != theirs), None)
    for skip, name in ((False, "decoded"), (True, "decoded_skip_special")):
        rows = [{"ids": g["ids"], "skip_special": skip} for g in goldens]
        answers = ask(args.markbase, model, ["--decode"], rows)
        pairs = [(a["text"], g[name], g["text"]) for a, g in zip(answers, goldens, strict=True)]
        faults[name] = sum(ours != theirs for ours, theirs, _ in pairs)
        examples[name] = next((text for ours, theirs, text in pairs if ours != theirs), None)
    return faults, examples


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("markbase", type=pathlib.Path)
    parser.add_argument("tokenizer", type=pathlib.Path)
    parser.add_argument("texts", type=pathlib.Path)
    parser.add_argument("models", type=pathlib.Path, nargs="+")
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    raw = make_tokenizer_golden.read(args.tokenizer)
    tokenizer = tokenizers.Tokenizer.from_buffer(raw)
    left_out = make_tokenizer_golden.LEFT_OUT
    added = [t["content"] for t in json.loads(raw)["added_tokens"] if t["content"] not in left_out]
    texts = [path.read_text(encoding="utf-8") for path in sorted(args.texts.glob("*.txt"))]
    # The short fixed strings come first whatever the seed.
    strings = tokenizer_strings.strings(tokenizer, added, texts, args.count, args.seed)
    strings += tokenizer_strings.long_strings(texts, args.seed)
    strings = [text for text in strings if not any(token in text for token in left_out)]
    goldens = [make_tokenizer_golden.golden(tokenizer, text) for text in strings]
    total = 0
    for model in args.models:
        faults, examples = compare(args, model, goldens)
        total += sum(faults.values())
        print(f"{model.name}: {len(goldens)} strings, differences: {json.dumps(faults)}")
        for name, text in examples.items():
            if text is not None:
                print(f"  {name}, first: {text!r}")
    raise SystemExit(total > 0)


if __name__ == "__main__":
    main()
