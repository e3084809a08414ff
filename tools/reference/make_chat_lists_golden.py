"""Goldens of rendering: message lists, and the prompts that published chat templates make of them.

Program: transformers' apply_chat_template (versions in provenance file). Seed: 17.
Inputs:  two published Gemma 4 templates of different age (tests/golden/chat/*.jinja) and, if given,
         tokenizer_config.json[.xz] of a Gemma 3 instruction model (not part of this repository).
Rerun:   python -m venv v && v/bin/pip install transformers==5.23.0 jinja2==3.1.6
         v/bin/python tools/reference/make_chat_lists_golden.py tests/golden/chat tokenizer_config.json

lists.jsonl, one object a line: "request" as `markbase template` takes it, and for each template that
was asked its prompt, or {"error": message} ("" where rendering fails otherwise). "spelled": true
where a text of the request spells a control token.
"""

import argparse
import copy
import json
import lzma
import pathlib
import random

import tokenizers
import transformers

import provenance

EMPTY = tokenizers.Tokenizer(tokenizers.models.BPE())
SEED = 17
BOS = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"}
CONTROL = ["<turn|>", "<|turn>model\n", "<|channel>", "<channel|>", "<bos>", "<|\"|>", "<|tool_call>", "<eos>", "<start_of_turn>"]
TEXTS = [
    "Hi", "", " ", "  leading", "trailing \n", "\n\nboth\n\n", "a\nb\n\nc", "\ttab\t", "日本語 😀", "{{ not }} {% a %}", "'\"\\",
    "\u00a0nbsp\u00a0", "\u3000wide\u3000", "\u200bzero\u200b", "\r\ncrlf\r\n", "\u2028line\u2028", "\u0085next\u0085", "\x1cunit\x1f",
    "\ufeffbom", "What is 2+2?", "It is 4.", "   deep   spaces   ", "x" * 60, "ünï ÇØ ß", "line\n", "a,b:{c}[d]", "<b>bold</b>", "user", "model\n",
]  # fmt: skip
VALUES = [1, 0, -5, 2.0, 0.1, 1e20, 1e-7, 21.5, True, False, None, "text", "", "q \"x\"\n", [], {}, [1, "a", None], {"k": "v", "A": 1, "a": [True]},
          12345678901234567890123, -0.0, {"z": {"y": [{"x": 1.5}]}}, "<b>", ["ß", "é"]]  # fmt: skip
NAMES = ["get_weather", "f", "g.h", "list_files-2", "search"]
KEYS = ["city", "days", "Zone", "a", "B", "type", "description", "required", "items", "keys", "ß", "name", "İx"]


