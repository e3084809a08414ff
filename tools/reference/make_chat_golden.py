"""Goldens of Gemma 3's chat format: message lists and the prompt that the published template gives.

Program: transformers' apply_chat_template (versions in gemma3.provenance.json). No randomness.
Input:   tokenizer_config.json or tokenizer_config.json.xz of a Gemma 3 instruction model (given by
         the caller; it is not part of this repository).
Rerun:   python -m venv v && v/bin/pip install transformers jinja2
         v/bin/python tools/reference/make_chat_golden.py tokenizer_config.json tests/golden/chat

gemma3.jsonl, one object a line: "messages", "add_generation_prompt", and "prompt" (with <bos>), or
"error" with the message that the template raises; "error" is "" where rendering fails otherwise
(an empty list, a content of a kind that the template cannot read).
"""

import argparse
import json
import pathlib

import make_chat_lists_golden as lists
import provenance


def user(content):
    return {"role": "user", "content": content}


def assistant(content):
    return {"role": "assistant", "content": content}


def system(content):
    return {"role": "system", "content": content}


def text(value):
    return {"type": "text", "text": value}


IMAGE = {"type": "image"}
CONTENTS = [
    "Hello", "", " ", "  leading", "trailing  ", "\n\nboth\n\n", "a\nb\n\nc", "\ttab\t", "日本語 😀",
    "<start_of_turn>user\nfake<end_of_turn>\n", "<bos>", "{{ not }} {% a %} template", "'\"\\",
    "\u00a0nbsp\u00a0", "\u3000wide\u3000", "\u200bzero\u200b", "\r\ncrlf\r\n", "\u2028line\u2028",
    "x" * 300, "\u0085next\u0085", "\x1cunit\x1f", "\x0b\x0cfeeds\x0b", "\ufeffbom",
]  # fmt: skip
CONVERSATIONS = [
    [user("Hi"), assistant("Hello!"), user("How are you?")],
    [user("Hi"), assistant("Hello!")],
    [user("1"), assistant("2"), user("3"), assistant("4"), user("5")],
    [user(" a "), assistant(" b "), user(" c ")],
    [user("a"), assistant(""), user("b")],
    [system("Be brief."), user("Hi")],
    [system("Be brief."), user("Hi"), assistant("Hello"), user("Bye")],
    [system("  kept spaces  \n"), user("  Hi ")],
    [system(""), user("Hi")],
    [system([text("As a list.")]), user("Hi")],
    [system([text(" first "), text("second is left out")]), user("Hi")],
    [system("S"), user([text("list "), text(" of two")])],
    [user([text("one")])],
    [user([text(" one "), text(" two ")])],
    [user([text("")])],
    [user([])],
    [user([IMAGE, text("What is this?")])],
    [user([text("Before "), IMAGE, text(" after")])],
    [user([IMAGE, IMAGE])],
    [user([{"type": "audio"}, text("ignored kind")])],
    [user("q"), assistant([text(" as a list ")]), user("r")],
    [user("q"), {"role": "model", "content": "a"}, user("r")],
    [system("only")],
    [assistant("first")],
    [user("a"), user("b")],
    [user("a"), assistant("b"), assistant("c")],
    [system("s"), assistant("a")],
    [system("s"), system("t"), user("a")],
    [user("a"), system("late"), user("b")],
    [user("a"), assistant("b"), system("late")],
    [{"role": "tool", "content": "x"}],
    [user("a"), {"role": "tool", "content": "x"}],
    [user(3)],
    [user(None)],
    [user(True)],
    [system("s"), user(2.5)],
    [],
]  # fmt: skip


def render(template, messages, generate):
    case = {"messages": messages, "add_generation_prompt": generate}
    answer = lists.render(template, case)
    return case | (answer if isinstance(answer, dict) else {"prompt": answer})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("config", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    template = lists.read_template(args.config)
    cases = [render(template, [user(content)], True) for content in CONTENTS]
    for messages in CONVERSATIONS:
        cases += [render(template, messages, generate) for generate in (True, False)]
    args.out.mkdir(parents=True, exist_ok=True)
    with open(args.out / "gemma3.jsonl", "w", encoding="utf-8", newline="\n") as file:
        for case in cases:
            file.write(json.dumps(case, ensure_ascii=False) + "\n")
    packages = ["transformers", "jinja2"]
    provenance.write(args.out, __file__, packages, None, [args.config], "gemma3.provenance.json")
    print(len(cases), "cases,", sum("error" in case for case in cases), "errors")


if __name__ == "__main__":
    main()
