"""template: the forms in which messages come."""
import json
import pathlib
import tempfile
import unittest

import mini_tokenizer
import scripted_model
from driver import SOURCE, run

TEMPLATE = (SOURCE / "tests/golden/chat/gemma4-chat-template.jinja").read_text()


def conversation(arguments):
    return [{"role": "user", "content": "1+2?"},
            {"role": "assistant", "content": "", "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "add", "arguments": arguments}}]},
            {"role": "tool", "content": "3", "tool_call_id": "c"}]


class Template(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.directory.name)

    def tearDown(self):
        self.directory.cleanup()

    def model(self, template=None):
        """With a template of its own, or without: then the format of its family counts."""
        folder = self.folder / ("own" if template else "family")
        folder.mkdir(exist_ok=True)
        return scripted_model.write(folder, {}, template)

    def answer(self, request, model, code=0):
        text = request if isinstance(request, str) else json.dumps(request)
        got, out, err = run("template", model, stdin=text)
        self.assertEqual(got, code, err)
        return json.loads(out) if code == 0 else err

    def test_arguments_are_an_object_or_the_text_of_one(self):
        for template in [TEMPLATE, None]:
            model = self.model(template)
            lengths = []
            for arguments in [{"a": 1, "b": 2}, '{"a":1,"b":2}', ' {"b": 2,\n "a": 1} ']:
                request = {"messages": conversation(arguments)}
                answer = self.answer({**request, "add_generation_prompt": True}, model)
                self.assertIn("<|tool_call>call:add{a:1,b:2}<tool_call|>", answer["prompt"])
                _, out, err = run("batch", model, "-q", stdin=json.dumps({**request, "max_tokens": 1, "seed": 1}))
                self.assertEqual(json.loads(out)["timings"]["prompt_tokens"], len(answer["ids"]), err)
                lengths.append(len(answer["ids"]))
            self.assertEqual(len(set(lengths)), 1)

    def test_a_key_that_is_there_twice_is_refused(self):
        for template in [TEMPLATE, None]:
            written = json.dumps({"messages": conversation({"a": 1})})
            for request, where in [(json.dumps({"messages": conversation('{"a":1,"a":2}')}), "arguments of 'add': "),
                                   (written.replace('"a": 1', '"a": 1, "a": 2'), "")]:
                code, out, err = run("template", self.model(template), stdin=request)
                self.assertIn(code, (2, 3), err)
                self.assertEqual(out, "")
                self.assertIn(f'line 1: {where}"a": expected once in an object, got twice', err)

    def test_both_take_the_roles_that_the_format_has(self):
        for template in [TEMPLATE, None]:
            model = self.model(template)
            for role, code in [("system", 0), ("developer", 0), ("king", 3)]:
                request = {"messages": [{"role": role, "content": "Be kind."}, {"role": "user", "content": "Hi"}]}
                answer = self.answer({**request, "add_generation_prompt": True}, model, code)
                got, out, err = run("batch", model, "-q", stdin=json.dumps({**request, "max_tokens": 1, "seed": 1}))
                if code == 0:
                    self.assertEqual(json.loads(out)["timings"]["prompt_tokens"], len(answer["ids"]), err)
                    continue
                self.assertEqual(got, 1)
                for said in [answer, json.loads(out)["error"]["message"]]:
                    self.assertIn('role "king", expected one of system, developer, user, assistant, tool', said)

    def test_integers_keep_their_digits_in_both(self):
        model = self.model(TEMPLATE)
        number = "12345678901234567890123"
        arguments = '{"a": %s, "b": [{"c": -%s}, "]}"]}' % (number, number)
        messages = conversation("@")
        messages[1]["tool_calls"].insert(0, messages[1]["tool_calls"][0] | {"id": "before"})
        written = json.dumps(messages).replace('"@"', arguments)
        answer = self.answer('{"messages": %s, "add_generation_prompt": true}' % written, model)
        self.assertEqual(answer["prompt"].count('{a:%s,b:[{c:-%s},<|"|>]}<|"|>]}' % (number, number)), 2)
        _, out, err = run("batch", model, "-q", stdin='{"messages": %s, "max_tokens": 1, "seed": 1}' % written)
        self.assertEqual(json.loads(out)["timings"]["prompt_tokens"], len(answer["ids"]), err)

    def test_arguments_that_are_no_object_are_refused_as_batch_does(self):
        for template in [TEMPLATE, None]:
            model = self.model(template)
            for arguments, word in [("a=1", "not valid JSON"), ("", "not valid JSON"), ("[1]", "expected object, got array"),
                                    ("null", "expected object, got null"), ([1], "expected object, got array"),
                                    (1, "expected object, got number"), (True, "expected object, got boolean")]:
                request = {"messages": conversation(arguments)}
                err = self.answer(request, model, code=3)
                _, out, _ = run("batch", model, "-q", stdin=json.dumps(request))
                message = json.loads(out)["error"]["message"]
                self.assertIn(f"arguments of 'add': {word}" if arguments != "" else word, message)
                self.assertEqual(err, f"markbase: line 1: {message}\n")

    def test_keys_of_a_call_that_would_be_lost_are_refused(self):
        model = self.model(TEMPLATE)
        for place, name in [(lambda m: m[1]["tool_calls"][0], "nmae"), (lambda m: m[1]["tool_calls"][0]["function"], "argumetns")]:
            messages = conversation({})
            place(messages)[name] = 1
            self.assertRegex(self.answer({"messages": messages}, model, code=3), f"message 1: .*'{name}'")

    def test_one_document_over_any_number_of_lines(self):
        model = self.model(TEMPLATE)
        messages = conversation('{"a":1,"b":2}')
        wanted = self.answer({"messages": messages}, model)
        for text in [json.dumps(messages), json.dumps(messages, indent=2), json.dumps({"messages": messages}, indent=1),
                     "\n\n" + json.dumps(messages, indent="\t").replace("\n", "\r\n") + "\n\n"]:
            self.assertEqual(self.answer(text, model), wanted)
        got, out, err = run("template", model, stdin=f"{json.dumps(messages)}\n\n{json.dumps({'messages': messages})}\n")
        self.assertEqual((got, [json.loads(line) for line in out.splitlines()]), (0, [wanted] * 2), err)

    def test_the_fault_of_a_document_is_named(self):
        model = self.model(TEMPLATE)
        text = json.dumps({"messages": conversation({})}, indent=2)
        err = self.answer(text.replace('"messages"', '"mesages"'), model, code=3)
        self.assertIn("stdin, as one document: ", err)
        broken = text.replace('"content": "3",', '"content": "3"')
        err = self.answer(broken, model, code=3)
        # The byte is where the surplus key ends.
        self.assertIn(f"not valid JSON at byte {broken.index('tool_call_id') + len('tool_call_id') + 1}: ", err)
        for text in ["[]", '[{"role": "user", "content": "a"}], "tools": []', "3", '"a"']:
            self.assertIn("line 1: ", self.answer(text, model, code=3))

    def test_what_chat_saved_is_taken(self):
        model, saved = self.model(TEMPLATE), self.folder / "talk.json"
        code, _, err = run("chat", model, "-n", 1, "--seed", 1, "--system", "Be kind.", stdin=f"Hi\n/save {saved}\n")
        self.assertEqual(code, 0, err)
        prompt = self.answer(saved.read_text(), model)["prompt"]
        self.assertIn("Be kind.", prompt)
        self.assertIn("<|turn>user\nHi<turn|>", prompt)

    def test_what_is_no_request_is_told_the_keys(self):
        err = self.answer("3", mini_tokenizer.write(self.folder), code=3)
        for key in ["messages", "tools", "add_generation_prompt", "enable_thinking", "continue_final_message", "preserve_thinking"]:
            self.assertIn(key, err)
