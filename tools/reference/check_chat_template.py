"""Compares `markbase template` with transformers on fresh message lists, for any model's own template.

Programs: transformers, tokenizers. Nothing is written.
Input:    a directory with tokenizer.json and the template (chat_template.jinja, or in
          tokenizer_config.json). Templates that may not be part of this repository are tried so.
Rerun:    python -m venv v && v/bin/pip install transformers==5.23.0 jinja2==3.1.6
          v/bin/python tools/reference/check_chat_template.py build/release/markbase DIR \
              [--lists gemma3|gemma4] [--count 1000] [--seed 1]

The prompts must be equal, a list that the template refuses must be refused, and the ids must be the
library's ids of the whole prompt wherever no text of the list spells a control token. Ends with 1 if
anything differs. Texts that a template would drop without a word (keys and parts it does not know)
are not among the lists: MarkBase refuses those.
"""

import argparse
import json
import pathlib
import subprocess

import make_chat_lists_golden as lists
import make_gemma3_lists_golden as gemma3_lists
import tokenizers


def template_of(folder):
    beside = folder / "chat_template.jinja"
    return beside.read_text() if beside.exists() else lists.read_template(folder / "tokenizer_config.json")


def ask(args, requests):
    """The answers to the lines, or None where the program refuses one."""
    lines = "".join(json.dumps(request, ensure_ascii=False) + "\n" for request in requests)
    done = subprocess.run([args.markbase, "template", args.model], input=lines.encode(), capture_output=True)
    if done.returncode == 0:
        return [json.loads(line) for line in done.stdout.decode().split("\n") if line]
    if done.returncode < 0 or len(requests) > 1:
        raise SystemExit(f"ended with {done.returncode}: {done.stderr.decode()}")
    return None


def requests_of(args):
    if args.lists == "gemma3":
        return gemma3_lists.requests(args.seed, args.count)
    maker = lists.Maker(args.seed)
    return [maker.request() for _ in range(args.count)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("markbase", type=pathlib.Path)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--lists", choices=["gemma3", "gemma4"], default="gemma3")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    template = template_of(args.model)
    tokenizer = tokenizers.Tokenizer.from_file(str(args.model / "tokenizer.json"))
    control = [token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special]
    pairs = [(request, lists.render(template, request)) for request in requests_of(args)]
    taken = [(request, prompt) for request, prompt in pairs if isinstance(prompt, str)]
    answers = ask(args, [request for request, _ in taken])
    prompts = ids = compared = 0
    for (request, prompt), answer in zip(taken, answers, strict=True):
        if answer["prompt"] != prompt:
            prompts += 1
            print("prompt differs:", json.dumps(request, ensure_ascii=False))
        text = json.dumps(request, ensure_ascii=False)
        if not any(json.dumps(token, ensure_ascii=False)[1:-1] in text for token in control):
            compared += 1
            ids += answer["ids"] != tokenizer.encode(prompt, add_special_tokens=False).ids
    refused = [request for request, prompt in pairs if not isinstance(prompt, str)]
    accepted = [request for request in refused if ask(args, [request]) is not None]
    for request in accepted:
        print("taken, though the template refuses it:", json.dumps(request, ensure_ascii=False))
    print(f"{len(taken)} prompts, {prompts} differ; {compared} id lists, {ids} differ; "
          f"{len(refused)} refused lists, {len(accepted)} taken")  # fmt: skip
    raise SystemExit(prompts + ids + len(accepted) > 0)


if __name__ == "__main__":
    main()
