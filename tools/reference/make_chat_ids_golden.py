"""Goldens of chat ids: what the `tokenizers` library makes of whole rendered prompts.

Program: tokenizers (version in provenance file). No randomness.
Inputs:  tokenizer.json[.xz] of Gemma 4, tests/golden/chat/lists.jsonl (make_chat_lists_golden.py).
Rerun:   python -m venv v && v/bin/pip install tokenizers
         v/bin/python tools/reference/make_chat_ids_golden.py gemma4-tokenizer.json.xz tests/golden/chat

lists_ids.jsonl.xz, one object a line for each line of lists.jsonl: "canonical" and "interleaved", the
ids of the prompt with control tokens parsed; left out where a text of the request spells a control
token, or there is no prompt.
"""

import argparse
import json
import lzma
import pathlib

import tokenizers

import provenance


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tokenizer", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    opener = lzma.open if args.tokenizer.suffix == ".xz" else open
    with opener(args.tokenizer, "rb") as file:
        tokenizer = tokenizers.Tokenizer.from_buffer(file.read())
    lists = args.out / "lists.jsonl"
    count = 0
    with lzma.open(args.out / "lists_ids.jsonl.xz", "wt", encoding="ascii", newline="\n", preset=9) as out:
        for line in lists.read_text(encoding="utf-8").split("\n"):
            if not line:
                continue
            row, ids = json.loads(line), {}
            for name in ("canonical", "interleaved"):
                if isinstance(row[name], str) and not row["spelled"]:
                    ids[name] = tokenizer.encode(row[name], add_special_tokens=False).ids
                    count += 1
            out.write(json.dumps(ids, separators=(",", ":")) + "\n")
    provenance.write(args.out, __file__, ["tokenizers"], None, [args.tokenizer, lists], "lists_ids.provenance.json", count=count)
    print(count, "prompts")


if __name__ == "__main__":
    main()