class Maker:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.spelled = False

    def text(self):
        text = self.rng.choice(TEXTS)
        if self.rng.random() < 0.15:
            text += " " + self.rng.choice(TEXTS)
        if self.rng.random() < 0.06:
            self.spelled = True
            text += self.rng.choice(CONTROL) + self.rng.choice(TEXTS)
        return text

    def content(self, media):
        roll = self.rng.random()
        if roll < 0.75:
            return self.text()
        parts = [{"type": "text", "text": self.text()} for _ in range(self.rng.randint(0, 3))]
        if media and self.rng.random() < 0.5:
            parts.insert(self.rng.randint(0, len(parts)), {"type": self.rng.choice(media)})
        return parts

    def arguments(self):
        keys = self.rng.sample(KEYS, self.rng.randint(0, 4))
        return {key: copy.deepcopy(self.rng.choice(VALUES)) for key in keys}

    def schema(self, depth=0):
        kind = self.rng.choice(["string", "integer", "number", "boolean", "array", "object", "STRING", "null"])
        out = {"type": kind}
        if self.rng.random() < 0.5:
            out["description"] = self.text() or "d"
        if self.rng.random() < 0.15:
            out["nullable"] = self.rng.choice([True, False])
        if kind.lower() == "string" and self.rng.random() < 0.4:
            out["enum"] = ["x", "y z", self.text()]
        if kind == "array" and self.rng.random() < 0.8:
            out["items"] = self.schema(depth + 1) if depth < 3 else {"type": ["string", "null"]}
            if self.rng.random() < 0.3:
                out["items"]["minimum"] = self.rng.choice(VALUES)
        if kind == "object" and depth < 3 and self.rng.random() < 0.8:
            out["properties"] = self.properties(depth + 1)
            if self.rng.random() < 0.6:
                out["required"] = list(out["properties"])[:2]
        if self.rng.random() < 0.2:
            out["default"] = self.rng.choice(VALUES)
        return out

    def properties(self, depth=0):
        return {key: self.schema(depth) for key in self.rng.sample(KEYS, self.rng.randint(0, 4))}

    def tool(self):
        function = {"name": self.rng.choice(NAMES), "description": self.text()}
        if self.rng.random() < 0.85:
            function["parameters"] = {"type": "object", "properties": self.properties()}
            if self.rng.random() < 0.6:
                function["parameters"]["required"] = list(function["parameters"]["properties"])[:2]
        if self.rng.random() < 0.15:
            function["response"] = {"type": self.rng.choice(["object", "string"]), "description": self.text()}
        return {"type": "function", "function": function}

    def call(self, number):
        return {"id": f"c{number}", "type": "function", "function": {"name": self.rng.choice(NAMES), "arguments": self.arguments()}}

    def assistant(self):
        message = {"role": "assistant", "content": self.content([]) if self.rng.random() < 0.8 else None}
        if self.rng.random() < 0.3:
            message[self.rng.choice(["reasoning", "reasoning_content", "thinking"])] = self.text()
        if self.rng.random() < 0.1:
            message["content"] = "<|channel>thought\nold\n<channel|>" + self.text()
            self.spelled = True
        return message

    def tool_turns(self, native):
        message = self.assistant()
        calls = [self.call(i) for i in range(self.rng.randint(1, 3))]
        message["tool_calls"] = calls
        if self.rng.random() < 0.1:
            calls[0]["function"]["arguments"] = json.dumps(self.arguments())
        if native:
            values = [self.arguments(), self.text(), None]
            message["tool_responses"] = [{"name": c["function"]["name"], "response": self.rng.choice(values)} for c in calls]
            return [message]
        answers = []
        for call in self.rng.sample(calls, self.rng.randint(0, len(calls))):
            answer = {"role": "tool", "tool_call_id": call["id"], "content": self.content([])}
            if self.rng.random() < 0.3:
                answer["name"] = call["function"]["name"]
            if self.rng.random() < 0.1:
                answer["tool_call_id"] = "other"
            answers.append(answer)
        return [message, *answers]

    def request(self):
        self.spelled = False
        messages = []
        if self.rng.random() < 0.4:
            messages.append({"role": self.rng.choice(["system", "system", "developer"]), "content": self.content([])})
        native = self.rng.random() < 0.4
        with_tools = self.rng.random() < 0.5
        for _ in range(self.rng.randint(1, 4)):
            messages.append({"role": "user", "content": self.content(["image", "audio", "video"])})
            if with_tools and self.rng.random() < 0.7:
                for _ in range(self.rng.randint(1, 2)):
                    messages += self.tool_turns(native)
            if self.rng.random() < 0.7:
                messages.append(self.assistant())
        if self.rng.random() < 0.05:
            messages.append({"role": "system", "content": self.text()})
        request = {"messages": messages}
        if with_tools:
            request["tools"] = [self.tool() for _ in range(self.rng.randint(0, 3))]
        if self.rng.random() < 0.7:
            request["add_generation_prompt"] = self.rng.choice([True, True, False])
        if self.rng.random() < 0.5:
            request["enable_thinking"] = self.rng.choice([True, False])
        if not request.get("add_generation_prompt") and self.rng.random() < 0.5:
            has_thought = any(k in messages[-1] for k in ("reasoning", "reasoning_content", "thinking"))
            request["continue_final_message"] = "reasoning_content" if has_thought and self.rng.random() < 0.5 else True
        return request

    def plain(self):
        """Alternating turns, which Gemma 3 takes too."""
        self.spelled = False
        messages = [{"role": "system", "content": self.text()}] if self.rng.random() < 0.4 else []
        for _ in range(self.rng.randint(1, 4)):
            messages += [{"role": "user", "content": self.content(["image"])}, {"role": "assistant", "content": self.text()}]
        if self.rng.random() < 0.7:
            messages.pop()
        request = {"messages": messages, "add_generation_prompt": self.rng.random() < 0.7}
        if not request["add_generation_prompt"] and self.rng.random() < 0.5:
            request["continue_final_message"] = True
        return request


def read_template(config):
    """The chat template in a tokenizer_config.json, packed or not."""
    opener = lzma.open if config.suffix == ".xz" else open
    with opener(config, "rb") as file:
        return json.load(file)["chat_template"]


def render(template, request):
    """The prompt, or {"error": what the template raises, "" where it fails otherwise}."""
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=EMPTY, chat_template=template, **BOS)
    arguments = copy.deepcopy(request)
    try:
        return tokenizer.apply_chat_template(arguments.pop("messages"), tokenize=False, **arguments)
    except Exception as error:  # noqa: BLE001 - the kinds of failure are the golden
        return {"error": str(error) if type(error).__name__ == "TemplateError" else ""}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("gemma3_config", type=pathlib.Path, nargs="?")
    args = parser.parse_args()
    paths = {
        "canonical": args.out / "gemma4-chat-template.jinja",
        "interleaved": args.out / "gemma4-chat-template-interleaved.jinja",
    }
    templates = {name: path.read_text(encoding="utf-8") for name, path in paths.items()}
    if args.gemma3_config:
        templates["gemma3"] = read_template(args.gemma3_config)
    maker = Maker(SEED)
    requests = []
    while len(requests) < 480:
        request = maker.request() if len(requests) < 360 else maker.plain()
        requests.append((request, maker.spelled))
    with open(args.out / "lists.jsonl", "w", encoding="utf-8", newline="\n") as file:
        for number, (request, spelled) in enumerate(requests):
            case = {"request": request, "spelled": spelled}
            for name, template in templates.items():
                if name != "gemma3" or number >= 360:
                    case[name] = render(template, request)
            file.write(json.dumps(case, ensure_ascii=False, separators=(",", ":")) + "\n")
    packages = ["transformers", "jinja2"]
    inputs = [*paths.values(), *([args.gemma3_config] if args.gemma3_config else [])]
    provenance.write(args.out, __file__, packages, SEED, inputs, "lists.provenance.json", count=len(requests))


if __name__ == "__main__":
    main()
