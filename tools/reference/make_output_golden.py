"""Goldens of Gemma 4's output format: model outputs and what they mean.

Program: the parser of this file, which reads a whole output at once with regular expressions and recursion;
         outputs made from a structure are also compared with that structure. No model is involved.
Rerun:   python3 tools/reference/make_output_golden.py tests/golden/output

gemma4.jsonl, one object a line: "text" (the output, control tokens spelled), "finish" ("stop" or "length"),
"prompt_tail" (what the prompt ended with, may be absent), and "expected": "reasoning", "labels", "content",
"tool_calls" (name and the JSON text of the arguments), "broken_calls" (their texts), "after_end",
"finish_reason".
"""

import argparse
import json
import math
import pathlib
import random
import re

import provenance

SEED = 20260729
Q = '<|"|>'
OPEN, CLOSE = "<|channel>", "<channel|>"
CALL, END_CALL = "<|tool_call>", "<tool_call|>"
ENDS = ("<eos>", "<turn|>", "<|tool_response>")
HIDDEN = ("<pad>", "<bos>", "<|turn>", "<|image>", "<|image|>", "<image|>", "<|audio>", "<|audio|>", "<audio|>",
          "<|video|>")  # fmt: skip
MARKERS = (OPEN, CLOSE, CALL, END_CALL, Q, *ENDS, *HIDDEN)
SPLIT = re.compile("(" + "|".join(map(re.escape, sorted(MARKERS, key=len, reverse=True))) + ")")
WHITE = " \t\n\r\x0b\x0c"
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
LITERALS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}


class Number(str):
    """A number as it was spelled."""


class Bad(Exception):
    """Not a call."""


