"""Goldens of rendering by Gemma 3's own template: message lists that it takes and lists that it refuses.

Program: transformers' apply_chat_template (versions in provenance file). Seed: 23.
Inputs:  tokenizer_config.json[.xz] of a Gemma 3 instruction model (not part of this repository).
Rerun:   python -m venv v && v/bin/pip install transformers==5.23.0 jinja2==3.1.6
         v/bin/python tools/reference/make_gemma3_lists_golden.py tokenizer_config.json tests/golden/chat

gemma3_lists.jsonl, one object a line: "request" as `markbase template` takes it, and "prompt", or
"error": what the template raises ("" where rendering fails otherwise).
"""

import argparse
import json
import pathlib
import random

import make_chat_lists_golden as lists
import provenance

SEED = 23
COUNT = 480


class Gemma3Maker(lists.Maker):
    def parts(self):
        parts = [{"type": "text", "text": self.text()} for _ in range(self.rng.randint(0, 3))]
        for _ in range(self.rng.choice([0, 0, 1, 2])):
            parts.insert(self.rng.randint(0, len(parts)), {"type": "image"})
        return parts

    def content3(self):
        return self.text() if self.rng.random() < 0.7 else self.parts()

    def system(self):
        roll = self.rng.random()
        if roll < 0.75:
            return {"role": "system", "content": self.text()}
        return {"role": "system", "content": [{"type": "text", "text": self.text()} for _ in range(self.rng.randint(1, 2))]}

    def turns(self):
        messages = [self.system()] if self.rng.random() < 0.4 else []
        for _ in range(self.rng.randint(1, 5)):
            # Any role but "user" may stand in the model's place, and is written as it is spelled.
            role = self.rng.choices(["assistant", "model", "tool", "Assistant"], [30, 2, 1, 1])[0]
            messages += [{"role": "user", "content": self.content3()}, {"role": role, "content": self.content3()}]
        if self.rng.random() < 0.6:
            messages.pop()
        return messages

    def spoil(self, messages):
        """Out of order, a role out of place, or a content that is none."""
        roll, at = self.rng.random(), self.rng.randrange(len(messages))
        if roll < 0.2:
            del messages[at]
        elif roll < 0.4:
            messages.insert(at, dict(messages[at]))
        elif roll < 0.6:
            messages[at] = messages[at] | {"role": self.rng.choice(["user", "assistant", "system", "developer", "tool"])}
        elif roll < 0.8:
            messages.insert(at, {"role": self.rng.choice(["system", "developer"]), "content": self.text()})
        elif roll < 0.9:
            messages.reverse()
        else:
            messages[at] = messages[at] | {"content": self.rng.choice([None, 3, True, 2.5])}

    def request3(self):
        messages = self.turns()
        if self.rng.random() < 0.25:
            self.spoil(messages)
        request = {"messages": messages or self.turns()}
        if self.rng.random() < 0.8:
            request["add_generation_prompt"] = self.rng.choice([True, True, False])
        if not request.get("add_generation_prompt") and self.rng.random() < 0.4:
            request["continue_final_message"] = True
        return request


def requests(seed, count):
    maker = Gemma3Maker(seed)
    return [maker.request3() for _ in range(count)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("config", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    template = lists.read_template(args.config)
    failed = 0
    with open(args.out / "gemma3_lists.jsonl", "w", encoding="utf-8", newline="\n") as file:
        for request in requests(SEED, COUNT):
            answer = lists.render(template, request)
            case = answer if isinstance(answer, dict) else {"prompt": answer}
            failed += "error" in case
            file.write(json.dumps({"request": request} | case, ensure_ascii=False, separators=(",", ":")) + "\n")
    provenance.write(
        args.out, __file__, ["transformers", "jinja2"], SEED, [args.config], "gemma3_lists.provenance.json", count=COUNT
    )
    print(COUNT, "lists,", failed, "refused")


if __name__ == "__main__":
    main()
