"""JSON lines in and out: parse, template, tokenize."""
import json
import subprocess
import tempfile
import unittest

import mini_tokenizer
from driver import BINARY, SOURCE, run


class Parse(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = mini_tokenizer.write(cls.folder.name)
        lines = (SOURCE / "tests/golden/output/gemma4.jsonl").read_text().splitlines()
        cls.rows = [json.loads(line) for line in lines]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def parse(self, objects, *options):
        code, out, err = run("parse", self.model, *options, stdin="".join(json.dumps(o) + "\n" for o in objects))
        self.assertEqual((code, err), (0, ""))
        return [json.loads(line) for line in out.splitlines()]

    def expected(self, row):
        e = row["expected"]
        calls = [{"name": c["name"], "arguments": json.loads(c["arguments"])} for c in e["tool_calls"]]
        return (e["reasoning"] or None, None if calls and not e["content"] else e["content"], calls, e["finish_reason"],
                e["labels"], e["broken_calls"], e["after_end"])

    def got(self, answer):
        return (answer["reasoning"], answer["content"], answer["tool_calls"], answer["finish_reason"],
                answer.get("labels", []), [b["text"] for b in answer.get("broken_calls", [])], answer.get("after_end", ""))

    def test_goldens_whole_and_in_pieces(self):
        import jsonschema
        schema = json.loads((SOURCE / "docs/schemas/parse.schema.json").read_text())
        for options in [[], ["--stream", 1], ["--stream", 3], ["--stream", 10**9]]:
            answers = self.parse([{k: v for k, v in row.items() if k != "expected"} for row in self.rows], *options)
            self.assertEqual(len(answers), len(self.rows))
            for row, answer in zip(self.rows, answers):
                self.assertEqual(self.got(answer), self.expected(row), f"{options} {row['text']!r}")
                jsonschema.validate(answer, schema)

    def test_goldens_as_ids(self):
        lines = "".join(json.dumps({"text": row["text"], "special": True}) + "\n" for row in self.rows)
        code, out, err = run("tokenize", self.model, "--jsonl", stdin=lines)
        self.assertEqual(code, 0, err)
        ids = [json.loads(line)["ids"] for line in out.splitlines()]
        with_ids = [{**{k: v for k, v in row.items() if k not in ("text", "expected")}, "ids": i}
                    for row, i in zip(self.rows, ids)]
        for row, answer in zip(self.rows, self.parse(with_ids)):
            self.assertEqual(self.got(answer), self.expected(row), row["text"])

    def test_spelled_markers_are_text_among_ids(self):
        text = "<|channel>thought\nx\n<channel|><|tool_call>call:f{}<tool_call|>"
        _, out, _ = run("tokenize", self.model, "--jsonl", stdin=json.dumps({"text": text, "special": False}) + "\n")
        answer = self.parse([{"ids": json.loads(out)["ids"]}])[0]
        self.assertEqual((answer["content"], answer["tool_calls"]), (text, []))

    def test_numbers_keep_their_spelling(self):
        text = "<|tool_call>call:f{a:1e+20,b:2.0,c:12345678901234567890123}<tool_call|>"
        _, out, _ = run("parse", self.model, stdin=json.dumps({"text": text}) + "\n")
        self.assertIn('"arguments":{"a":1e+20,"b":2.0,"c":12345678901234567890123}', out)

    def test_arguments_are_checked_where_tools_are_given(self):
        tools = [{"type": "function", "function": {"name": "f", "parameters": {
            "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}}]
        texts = ["<|tool_call>call:f{n:3}<tool_call|>", "<|tool_call>call:f{n:x,m:1}<tool_call|>", "<|tool_call>call:g{}<tool_call|>"]
        faults = [a["tool_calls"][0]["faults"] for a in self.parse([{"text": t, "tools": tools} for t in texts])]
        self.assertEqual(faults[0], [])
        self.assertEqual(len(faults[1]), 2)
        self.assertIn("'g'", faults[2][0])
        self.assertNotIn("faults", self.parse([{"text": texts[0], "tools": None}])[0]["tool_calls"][0])

    def test_a_line_is_answered_before_the_next(self):
        process = subprocess.Popen([BINARY, "parse", self.model], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for text in ["one", "two"]:
            process.stdin.write(json.dumps({"text": text}) + "\n")
            process.stdin.flush()
            self.assertEqual(json.loads(process.stdout.readline())["content"], text)
        process.stdin.write(json.dumps({"text": "three"}))  # no newline at the end
        process.stdin.close()
        self.assertEqual(json.loads(process.stdout.read())["content"], "three")
        process.stdout.close()
        self.assertEqual(process.wait(), 0)

    def test_bad_lines_are_named(self):
        for line, word in [("{", "line 2"), ("[]", "object"), ("{}", "neither"), ('{"text": "a", "ids": [1]}', "both"),
                           ('{"text": 3}', "text"), ('{"ids": "3"}', "ids"), ('{"ids": [-1]}', "-1"), ('{"ids": [99999]}', "99999"),
                           ('{"ids": [1.5]}', "1.5"), ('{"text": "a", "finish": "end"}', "finish"), ('{"text": "a", "tools": {}}', "tools"),
                           ('{"text": "a", "tools": [{}]}', "tools"), ('{"text": "a", "prompt_tail": 1}', "prompt_tail"),
                           ('{"text": "a", "finsh": "length"}', '("finish"?)')]:
            code, out, err = run("parse", self.model, stdin='{"text": "good"}\n' + line + "\n")
            self.assertEqual((code, len(out.splitlines())), (3, 1), f"{line}: {err}")
            self.assertIn("line 2", err)
            self.assertIn(word, err)
        self.assertEqual(run("parse", self.model, "--stream", 0)[0], 2)
        self.assertEqual(run("parse", self.model, "-f", "/nonexistent")[0], 3)


class JsonLines(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.model = mini_tokenizer.write(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def test_the_same_mistake_has_the_same_code(self):
        good = {"template": '{"messages": [{"role": "user", "content": "a"}]}', "tokenize": '{"text": "a"}',
                "parse": '{"text": "a"}', "decode": '{"ids": [40]}'}
        for name, line in good.items():
            args = {"tokenize": ["tokenize", self.model, "--jsonl"],
                    "decode": ["tokenize", self.model, "--decode"]}.get(name, [name, self.model])
            object_ = json.loads(line)
            for bad in ['{"text":', "[]", "{}", json.dumps({**object_, "bso": False}), json.dumps({key: {} for key in object_})]:
                got, out, err = run(*args, stdin=bad + "\n")
                self.assertEqual((got, out), (3, ""), f"{name} {bad}: {err}")
                self.assertIn("line 1: ", err)
            keys = {"template": ["messages", "add_generation_prompt"], "tokenize": ["text", "special", "bos"],
                    "decode": ["ids", "skip_special"], "parse": ["text", "ids", "prompt_tail", "finish", "tools"]}[name]
            _, _, err = run(*args, stdin="3")
            for key in keys:
                self.assertIn(key, err)
            if name != "template":  # needs a template, which this model has not
                self.assertEqual(run(*args, stdin=line)[0], 0)

    def test_a_key_that_is_there_twice_is_refused(self):
        for args, line in [(["tokenize", "--jsonl"], '{"text": "a", "text": "b"}'), (["tokenize", "--decode"], '{"ids": [40], "ids": [41]}'),
                           (["parse"], '{"text": "a", "\\u0074ext": "b"}'), (["parse"], '{"text": "a", "tools": [{"name": "f", "name": "g"}]}')]:
            code, out, err = run(args[0], self.model, *args[1:], stdin=line)
            self.assertIn(code, (2, 3), err)
            self.assertEqual(out, "")
            self.assertRegex(err, 'line 1: "(text|ids|name)": expected once in an object, got twice')

    def test_special_counts_for_lines_that_do_not_say(self):
        turn = mini_tokenizer.SPECIAL.index("<|turn>")
        lines = '{"text": "<|turn>"}\n{"text": "<|turn>", "special": false}\n{"text": "<|turn>", "special": true}\n'
        for option, wanted in [([], [False, False, True]), (["--special"], [True, False, True])]:
            _, out, err = run("tokenize", self.model, "--jsonl", *option, stdin=lines)
            self.assertEqual([json.loads(line)["ids"] == [turn] for line in out.splitlines()], wanted, err)
        code, _, err = run("tokenize", self.model, "--decode", "--special", stdin='{"ids": [40]}')
        self.assertEqual(code, 2, err)
        self.assertIn("--special", err)