def to_json(value):
    """Compact JSON text, numbers as they were spelled."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(to_json(k) + ":" + to_json(v) for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(to_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


# ---------------------------------------------------------------------------------------------- calls


def tokens_of(pieces):
    """Pieces (text, is_marker) to a list of characters and markers."""
    out = []
    for text, is_marker in pieces:
        out += [("m", text)] if is_marker else [("c", c) for c in text]
    return out


class CallParser:
    """One call by recursive descent over characters and markers."""

    def __init__(self, pieces):
        self.tokens = tokens_of(pieces)
        self.at = 0
        self.unclosed = False

    def peek(self, ahead=0):
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else None

    def is_char(self, chars, ahead=0):
        token = self.peek(ahead)
        return token is not None and token[0] == "c" and token[1] in chars

    def skip(self):
        while self.is_char(WHITE):
            self.at += 1

    def take(self, char):
        if self.is_char(char):
            self.at += 1
            return True
        return False

    def parse(self):
        self.skip()
        for char in "call:":
            if not self.take(char):
                raise Bad("call:")
        self.skip()
        name = ""
        while (t := self.peek()) and t[0] == "c" and (re.fullmatch(r"[A-Za-z0-9_\-.:/]", t[1]) or ord(t[1]) > 127):
            name += t[1]
            self.at += 1
        self.skip()
        if not name or not self.is_char("{"):
            raise Bad("name")
        arguments = self.value(0)
        self.skip()
        if self.peek():
            raise Bad("rest")
        return name, arguments

    def value(self, depth):
        if depth >= 100:
            raise Bad("depth")
        if self.take("{"):
            return self.object(depth)
        if self.take("["):
            return self.array(depth)
        if self.peek() == ("m", Q):
            return self.quoted()
        if self.is_char('"'):
            return self.json_string()
        return self.bare()

    def object(self, depth):
        result = {}
        while True:
            self.skip()
            if self.take(","):
                continue
            if self.peek() is None:
                self.unclosed = True
                return result
            if self.take("}"):
                return result
            key = self.key()
            self.skip()
            if self.peek() is None:
                raise Bad("value")
            value = self.value(depth + 1)
            self.skip()
            result[key] = value
            if not (self.peek() is None or self.is_char("}") or self.take(",")):
                raise Bad("after value")

    def array(self, depth):
        result = []
        while True:
            self.skip()
            if self.peek() is None:
                self.unclosed = True
                return result
            if self.take("]"):
                return result
            result.append(self.value(depth + 1))
            self.skip()
            if not (self.peek() is None or self.is_char("]") or self.take(",")):
                raise Bad("after item")

    def key(self):
        if self.peek() == ("m", Q):
            key = self.quoted()
        elif self.is_char('"'):
            key = self.json_string()
        else:
            key = self.bare_key()
        self.skip()
        if not self.take(":"):
            raise Bad("colon")
        return key

    def bare_key(self):
        stretch = []
        while (t := self.peek(len(stretch))) and t[0] == "c" and t[1] not in ",{}[]":
            stretch.append(t[1])
        text = "".join(stretch)
        if ":" not in text:
            raise Bad("key")
        follows = self.peek(len(stretch))
        first = text.index(":")
        chosen = first
        # A key that holds colons is one word after the first of them, with a value of its own kind behind it.
        for match in re.finditer(":", text):
            if re.search(f"[{WHITE}]", text[first : match.start()]):
                break
            rest = text[match.end() :].lstrip(WHITE)
            word = re.match(f"[^:{WHITE}]*", rest).group()
            own = (rest == "" and follows in (("m", Q), ("c", "{"), ("c", "["))) or rest.startswith('"')
            colon = rest[len(word) : len(word) + 1] == ":"
            if own or (not colon and (NUMBER.fullmatch(word) or word in LITERALS)):
                chosen = match.start()
                break
        self.at += chosen
        return text[:chosen].strip(WHITE)

    def quoted(self):
        text = ""
        self.at += 1
        while (t := self.peek()) and t != ("m", Q):
            text += t[1]
            self.at += 1
        if t is None:
            raise Bad("string")
        self.at += 1
        return text

    def json_string(self):
        source = ""
        self.at += 1
        while (t := self.peek()) and not (t == ("c", '"')):
            if t[0] == "m":
                raise Bad("marker")
            source += t[1]
            if t == ("c", "\\") and self.peek(1) and self.peek(1)[0] == "c":
                source += self.peek(1)[1]
                self.at += 1
            self.at += 1
        if t is None:
            raise Bad("string")
        self.at += 1
        # A backslash that begins no escape stands for itself.
        fixed = re.sub(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})|\\', lambda m: m.group() if m.group(1) else "\\\\", source)
        fixed = "".join(c if ord(c) >= 32 else f"\\u{ord(c):04x}" for c in fixed)
        return json.loads(f'"{fixed}"').encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def bare(self):
        text, depth = "", 0
        while (t := self.peek()) is not None:
            if t[0] == "m":
                raise Bad("marker")
            if depth == 0 and t[1] in ",}]":
                break
            depth += (t[1] in "{[") - (t[1] in "}]")
            text += t[1]
            self.at += 1
        text = text.strip(WHITE)
        if text in LITERALS:
            return LITERALS[text]
        return Number(text) if NUMBER.fullmatch(text) and math.isfinite(float(text)) else text


# --------------------------------------------------------------------------------------------- outputs


class Output:
    def __init__(self):
        self.reasoning, self.content, self.after_end = "", "", ""
        self.labels, self.calls, self.broken = [], [], []
        self.cut = False
        self.ended = False


def take_thought(pieces, i, out, label_known, written=""):
    """Reads a thought from piece i on; returns where it ends and whether by its own marker."""
    text = ""
    while i < len(pieces):
        piece, is_marker = pieces[i]
        if is_marker and piece not in (Q, *HIDDEN, END_CALL):
            break
        text += piece if not is_marker or piece == Q else ""
        i += 1
    closed = i < len(pieces) and pieces[i][0] == CLOSE
    if not label_known:
        whole = written + text
        # Hidden markers inside the label are ignored; a quote is not part of a word.
        if match := re.match(r"([A-Za-z0-9_-]{1,32})\n", whole):
            if match.group(1) != "thought":
                out.labels.append(match.group(1))
            text = whole[match.end() :]
        elif whole == "thought":
            text = ""
    if closed and text.endswith("\n"):
        text = text[:-1]
    out.reasoning += text
    return i + closed, closed


def take_call(pieces, i, out, finish):
    """Reads a call from piece i (after its marker) on; returns where the output goes on."""
    begin, in_string = i, False
    while i < len(pieces):
        piece, is_marker = pieces[i]
        if is_marker and piece == Q:
            in_string = not in_string
        elif is_marker and not in_string and piece in (END_CALL, CALL, OPEN, *ENDS):
            break
        i += 1
    inside = pieces[begin:i]
    at_end = i == len(pieces)
    stop = pieces[i][0] if not at_end else ""
    parser = CallParser(inside)
    try:
        name, arguments = parser.parse()
        forgiven = stop in ENDS or (at_end and finish != "length")
        if parser.unclosed and not forgiven:
            raise Bad("unclosed")
        out.calls.append((name, to_json(arguments)))
    except Bad:
        raw = CALL + "".join(p for p, _ in inside) + (END_CALL if stop == END_CALL else "")
        out.content += raw
        out.broken.append(raw)
        out.cut |= at_end and finish == "length"
    return i + (stop == END_CALL)


def parse(text, finish="stop", prompt_tail=""):
    pieces = [(p, bool(SPLIT.fullmatch(p))) for p in SPLIT.split(text) if p]
    out = Output()
    i, trim = 0, False
    starts = list(re.finditer(r"<\|turn>|<\|channel>|<channel\|>|<tool_response\|>", prompt_tail))
    if starts and starts[-1].group() == OPEN:
        written = prompt_tail[starts[-1].end() :]
        known = not re.fullmatch(r"[A-Za-z0-9_-]{0,32}", written)
        before = Output()
        i, trim = take_thought(pieces, 0, before, known, written)
        text = before.reasoning
        # What the prompt wrote of the label is no output.
        if not known and written and text.startswith(written):
            text = text[len(written) :]
        out.reasoning, out.labels = text, before.labels
    while i < len(pieces):
        piece, is_marker = pieces[i]
        if is_marker and piece in ENDS:
            out.after_end = "".join(p for p, _ in pieces[i + 1 :])
            out.ended = True
            break
        i += 1
        if is_marker and piece == OPEN:
            i, trim = take_thought(pieces, i, out, False)
        elif is_marker and piece == CALL:
            i, trim = take_call(pieces, i, out, finish), False
        elif not is_marker or piece == Q:
            piece = piece.lstrip("\n") if trim else piece
            trim = trim and not piece
            out.content += piece
    reason = "stop" if out.ended else finish
    return {
        "reasoning": out.reasoning,
        "labels": out.labels,
        "content": out.content,
        "tool_calls": [{"name": n, "arguments": a} for n, a in out.calls],
        "broken_calls": out.broken,
        "after_end": out.after_end,
        "finish_reason": "tool_calls" if out.calls and not out.cut else reason,
    }


# ---------------------------------------------------------------------------------------------- cases

HAND = [
    # The examples of the format's description.
    ("<|channel>thought\nShort sum.\n<channel|>5",),
    ("5<turn|>",),
    ("<|channel>thought\n<channel|>5",),
    ("<|channel>thought\nstill thin", "length"),
    ("Got it.\n<channel|>Sunny.", "stop", "<tool_response|><|channel>thought\n"),
    (f"<|tool_call>call:f{{a:{Q}x, {{y}}{Q},n:3}}<tool_call|><|tool_response>",),
    ("Let me see.<|tool_call>call:f{}<tool_call|><|tool_call>call:g{l:[1,{k:true}]}<tool_call|>",),
    # Thoughts.
    ("<|channel>thought<channel|>x",), ("<|channel>thought",), ("<|channel>thou", "length"), ("<|channel>",),
    ("<|channel><|channel>thought\nX\n<channel|>y",), ("<|channel>thought\n<|channel>thought\nX<channel|>y",),
    ("<|channel>thought\na\n<channel|>b<|channel>thought\nc\n<channel|>d",), ("a<channel|>b",), ("a<channel|>\nb",),
    ("<channel|>\n\nb",), ("<|channel>thought\na\n\n\n<channel|>\n\n\nb\n",), ("<|channel>final\nHello\n<channel|>x",),
    ("<|channel>thoughtful words<channel|>x",), ("<|channel>thought about it\nand\n<channel|>x",), ("<|channel>\nthought\nx",),
    ("<|channel>two words\nx\n<channel|>y",), ("<|channel>" + "a" * 32 + "\nx<channel|>y",), ("<|channel>" + "a" * 33 + "\nx<channel|>y",),
    ("<|channel>one<channel|>x",), ("<|channel>thought\nopen<|tool_call>call:f{}<tool_call|>\nafter",),
    ("<|channel>thought\nopen\n<|tool_call>call:f{}<tool_call|>",), ("<|channel>thought\nended\n<turn|>",), ("<|channel>thought\r\nx<channel|>",),
    ("text before<|channel>thought\nlate\n<channel|>\ntext after",), (f"<|channel>thought\na {Q}quoted{Q} word\n<channel|>b",),
    ("\nX", "stop", "<|turn>model\n<|channel>thought"), (" X", "stop", "<|turn>model\n<|channel>thought"), ("ght\nX<channel|>Y", "stop", "<|channel>thou"),
    ("se\nX<channel|>Y", "stop", "<|channel>wi"), ("se X<channel|>Y", "stop", "<|channel>wi"), ("thought\nX<channel|>Y", "stop", "<|channel>"),
    ("5", "stop", "<|turn>model\n<|channel>thought\n<channel|>"), ("5", "stop", "<|channel>thought\nx<channel|><|turn>model\n"), ("more.\n<channel|>Z", "stop", "<|channel>thought\nI had begun, and "),
    ("out", "stop", "<|channel>thought\nx\n<channel|><|tool_response>response:f{value:1}<tool_response|>"),
    # Ends and markers that are not for the reader.
    ("a<eos>b",), ("a<turn|>\n<|turn>user\nb",), ("a<|tool_response>response:f{}",), ("a<pad>b<bos>c<|image|>d<|turn>e",), ("a<turn|>", "length"),
    (f"a {Q} b",), ("a<tool_call|>b",), ("<tool_call|>",), ("",), ("\n",), ("plain", "length"), ("a <| b <|channel c <channel| d",),
    ("<|tool_call", "length"), ("x<", "length"), ("<<<|channel>thought\nx<channel|><",), ("日本語 😀 <|chan日<|channel>thought\n考え\n<channel|>答え",),
    # Calls that are taken.
    ("<|tool_call>call:f{a:1}<turn|>",), ("<|tool_call>call:f{a:1",), ("<|tool_call>call:f{a:[1,{b:2",), ("<|tool_call>call:f{",), ("<|tool_call>call:f{a:1}",),
    ("<|tool_call>call:f{a:1}", "length"), ("<|tool_call>call:f{a:1}<tool_call|>", "length"), ("<|tool_call>call:f{}<tool_call|><tool_call|><tool_call|>x",),
    ("<|tool_call>call:f{}<tool_call|>between<|tool_call>call:g{}<tool_call|>after",), ("<|tool_call> call:f { a : 1 , b : [ 1 , 2 ] , c : { } } <tool_call|>",),
    ("<|tool_call>\ncall:f\n{\na\n:\n1\n,\nb:2\n}\n<tool_call|>",), ("<|tool_call>call:f{a:1,}<tool_call|>",), ("<|tool_call>call:f{a:[1,2,],b:[],c:[,]}<tool_call|>",),
    ("<|tool_call>call:f{a:True,b:False,c:None,d:true,e:false,f:null}<tool_call|>",), ("<|tool_call>call:f{a:hello world,b:x y ,c:TRUE}<tool_call|>",),
    ("<|tool_call>call:f{a:,b:}<tool_call|>",), ("<|tool_call>call:f{a:NaN,b:Infinity,c:-inf,d:nan}<tool_call|>",),
    ("<|tool_call>call:f{a:1.50,b:-0,c:1e+20,d:1E5,e:12345678901234567890123,f:0.1,g:-2.5e-7,h:1e999,i:1e-999}<tool_call|>",), ("<|tool_call>call:f{a:+1,b:.5,c:5.,d:007,e:1_000,f:0x1F,g:--1,h:1e}<tool_call|>",),
    ('<|tool_call>call:f{a:"json \\"x\\" \\n \\u00e9 \\ud83d\\ude00",b:"C:\\dir",c:"\\ud800"}<tool_call|>',), ('<|tool_call>call:f{"a":1,"b c":"d","e\\"":2}<tool_call|>',),
    (f"<|tool_call>call:f{{{Q}a{Q}:1,{Q}b:c{Q}:{{{Q}d{Q}:[{Q}e{Q}]}}}}<tool_call|>",), ("<|tool_call>call:ns.tool/x:y-z{a.b:1,c-d/e:2,f:g:3,h:i:[1]}<tool_call|>",),
    (f"<|tool_call>call:f{{url:http://x/y,time:12:30,k:l:{Q}m{Q},n:o:p}}<tool_call|>",), (f"<|tool_call>call:f{{a:{Q}}}]),:<tool_call|>\n\"{Q}}}<tool_call|>",),
    (f"<|tool_call>call:f{{a:{Q}<turn|><|channel><|tool_call>{Q}}}<tool_call|>x",), ("<|tool_call>call:f{a:1,b:2,a:3}<tool_call|>",), ("<|tool_call>call:f{a:f{b,c}d,e:[x[1,2]y]}<tool_call|>",),
    ("<|tool_call>call:日本{名:東京}<tool_call|>",), ("<|tool_call>call:f{:1}<tool_call|>",), ("<|tool_call>call:f{,a:1,,b:2}<tool_call|>",), ("<|tool_call>call:f{x:" + "[" * 98 + "]" * 98 + "}<tool_call|>",),
    ("<|tool_call>call:f{a:1}<|tool_call>call:g{b:2}<tool_call|>",), ("<|tool_call>call:f{a:1}<|channel>thought\nx\n<channel|>y",), (f"<|tool_call>call:f{{a:{Q}{Q},b:{Q}\n{Q}}}<tool_call|>",),
    # Calls that are not.
    ("<|tool_call>garbage<tool_call|>after",), ("<|tool_call><tool_call|>",), ("<|tool_call>call:<tool_call|>",), ("<|tool_call>call:{}<tool_call|>",), ("<|tool_call>call:f<tool_call|>",),
    ("<|tool_call>call:f{a:1<tool_call|>x",), (f"<|tool_call>call:f{{a:{Q}open}}<tool_call|>rest",), ("<|tool_call>call:f{a:1", "length"), (f"<|tool_call>call:f{{a:{Q}x", "length"), ("<|tool_call>", "length"),
    ("one<|tool_call>call:f{}<tool_call|><|tool_call>call:g{a:", "length"), ("<|tool_call>call:f{a}<tool_call|>",), ("<|tool_call>call:f{a:1}}<tool_call|>",), ("<|tool_call>call:f{a:1} x<tool_call|>",),
    ("<|tool_call>call:f{a:[1}<tool_call|>",), ("<|tool_call>call:f{a:1]}<tool_call|>",), (f"<|tool_call>call:f{{a:{Q}x{Q}y}}<tool_call|>",), (f"<|tool_call>call:f{{a:x{Q}y{Q}}}<tool_call|>",),
    ('<|tool_call>call:f{a:"open}<tool_call|>',), ("<|tool_call>call:f{a:" + "[" * 100 + "]" * 100 + "}<tool_call|>",), ("<|tool_call>f{a:1}<tool_call|>",), ("<|tool_call>call:f{a<channel|>:1}<tool_call|>",),
    ("<|tool_call>call:f{a:1<|tool_call>call:g{}<tool_call|>",), ("<|tool_call>call:f{a:",), ("<|tool_call>call:f{a",), (f"<|tool_call>call:f{{a:{Q}x<turn|>",), ("<|tool_call>call:f(a=1)<tool_call|>",),
    ('<|tool_call>{"name":"f","arguments":{}}<tool_call|>',),
]  # fmt: skip

WORDS = ["a", "the", "Sunny", "12", "x}", "{y", "[z]", "q,r", "k:v", '"s"', "\n", "\n\n", "é", "日本", "😀", "<", "<|", "<|tool", "|>", "'", "\\", "\t", "true", "…"]
PLAIN = ["Hello", " world", "\n", ".", " It is ", "日本語", " 😀", "5", " <b>", "thought", ":", "{}", " ,", "  ", "é"]
KEYS = ["city", "days", "a.b", "x-y", "Z", "naïve", "path/to", "_1", "long_key_name"]
BARE = ["Lyon", "two words", "1.2.3", "v1", "a-b", "100%", "NaN", "x=y", "#1"]


def text_of(rng, words, most):
    return "".join(rng.choice(words) for _ in range(rng.randint(0, most)))


def random_value(rng, depth):
    """A value and one of its spellings."""
    kind = rng.randrange(10 if depth < 3 else 7)
    if kind <= 2:
        text = text_of(rng, WORDS, 6)
        return text, Q + text + Q
    if kind == 3:
        number = Number(rng.choice(["0", "-1", "42", "3.25", "1e9", "-0.5", "2.0", "100000000000000000000"]))
        return number, number
    if kind == 4:
        spelling = rng.choice(list(LITERALS))
        return LITERALS[spelling], spelling
    if kind == 5:
        text = rng.choice(BARE)
        return text, text
    if kind == 6:
        text = text_of(rng, WORDS, 4)
        return text, json.dumps(text, ensure_ascii=rng.random() < 0.5)
    if kind == 7:
        items = [random_value(rng, depth + 1) for _ in range(rng.randint(0, 3))]
        comma = rng.choice([",", ", ", " ,\n"])
        return [v for v, _ in items], "[" + comma.join(s for _, s in items) + (rng.choice(["", ","]) if items else "") + "]"
    return random_object(rng, depth + 1)


def random_object(rng, depth):
    keys = rng.sample(KEYS, rng.randint(0, 4))
    value, parts = {}, []
    for key in keys:
        item, spelling = random_value(rng, depth + 1)
        value[key] = item
        written = rng.choice([key, key, key, Q + key + Q, json.dumps(key, ensure_ascii=False)])
        parts.append(written + rng.choice([":", ":", ": ", " :"]) + spelling)
    comma = rng.choice([",", ", ", ",\n"])
    close = rng.choice(["", "", "", ","]) if parts else ""
    return value, "{" + rng.choice(["", "", " "]) + comma.join(parts) + close + rng.choice(["", "", "\n"]) + "}"


def random_output(rng):
    """An output and what it means, by construction."""
    text, reasoning, content, calls, labels = "", "", "", [], []
    trim = False
    for _ in range(rng.randint(1, 4)):
        kind = rng.randrange(6)
        if kind <= 1:
            piece = text_of(rng, PLAIN, 6)
            text += piece
            piece = piece.lstrip("\n") if trim else piece
            content += piece
            trim = trim and not piece
        elif kind <= 3:
            thought = text_of(rng, PLAIN, 8).rstrip("\n")
            label = rng.choice(["thought"] * 5 + ["final"])
            labels += [label] if label != "thought" else []
            text += f"{OPEN}{label}\n{thought}\n{CLOSE}" if thought or label != "thought" else f"{OPEN}thought\n{CLOSE}"
            reasoning += thought
            trim = True
        else:
            name = rng.choice(["get_weather", "f", "ns.tool", "a-b/c", "m:n"])
            value, spelling = random_object(rng, 0)
            text += f"{CALL}call:{name}{spelling}{END_CALL}"
            calls.append({"name": name, "arguments": to_json(value)})
            trim = False
    text += rng.choice(["", "", "<turn|>", "<|tool_response>", "<eos>"])
    expected = {"reasoning": reasoning, "labels": labels, "content": content, "tool_calls": calls, "broken_calls": [],
                "after_end": "", "finish_reason": "tool_calls" if calls else "stop"}  # fmt: skip
    return text, expected


def random_soup(rng):
    """Markers and text in any order."""
    parts = [*MARKERS[:8], OPEN + "thought\n", CALL + "call:f{", Q, "}", "{", ",", ":", "a", "1", "[", "]", "call:g", "\n", '"', "é", "😀", "thought", " "]
    return "".join(rng.choice(parts) for _ in range(rng.randint(1, 16)))


def row(text, finish="stop", prompt_tail=""):
    case = {"text": text, "finish": finish}
    if prompt_tail:
        case["prompt_tail"] = prompt_tail
    return case | {"expected": parse(text, finish, prompt_tail)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    rng = random.Random(SEED)
    rows = [row(*case) for case in HAND]
    for _ in range(150):
        text, expected = random_output(rng)
        rows.append(row(text))
        assert rows[-1]["expected"] == expected, (text, rows[-1]["expected"], expected)
        if rng.random() < 0.4:
            rows.append(row(text[: rng.randint(0, len(text))], "length"))
        if rng.random() < 0.2:
            rows.append(row(text[: rng.randint(0, len(text))]))
    for _ in range(120):
        tail = rng.choice(["", "", "<|turn>model\n", "<|channel>thought\n", "<|channel>", "<|channel>thought"])
        rows.append(row(random_soup(rng), rng.choice(["stop", "length"]), tail))
    args.out.mkdir(parents=True, exist_ok=True)
    with open(args.out / "gemma4.jsonl", "w", encoding="utf-8", newline="\n") as file:
        for case in rows:
            file.write(json.dumps(case, ensure_ascii=False) + "\n")
    provenance.write(args.out, __file__, [], SEED)
    print(len(rows), "outputs,", sum(bool(r["expected"]["tool_calls"]) for r in rows), "with calls,",
          sum(bool(r["expected"]["broken_calls"]) for r in rows), "with broken ones")  # fmt: skip


if __name__ == "__main__":
    main()
