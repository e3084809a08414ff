#!/usr/bin/env python3
"""Encodes the same text with MarkBase and with the `tokenizers` library in turns, and compares them.

One thread each. Needs the library (python -m venv v && v/bin/pip install tokenizers) and a build with
benchmarks (preset ci).

  v/bin/python bench/vs_tokenizers.py DIR... --bench build/ci/bench/tokenizer_bench
  v/bin/python bench/vs_tokenizers.py DIR --chat     # besides, a long conversation to a prompt to ids

DIR holds tokenizer.json, for --chat also the model's template. The text is 10 MB by default, made from
a seed: prose, code, the scripts of the world, numbers, emoji and white space, in documents of some two
kilobytes. It is encoded document by document, and a second time as one single text.

A pair is one run of each side, a process each; the side that starts changes from pair to pair. Loading
is not counted on either side, and neither is the conversion of the ids to a Python list. Printed: both
medians, the median of the ratios peer / ours pair by pair (above 1: we are faster), their range and
middle half, by wall clock and by the processor time of the encoding thread, which other programs on the
machine disturb less. The ids of both sides must be equal. With --json F everything is written to F.
"""

import argparse
import json
import os
import pathlib
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools/reference"))
SEED = 5
SHARES = {"prose": 38, "code": 24, "scripts": 22, "numbers": 5, "emoji": 4, "white": 4, "markup": 3}
WORDS = ["the weather", "ein Wort", "une phrase", "una frase", "большой дом", "天気がいい", "오늘", "नमस्ते", "مرحبا", "שלום"]


def say(text):
    print(text, file=sys.stderr, flush=True)


class Text:
    """Makes documents; the same for the same seed and the same sources of this repository."""

    def __init__(self, seed):
        import tokenizer_strings

        self.rng = random.Random(seed)
        self.strings = tokenizer_strings
        texts = [p.read_text(encoding="utf-8") for p in sorted((ROOT / "tests/golden/texts").glob("*.txt"))]
        self.words = [word for text in texts for word in text.split(" ")]
        self.after = {}
        for word, following in zip(self.words, self.words[1:]):
            self.after.setdefault(word, []).append(following)
        sources = [*ROOT.glob("src/**/*.cc"), *ROOT.glob("tests/**/*.cc"), *ROOT.glob("tools/**/*.py")]
        self.code_texts = [path.read_text(encoding="utf-8") for path in sorted(sources)]

    def prose(self, size):
        """A chain of words that follow one another somewhere in the texts."""
        word, out, length = self.rng.choice(self.words), [], 0
        while length < size:
            out.append(word)
            length += len(word) + 1
            word = self.rng.choice(self.after.get(word, self.words))
        return " ".join(out)

    def code(self, size):
        text = self.rng.choice(self.code_texts)
        start = self.rng.randrange(max(1, len(text) - size))
        return text[start : start + size]

    def scripts(self, size):
        """Words of letters of one block, by far most of them common ones."""
        block = self.rng.choice(self.strings.BLOCKS)
        letters = [chr(c) for c in range(block[0], min(block[1], block[0] + 400) + 1)]
        out, length = [], 0
        while length < size:
            word = "".join(self.rng.choices(letters, k=self.rng.randint(1, 9)))
            out.append(word if self.rng.random() < 0.6 else self.rng.choice(WORDS))
            length += len(out[-1].encode()) + 1
        return self.rng.choice([" ", " ", "", "\n"]).join(out)

    def numbers(self, size):
        out = [f"{self.rng.uniform(-1e6, 1e6):.{self.rng.randint(0, 6)}f}" for _ in range(size // 10)]
        return self.rng.choice([", ", "\t", "\n", " | "]).join(out)

    def emoji(self, size):
        return "".join(self.rng.choices([*self.strings.EMOJI, " ", "ok ", "!"], k=size // 5))

    def white(self, size):
        runs = (self.rng.choice([" ", "\n", "\t", "\r\n", "\u3000"]) * self.rng.randint(1, 20) for _ in range(size // 12))
        return "".join(run + self.rng.choice(["a", "}", "The end.", ""]) for run in runs)

    def markup(self, size):
        out = (f"<{t}>{self.rng.choice(self.words)}</{t}>" for t in self.rng.choices(self.strings.TAGS, k=size // 16))
        return "".join(out)

    def documents(self, num_bytes):
        out, made = [], 0
        while made < num_bytes:
            kind = self.rng.choices(list(SHARES), list(SHARES.values()))[0]
            text = getattr(self, kind)(self.rng.randint(200, 4000)).replace("\0", "")
            if text:
                out.append(text)
                made += len(text.encode())
        return out


def conversation(seed):
    """100 messages of 200 bytes and 20 tools."""
    text = Text(seed)
    messages = [
        {"role": "assistant" if i % 2 else "user", "content": text.prose(220).encode()[:200].decode("utf-8", "ignore")}
        for i in range(99)
    ]
    tools = [
        {"type": "function", "function": {
            "name": f"tool_{i}", "description": text.prose(80),
            "parameters": {"type": "object", "required": ["place"], "properties": {
                "place": {"type": "string", "description": text.prose(60)},
                "days": {"type": "integer", "description": text.prose(40)},
                "unit": {"type": "string", "enum": ["metric", "imperial"]},
                "options": {"type": "object", "properties": {"detail": {"type": "boolean"}, "tags": {
                    "type": "array", "items": {"type": "string"}}}}}}}}
        for i in range(20)
    ]  # fmt: skip
    system = {"role": "system", "content": text.prose(200)}
    return {"messages": [system, *messages], "tools": tools, "add_generation_prompt": True}


def peer_run(tokenizer_json, file, ids_file):
    """What the other side does, in a process of its own: the same as tokenizer_bench encode."""
    import array

    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(tokenizer_json)
    tokenizer.encode_special_tokens = True
    documents = pathlib.Path(file).read_bytes().decode().split("\0")
    warm = documents[: len(documents) // 10] if len(documents) > 1 else [documents[0][: len(documents[0]) // 10]]
    for document in warm:
        tokenizer.encode(document, add_special_tokens=False)
    encoded = []
    wall, cpu = time.perf_counter(), time.thread_time()
    for document in documents:
        encoded.append(tokenizer.encode(document, add_special_tokens=False))
    cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
    count = 0
    with open(ids_file or os.devnull, "wb") as out:
        for encoding in encoded:
            ids = array.array("i", encoding.ids)
            count += len(ids)
            ids.append(-1)
            out.write(ids.tobytes())
    print(json.dumps({"seconds": wall, "cpu_seconds": cpu, "ids": count}))


def call(command):
    environment = os.environ | {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise SystemExit(f"failed with {done.returncode}: {done.stderr[-4000:]}")
    return json.loads(done.stdout)


def run_side(side, args, model, file, ids_file=None):
    if side == "ours":
        return call([args.bench, "encode", model, file, *(["--ids", ids_file] if ids_file else [])])
    return call([sys.executable, __file__, "--peer-run", model / "tokenizer.json", file, ids_file or ""])


def measure(args, model, file, folder):
    """One record a pair; the first pair also writes the ids, which must be equal."""
    ids_files = {side: folder / f"{side}.ids" for side in ("ours", "peer")}
    pairs = []
    for number in range(args.pairs):
        sides = ("ours", "peer") if number % 2 == 0 else ("peer", "ours")
        record = {side: run_side(side, args, model, file, ids_files[side] if number == 0 else None) for side in sides}
        if number == 0 and ids_files["ours"].read_bytes() != ids_files["peer"].read_bytes():
            raise SystemExit(f"{model.name}: the ids differ")
        pairs.append(record)
        say(f"  pair {number + 1}/{args.pairs}: {json.dumps(record)}")
    return pairs


def summary(pairs, num_bytes):
    result = {"ids": pairs[0]["ours"]["ids"]}
    for clock, name in (("seconds", "wall"), ("cpu_seconds", "processor")):
        ratios = sorted(p["peer"][clock] / p["ours"][clock] for p in pairs)
        quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratios[0]] * 3
        result[name] = {
            side + "_mb_per_s": num_bytes / 1e6 / statistics.median(p[side][clock] for p in pairs) for side in ("ours", "peer")
        } | {
            "ratio": statistics.median(ratios),
            "ratio_range": [ratios[0], ratios[-1]],
            "ratio_middle_half": [quartiles[0], quartiles[2]],
        }  # fmt: skip
    return result


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def show(name, result):
    for clock in ("wall", "processor"):
        row = result[clock]
        ranges = ["{:.2f}-{:.2f}".format(*row[key]) for key in ("ratio_range", "ratio_middle_half")]
        print(f"{name:28}{clock:>10}{row['ours_mb_per_s']:10.2f}{row['peer_mb_per_s']:10.2f}{row['ratio']:7.2f}"
              f"{ranges[0]:>13}{ranges[1]:>13}")  # fmt: skip


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=pathlib.Path, nargs="*", metavar="DIR")
    parser.add_argument("--bench", type=pathlib.Path, default=ROOT / "build/ci/bench/tokenizer_bench")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--chat", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--peer-run", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    args = parse()
    if args.peer_run:
        return peer_run(*args.peer_run)
    if not args.models:
        raise SystemExit("expected a folder with tokenizer.json")
    import tokenizers

    documents = Text(args.seed).documents(args.megabytes * 1e6)
    num_bytes = sum(len(document.encode()) for document in documents)
    print(f"{processor()}, tokenizers {tokenizers.__version__}, {num_bytes / 1e6:.1f} MB in {len(documents)} documents")
    print(f"{'':28}{'clock':>10}{'ours MB/s':>10}{'peer MB/s':>10}{'ratio':>7}{'range':>13}{'middle half':>13}")
    record = {"processor": processor(), "tokenizers": tokenizers.__version__, "bytes": num_bytes, "tests": {}}
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "documents").write_bytes("\0".join(documents).encode())
        (folder / "whole").write_bytes("\n".join(documents).encode())
        (folder / "request").write_text(json.dumps(conversation(args.seed)))
        for model in args.models:
            for form in ("documents", "whole"):
                name = f"{model.name}, {form}"
                say(name)
                pairs = measure(args, model, folder / form, folder)
                record["tests"][name] = {"summary": summary(pairs, num_bytes), "pairs": pairs}
                show(name, record["tests"][name]["summary"])
            if args.chat:
                chat = call([args.bench, "chat", model, folder / "request"])
                record["tests"][f"{model.name}, chat"] = chat
                print(f"{model.name}, chat: {chat['bytes']} bytes, {chat['ids']} ids: {json.dumps(chat['ms'])} ms, "
                      f"processor {json.dumps(chat['cpu_ms'])} ms")  # fmt: skip
    if args.json:
        args.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
