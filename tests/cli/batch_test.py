"""batch: many requests from JSON lines, interrupted and gone on with."""
import fcntl
import json
import os
import pathlib
import random
import re
import resource
import select
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import scripted_model
from driver import BINARY, SOURCE, TINY, run, wait_for_handler, Terminal

TEMPLATE = ("{{ bos_token }}{% for m in messages %}<|turn>{{ m['role'] }}\n{{ m['content'] }}<turn|>\n{% endfor %}"
            "{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}<|turn>model\n{% endif %}")
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {
    "type": "object", "properties": {"n": {"type": "number", "minimum": 1.50}}, "required": ["n"]}}}]


def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


def without_timings(line):
    kept = {k: v for k, v in line.items() if k != "timings"}
    if "answers" in kept:
        kept["answers"] = [{k: v for k, v in a.items() if k != "timings"} for a in kept["answers"]]
    return json.dumps(kept, sort_keys=True)


def schema(name):
    return json.loads((SOURCE / f"docs/schemas/{name}.schema.json").read_text())


def overflowing_keys(model):
    """Weights that are numbers, and keys that do not fit an F16 cache."""
    path = pathlib.Path(model, "model.safetensors")
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[:8], "little")
    for name, tensor in json.loads(data[8:8 + size]).items():
        if name.endswith("k_norm.weight"):
            begin, end = (8 + size + offset for offset in tensor["data_offsets"])
            data[begin:end] = b"\x61\x7f" * ((end - begin) // 2)  # 3e38 in BF16
    path.write_bytes(data)


class WithSynth(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.models = tempfile.TemporaryDirectory()
        cls.model = f"{cls.models.name}/tiny.gguf"
        code, _, err = run("synth", "tiny-e2b", cls.model, "--to", "gguf-q8_0")
        assert code == 0, err
        cls.small = ["--ctx", "512", "-q"]

    @classmethod
    def tearDownClass(cls):
        cls.models.cleanup()

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.folder.name, "out.jsonl")

    def tearDown(self):
        self.folder.cleanup()

    def batch(self, requests, *options, model=None, code=0):
        text = "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in requests)
        got, out, err = run("batch", model or self.model, *self.small, *options, stdin=text)
        if code is not None:
            self.assertEqual(got, code, err)
        return out, err


class Batch(WithSynth):
    REQUESTS = [
        {"id": "greedy", "prompt": "once upon a time", "raw": True, "temperature": 0, "max_tokens": 12, "ignore_eos": True, "seed": 0},
        {"id": "drawn", "prompt": "once upon a time", "raw": True, "seed": 7, "max_tokens": 12, "temperature": 1.3},
        {"id": 3, "ids": [2, 40, 41, 42], "seed": 1, "max_tokens": 9, "top_k": 5, "top_p": 0.8, "ignore_eos": True},
        {"ids": [2, 99], "seed": 2, "max_tokens": 20, "min_p": 0.02, "repetition_penalty": 1.2},
        {"id": "empty", "prompt": "", "raw": True, "seed": 3, "max_tokens": 5},
        {"id": "none", "prompt": "a", "raw": True, "seed": 3, "max_tokens": 0},
        {"id": "ünï", "prompt": "é € 😀", "raw": True, "special": True, "seed": 3, "max_tokens": 5, "n": None},
    ]

    def run_alone(self, request, model=None, extra=()):
        options = []
        for key, value in request.items():
            option = {"prompt": "-p", "max_tokens": "-n", "enable_thinking": "--think"}.get(key, "--" + key.replace("_", "-"))
            if key == "id" or value is None:
                continue
            if value is True:
                options.append(option)
            elif key == "ids":
                options += [option, ",".join(map(str, value))]
            else:
                for item in value if isinstance(value, list) else [value]:
                    options += [option, item]
        code, out, err = run("run", model or self.model, *self.small, *options, "--json", *extra)
        self.assertEqual(code, 0, err)
        return json.loads(out)

    def assert_same(self, answer, alone):
        for key in ["text", "ids", "finish_reason", "reasoning", "tool_calls", "seed"]:
            self.assertEqual(answer[key], alone[key], f"{answer['id']} {key}")

    def test_answers_are_those_of_run(self):
        import jsonschema
        for request in self.REQUESTS[:-1]:
            jsonschema.validate(request, schema("batch_request"))
        for options in [[], ["--max-sequences", 1], ["--max-sequences", 2, "--max-queue", 0]]:
            out, _ = self.batch(self.REQUESTS, *options)
            answers = {a["id"]: a for a in lines_of(out)}
            self.assertEqual(len(answers), len(self.REQUESTS))
            for number, request in enumerate(self.REQUESTS, 1):
                answer = answers[request.get("id", number)]
                jsonschema.validate(answer, schema("batch"))
                self.assertEqual(answer["line"], number)
                self.assert_same(answer, self.run_alone(request))

    def test_stop_strings(self):
        alone = self.run_alone(self.REQUESTS[0])
        self.assertGreater(len(alone["text"]), 4)
        stop = alone["text"][3:5]
        requests = [{**self.REQUESTS[0], "id": i, "stop": s} for i, s in enumerate([stop, [stop], [], ["nowhere", stop]])]
        for answer in lines_of(self.batch(requests, "--stop", "never said")[0]):
            expected = alone["text"] if answer["id"] == 2 else alone["text"][:alone["text"].index(stop)]
            self.assertEqual(answer["text"], expected)

    def test_several_answers_and_log_probabilities(self):
        import jsonschema
        one = {"ids": [2, 40, 41], "seed": 9, "max_tokens": 8, "ignore_eos": True}
        out, _ = self.batch([{**one, "id": "three", "n": 3, "top_logprobs": 4, "priority": 1}, {**one, "id": "one", "logprobs": True},
                             {**one, "id": "none", "logprobs": False}])
        answers = {a["id"]: a for a in lines_of(out)}
        for answer in answers.values():
            jsonschema.validate(answer, schema("batch"))
        alone = self.run_alone(one)
        three = answers["three"]["answers"]
        self.assertEqual([a["index"] for a in three], [0, 1, 2])
        self.assertEqual([three[0]["ids"], answers["one"]["ids"], answers["none"]["ids"]], [alone["ids"]] * 3)
        self.assertEqual(len({tuple(a["ids"]) for a in three}), 3)
        self.assertNotIn("logprobs", answers["none"])
        for answer, top in [(a, 4) for a in three] + [(answers["one"], 0)]:
            self.assertEqual([p["id"] for p in answer["logprobs"]], answer["ids"])
            for place in answer["logprobs"]:
                self.assertEqual(len(place["top"]), top)
                values = [t["logprob"] for t in place["top"]]
                self.assertEqual(values, sorted(values, reverse=True))
                self.assertLessEqual(place["logprob"], max(values, default=0))
        self.assertEqual([p["logprob"] for p in three[0]["logprobs"]], [p["logprob"] for p in answers["one"]["logprobs"]])

    def test_common_beginnings_are_computed_once(self):
        requests = [{"id": i, "ids": [2] + [50] * 200 + [40 + i], "max_tokens": 2, "ignore_eos": True, "temperature": 0} for i in range(6)]
        out, _ = self.batch(requests, "--out", self.out, "--json", "--max-sequences", 1)
        summary = json.loads(out)
        timings = [a["timings"] for a in lines_of(self.out.read_text())]
        self.assertEqual(summary["cached_tokens"], sum(t["cached_tokens"] for t in timings))
        self.assertGreater(summary["cached_tokens"], 5 * 128)

    def test_options_are_for_lines_that_do_not_say(self):
        requests = [{"id": "given", "prompt": "a b c"}, {"id": "own", "prompt": "a b c", "seed": 8, "max_tokens": 3, "raw": False}]
        out, _ = self.batch(requests, "--raw", "--seed", 5, "-n", 6, "--top-k", 7, "--ignore-eos", "--temperature", 2)
        answers = {a["id"]: a for a in lines_of(out)}
        common = {"prompt": "a b c", "top_k": 7, "ignore_eos": True, "temperature": 2}
        self.assert_same(answers["given"], self.run_alone({**common, "raw": True, "seed": 5, "max_tokens": 6}))
        self.assert_same(answers["own"], self.run_alone({**common, "seed": 8, "max_tokens": 3}))

    def test_bad_lines_are_named_and_the_rest_is_done(self):
        import jsonschema
        good = {"prompt": "a", "raw": True, "max_tokens": 2, "seed": 1}
        bad = [("{", "line"), ("[1]", "object"), ('"x"', "object"), ({"raw": True}, "none"), ({**good, "ids": [1]}, "several"),
               ({**good, "temprature": 1}, '("temperature"?)'), ({**good, "temperature": "hot"}, '"temperature": expected a number'),
               ({**good, "temperature": -1}, '"temperature"'), ({**good, "top_k": 1.5}, '"top_k"'), ({**good, "top_k": -1}, '"top_k"'),
               ({**good, "top_p": 0}, '"top_p"'), ({**good, "min_p": 1.1}, '"min_p"'), ({**good, "seed": -1}, '"seed"'),
               ({**good, "repetition_penalty": 0}, '"repetition_penalty"'), ({**good, "max_tokens": -1}, '"max_tokens"'),
               ({**good, "stop": ""}, '"stop"'), ({**good, "stop": [1]}, '"stop"'), ({**good, "ignore_eos": 1}, '"ignore_eos"'),
               ({**good, "n": 0}, '"n"'), ({**good, "n": 65}, '"n"'), ({**good, "top_logprobs": 21}, '"top_logprobs"'), ({**good, "top_logprobs": -1}, '"top_logprobs"'),
               ({**good, "logprobs": False, "top_logprobs": 2}, '"top_logprobs"'), ({**good, "priority": 1e99}, '"priority"'),
               ({**good, "id": 1.5}, '"id"'), ({**good, "id": [1]}, '"id"'), ({"ids": [2, -1]}, '"ids"'),
               ({"ids": [2, 10**6]}, '"ids"'), ({"ids": []}, '"ids"'), ({"ids": [2] * 600}, "512"),
               ({"messages": []}, '"messages"'), ({"messages": [{"role": "king", "content": "a"}]}, "king"), ({"messages": [{"content": "a"}]}, '"role"'),
               ({"messages": [{"role": "user"}]}, "content"), ({"messages": [{"role": "user", "content": "a", "nam": 1}]}, "nam"),
               ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "image"),
               ({"messages": [{"role": "user", "content": "a"}], "raw": True}, '"raw"'), ({"ids": [2], "system": "x"}, '"system"'),
               ({**good, "system": "x"}, '"system"'), ({"ids": [2], "tools": []}, '"tools"'),
               ('{"prompt": "\\ud800"}', "line"), ('{"prompt": "a", "seed": 18446744073709551616}', '"seed"'), ("[" * 300, "line"),
               ('{"prompt": "a", "seed": 1, "seed": 2}', '"seed": expected once'), ('{"id": "x", "id": "y", "prompt": "a"}', '"id"'),
               ('{"messages": [{"role": "user", "content": "a", "content": "b"}]}', '"content"'), ('{"ids": [2], "\\u0069ds": [3]}', '"ids"'),
               ('{"ids": [2]}\0{', "NUL")]
        requests = [good]
        for line, _ in bad:
            requests += [line, good]
        out, err = self.batch(requests, code=1)
        answers = {a["line"]: a for a in lines_of(out)}
        self.assertEqual(len(answers), len(requests))
        for number, answer in answers.items():
            jsonschema.validate(answer, schema("batch"))
            if number % 2 == 1:
                self.assertEqual(answer["text"], answers[1]["text"])
                continue
            line, word = bad[number // 2 - 1]
            self.assertIn(word, answer["error"]["message"], line)
            self.assertIn(f"line {number}: {answer['error']['message']}", err)

    def test_a_line_with_a_repeated_key_keeps_its_id(self):
        lines = ['{"id": "x", "ids": [2], "seed": 1, "seed": 2}', '{"id": "y", "messages": [{"role": "user", "content": "a", "content": "b"}]}',
                 '{"id": "z", "messages": [{"id": 1, "id": 2}]}', '{"id": "v", "id": "w", "ids": [2]}', '{"ids": [2], "\\u0069d": "u", "id": "v"}',
                 '{"ids": [2], "ids": [3]}']
        out, _ = self.batch(lines, code=1)
        self.assertEqual([(a["line"], a["id"]) for a in lines_of(out)], [(1, "x"), (2, "y"), (3, "z"), (4, None), (5, None), (6, 6)])
        for answer in lines_of(out):
            self.assertIn("expected once", answer["error"]["message"])

    def test_ids_are_unique(self):
        good = {"prompt": "a", "raw": True, "max_tokens": 2, "seed": 1}
        out, err = self.batch([{**good, "id": "x"}, {**good, "id": "x"}, {**good, "id": 4}, good, {**good, "id": "4"}], code=1)
        failed = {a["line"]: a["error"]["message"] for a in lines_of(out) if "error" in a}
        self.assertEqual(sorted(failed), [2, 4])
        self.assertIn("line 1", failed[2])
        self.assertIn("line 3", failed[4])

    def test_an_answer_comes_before_the_next_line(self):
        process = subprocess.Popen([BINARY, "batch", self.model, *self.small], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for i in range(3):
            process.stdin.write(json.dumps({"id": i, "ids": [2, 40 + i], "max_tokens": 2}) + "\n")
            process.stdin.flush()
            self.assertEqual(json.loads(process.stdout.readline())["id"], i)
        process.stdin.write('\n  \n{"ids": [2], "max_tokens": 1}')  # no newline at the end
        process.stdin.close()
        self.assertEqual(json.loads(process.stdout.read())["id"], 6)
        process.stdout.close()
        self.assertEqual(process.wait(), 0)

    def test_input_is_read_as_there_is_room(self):
        process = subprocess.Popen([BINARY, "batch", self.model, "-q", "--max-sequences", "1", "--out", self.out], stdin=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        wait_for_handler(process.pid, signal.SIGINT)
        line = json.dumps({"ids": [2] * 400, "ignore_eos": True}).encode() + b"\n"  # up to the context, 512
        data = line * 400
        fd = process.stdin.fileno()
        os.set_blocking(fd, False)
        taken, quiet = 0, 0
        while taken < len(data) and quiet < 10:  # a second in which nothing was taken
            try:
                taken += os.write(fd, data[taken:taken + 65536])
                quiet = 0
            except BlockingIOError:
                quiet += 1
                time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
        self.assertEqual(process.returncode, 130, err)
        self.assertEqual(err, b"markbase: interrupted\n")
        self.assertLess(taken, len(data))
        # Four in the engine, the pipe, and what the reader had of it.
        ahead = taken - len(line) * self.out.read_bytes().count(b"\n")
        self.assertLess(ahead, 6 * len(line) + 4 * 65536)

    def test_failing_output(self):
        requests = [{"id": i, "ids": [2, i + 40], "max_tokens": 2} for i in range(50)]
        _, err = self.batch(requests, "--out", "/dev/full", code=1)
        self.assertIn("/dev/full", err)
        _, err = self.batch(requests, "--out", "/nonexistent/x", code=1)
        self.assertIn("/nonexistent/x", err)
        for args, word in [(["--json"], "--out"), (["--max-sequences", 0], "--max-sequences"), (["--top-p", 0], "--top-p"),
                           (["-f", "/nonexistent"], "/nonexistent"), (["--out", self.model], "--out"),
                           (["--tool-exec", "x"], "--tool-exec")]:
            code, out, err = run("batch", self.model, *self.small, *args)
            self.assertIn(code, (2, 3), err)
            self.assertIn(word, err)
            self.assertEqual(out, "")

    def test_what_cannot_be_written_is_not_counted(self):
        for requests, count in [([{"id": i, "ids": [2, i + 40], "max_tokens": 2} for i in range(50)], "answered"), (["{"] * 50, "failed")]:
            self.out.unlink(missing_ok=True)
            text = "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in requests)
            done = subprocess.run([BINARY, "batch", self.model, *self.small, "--json", "--out", self.out], input=text.encode(),
                                  capture_output=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)))
            self.assertEqual(done.returncode, 1, done.stderr)
            summary, written = json.loads(done.stdout), self.out.read_bytes().count(b"\n")
            self.assertTrue(0 < written < 50, written)
            self.assertEqual((summary[count], summary["requests"]), (written, written))

    def test_an_interrupt_while_nobody_reads(self):
        path = pathlib.Path(self.folder.name, "in.jsonl")
        path.write_text("".join(json.dumps({"ids": [2, 40 + i % 50], "max_tokens": 4}) + "\n" for i in range(300)))
        reader, writer = os.pipe()
        fcntl.fcntl(writer, 1031, 4096)  # F_SETPIPE_SZ
        process = subprocess.Popen([BINARY, "batch", self.model, *self.small, "-f", path], stdout=writer, stderr=subprocess.PIPE)
        os.close(writer)
        self.addCleanup(process.kill)
        wait_for_handler(process.pid, signal.SIGINT)
        self.assertTrue(select.select([reader], [], [], 120)[0])  # the first line has filled the pipe
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 130, err)
        self.assertIn(b"interrupted", err)
        with open(reader, "rb") as file:
            self.assertLess(file.read().count(b"\n"), 100)

    def test_summary(self):
        import jsonschema
        requests = [{"id": i, "ids": [2, i + 40], "max_tokens": 3, "ignore_eos": True} for i in range(5)] + ["{"]
        out, _ = self.batch(requests, "--out", self.out, "--json", code=1)
        summary = json.loads(out)
        jsonschema.validate(summary, schema("batch_summary"))
        self.assertEqual([summary[k] for k in ["requests", "answered", "already_answered", "failed", "prompt_tokens", "generated_tokens"]],
                         [6, 5, 0, 1, 10, 15])
        out, _ = self.batch(requests, "--out", self.out, "--json", code=1)
        summary = json.loads(out)
        self.assertEqual([summary[k] for k in ["requests", "answered", "already_answered", "failed"]], [6, 0, 5, 1])

    def test_progress_on_a_terminal(self):
        path = pathlib.Path(self.folder.name, "in.jsonl")
        path.write_text("".join(json.dumps({"ids": [2, 3 + i], "ignore_eos": True, "max_tokens": 400}) + "\n" for i in range(40)))
        terminal = Terminal(["batch", self.model, "--ctx", "512", "-f", path, "--out", self.out])
        terminal.expect(" / 40 | ")
        terminal.expect("40 requests: 40 answered")
        self.assertEqual(terminal.wait(), 0)


    def test_input_that_is_written_to_ends_where_it_ended(self):
        path = pathlib.Path(self.folder.name, "in.jsonl")
        content = b'{"id": 1, "idz": [2]}\n{"id": 2, "idz": [2]}'
        path.write_bytes(content)
        # What is said about a line goes behind the lines.
        for args, stdin in [(["-f", path], "/dev/null"), ([], path)]:
            with open(stdin, "rb") as source, open(path, "ab") as log:
                done = subprocess.run([BINARY, "batch", self.model, *self.small, *args], stdin=source, stdout=subprocess.PIPE, stderr=log, timeout=60)
            self.assertEqual((done.returncode, len(lines_of(done.stdout.decode()))), (1, 2))
            self.assertEqual(path.read_bytes().count(b"markbase: line"), 2)
            path.write_bytes(content)
        for args, stdin in [(["-f", path], "/dev/null"), ([], path)]:
            with open(stdin, "rb") as source, open(path, "ab") as out:
                done = subprocess.run([BINARY, "batch", self.model, *self.small, *args], stdin=source, stdout=out, stderr=subprocess.PIPE, timeout=60)
            self.assertEqual((done.returncode, path.read_bytes()), (2, content))
            self.assertIn(b"stdout: expected a file that is not read", done.stderr)

    def test_sequences_are_as_many_as_an_engine_takes(self):
        self.assertIn("[1 - 1024]", run("batch", "--help")[1])
        code, _, err = run("batch", self.model, "--ctx", 16, "-q", "--max-sequences", 1024, stdin='{"ids": [2], "max_tokens": 1}')
        self.assertEqual(code, 0, err)
        self.batch([], "--max-sequences", 1025, code=2)

    def test_a_line_beyond_all_bounds(self):
        path = pathlib.Path(self.folder.name, "in.jsonl")
        first, last = [json.dumps({"id": i, "ids": [2], "max_tokens": 1, "seed": 1}).encode() for i in "ab"]
        with open(path, "wb") as file:
            file.write(first + b"\n")
            file.seek((257 << 20) + file.tell())  # a hole takes no room
            file.write(b"\n" + last)
        for _ in range(2):
            code, _, err = run("batch", self.model, *self.small, "-f", path, "--out", self.out)
            self.assertEqual(code, 1, err)
            answers = lines_of(self.out.read_text())
            self.assertEqual([(a["line"], a["id"], "error" in a) for a in sorted(answers, key=lambda a: a["line"])],
                             [(1, "a", False), (2, None, True), (3, "b", False)])
        self.assertIn("256 MiB", [a for a in answers if "error" in a][0]["error"]["message"])


class BatchResumed(WithSynth):
    REQUESTS = ([{"id": f"r{i}", "ids": [2, 40 + i, 50 + i], "seed": i, "max_tokens": 1 + i % 7, "ignore_eos": True} for i in range(12)] +
                ['{"prompt": ', {"id": "typo", "promt": "a"}, {"id": "r3", "ids": [2]}, {"id": "é", "prompt": "é", "raw": True, "seed": 5, "max_tokens": 3}])

    def whole(self):
        self.batch(self.REQUESTS, "--out", self.out, code=1)
        return self.out.read_bytes()

    def test_cut_anywhere(self):
        whole = self.whole()
        expected = sorted(map(without_timings, lines_of(whole.decode())))
        self.assertEqual(len(expected), len(self.REQUESTS))
        ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
        cuts = [0, 1, 5, 7, ends[0] - 1, ends[0], ends[0] + 1, ends[5], ends[8] + 3, len(whole) - 1, len(whole)]
        cuts += random.Random(1).sample(range(len(whole)), 6)
        for cut in cuts:
            self.out.write_bytes(whole[:cut])
            self.batch(self.REQUESTS, "--out", self.out, code=1)
            got = self.out.read_bytes()
            kept = max((e for e in ends if e <= cut), default=0)
            self.assertEqual(got[:kept], whole[:kept])
            self.assertEqual(sorted(map(without_timings, lines_of(got.decode()))), expected, cut)
        self.batch(self.REQUESTS, "--out", self.out, code=1)
        self.assertEqual(self.out.read_bytes(), got)

    def test_a_corrected_line_is_answered(self):
        whole = self.whole()
        requests = list(self.REQUESTS)
        requests[12] = {"id": "new", "ids": [2], "max_tokens": 2, "seed": 0}
        requests[13] = {"id": "typo", "prompt": "a", "raw": True, "max_tokens": 2, "seed": 0}
        self.batch(requests, "--out", self.out, code=1)
        got = self.out.read_bytes()
        self.assertEqual(got[:len(whole)], whole)
        self.assertEqual([(a["id"], a["line"]) for a in sorted(lines_of(got[len(whole):].decode()), key=lambda a: a["line"])],
                         [("new", 13), ("typo", 14)])

    def test_what_failed_on_the_way_is_not_tried_again(self):
        model = pathlib.Path(self.folder.name, "model")
        self.assertEqual(run("synth", "tiny-e2b", model, "--to", "hf-bf16", "-q")[0], 0)
        overflowing_keys(model)
        requests = [{"id": "a", "ids": [2, 50], "max_tokens": 4, "seed": 1}, {"id": "b", "ids": [2], "max_tokens": 4, "seed": 1}]
        _, err = self.batch(requests, "--out", self.out, model=model, code=1)
        whole = self.out.read_bytes()
        self.assertEqual(sorted((a["id"], a["error"]["code"]) for a in lines_of(whole.decode())), [("a", "failed"), ("b", "failed")], err)
        for _ in range(2):
            out, err = self.batch(requests, "--out", self.out, "--json", model=model, code=1)
            self.assertEqual(self.out.read_bytes(), whole)
            self.assertEqual([json.loads(out)[k] for k in ["requests", "answered", "failed", "prompt_tokens"]], [2, 0, 2, 0])
            self.assertIn("line 1: cannot be answered", err)
        # Without its error line it is tried again, as it is with another option.
        self.out.write_bytes(whole.splitlines(keepends=True)[0])
        self.batch(requests, "--out", self.out, model=model, code=1)
        self.assertEqual(sorted(map(without_timings, lines_of(self.out.read_text()))), sorted(map(without_timings, lines_of(whole.decode()))))
        self.batch(requests, "--out", self.out, "--kv", "f32", model=model, code=None)
        self.assertEqual(len(lines_of(self.out.read_text())), 4)

    def test_an_answer_beyond_all_bounds(self):
        request = {"id": 'a",', "ids": [2], "max_tokens": 1, "seed": 1, "ignore_eos": True}
        self.batch([request], "--out", self.out)
        line = self.out.read_bytes()
        at = line.index(b'"text":"') + len(b'"text":"')
        long = line[:at] + b"a" * (257 << 20) + line[at:]
        for content, kept, code in [(long, long, 0), (long[:-1], b"", 0), (long.replace(b'"line"', b'"lime"'), None, 3)]:
            self.out.write_bytes(content)
            out, err = self.batch([request], "--out", self.out, "--json", code=code)
            got = self.out.read_bytes()
            self.assertTrue(got == content if kept is None else got == long if kept else without_timings(json.loads(got)) == without_timings(json.loads(line)), err)

    def test_what_has_changed_is_refused(self):
        whole = self.whole()
        for change in [{"seed": 99}, {"max_tokens": 30}, {"ids": [2, 3]}, {"stop": "x"}, {"temperature": 0.5}, {"n": 2}, {"ignore_eos": False}]:
            requests = [dict(self.REQUESTS[0]), {**self.REQUESTS[1], **change}, {"id": "more", "ids": [2]}]
            _, err = self.batch(requests, "--out", self.out, code=2)
            self.assertIn('line 2: id "r1" is answered in', err)
            self.assertTrue(self.out.read_bytes().startswith(whole))
        for options in [["--top-k", 3], ["--kv", "f32"], ["--activations", "q8"]]:
            _, err = self.batch(self.REQUESTS, "--out", self.out, *options, code=2)
            self.assertIn("line 1: id", err)
        self.assertEqual(self.out.read_bytes(), whole)
        # What the answers do not depend on may change.
        self.batch(self.REQUESTS, "--out", self.out, "--threads", 1, "--prefill-chunk", 3, "--max-sequences", 2, code=1)
        self.assertEqual(self.out.read_bytes(), whole)

    def test_another_context_where_it_matters(self):
        import jsonschema
        base = {"ids": [2, 50], "seed": 1, "ignore_eos": True}
        for request, ended in [({**base, "max_tokens": 5}, {64: True, 128: True, 6: True, 5: False}), (base, {64: True, 128: False, 63: False}),
                               ({**base, "max_tokens": 63}, {64: True, 128: True, 63: False}), ({**base, "n": 2}, {64: True, 128: False})]:
            self.out.unlink(missing_ok=True)
            for context, same in ended.items():
                code, out, err = run("batch", self.model, "--ctx", context, "-q", "--out", self.out, stdin=json.dumps(request))
                self.assertEqual(code, 0 if same else 2, (request, context, err))
                if not same:
                    self.assertIn("is answered in", err)
            (answer,) = lines_of(self.out.read_text())
            jsonschema.validate(answer, schema("batch"))
            self.assertEqual(answer.get("context"), None if "max_tokens" in request else 64)

    def test_another_model_is_refused(self):
        here, elsewhere = [pathlib.Path(self.folder.name, name) for name in ["here", "elsewhere"]]
        self.assertEqual(run("synth", "tiny-e2b", here, "--to", "hf-bf16", "-q")[0], 0)
        requests = [{"id": "a", "ids": [2, 50], "max_tokens": 2, "seed": 1}, {"id": "b", "ids": [2], "max_tokens": 2, "seed": 1}]
        self.batch(requests, "--out", self.out, model=here)
        whole = self.out.read_bytes()
        # A copy under another name, and what is no part of the model.
        shutil.copytree(here, elsewhere)
        elsewhere.joinpath("README.md").write_text("notes")
        self.batch(requests, "--out", self.out, model=elsewhere)
        def flip(data):
            at = len(data) // 3 | 1  # the sign and exponent of a weight
            return data[:at] + bytes([data[at] ^ 0x80]) + data[at + 1:]
        changes = [("model.safetensors", flip), ("generation_config.json", lambda data: data + b" "), ("config.json", lambda data: data + b"\n"),
                   ("tokenizer.json", lambda data: data + b"\n"), ("chat_template.jinja", lambda data: b"{{ bos_token }}")]
        for name, change in changes:
            path = elsewhere.joinpath(name)
            before = path.read_bytes() if path.exists() else None
            path.write_bytes(change(before))
            _, err = self.batch(requests, "--out", self.out, model=elsewhere, code=2)
            self.assertIn("line 1: id", err, name)
            path.unlink() if before is None else path.write_bytes(before)
        self.batch(requests, "--out", self.out, model=elsewhere)
        gguf = pathlib.Path(self.folder.name, "tiny.gguf")
        self.batch(requests, "--out", f"{self.out}2")
        self.assertEqual(run("synth", "tiny-e2b", gguf, "--to", "gguf-q8_0", "-q", "--seed", 5)[0], 0)
        self.batch(requests, "--out", f"{self.out}2", model=gguf, code=2)  # of the same name
        self.assertEqual(self.out.read_bytes(), whole)

    def test_answers_beside_the_model(self):
        here = pathlib.Path(self.folder.name, "here")
        self.assertEqual(run("synth", "tiny-e2b", here, "--to", "hf-bf16", "-q")[0], 0)
        requests = [{"id": i, "ids": [2, 40 + i], "max_tokens": 2, "seed": 1} for i in range(4)]
        for name in ["answers.json", "answers.jinja", "answers.safetensors", "special_tokens_map.json"]:
            out = here / name
            self.batch(requests[:2], "--out", out, model=here)
            self.batch(requests[:3], "--out", out, model=here)
            here.joinpath("notes.json").write_text("{}")
            here.joinpath("old.safetensors").write_bytes(b"x")
            self.batch(requests, "--out", out, model=here)
            self.assertEqual([a["id"] for a in lines_of(out.read_text())].count(0), 1)
            self.assertEqual(sorted(a["id"] for a in lines_of(out.read_text())), [0, 1, 2, 3])
        # What is read, or would be.
        before = {path: path.read_bytes() for path in here.iterdir()}
        for name in ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                     "chat_template.json", "model.safetensors", "model.safetensors.index.json"]:
            _, err = self.batch(requests, "--out", here / name, model=here, code=2)
            self.assertIn("a file of the model", err)
        self.assertEqual({path: path.read_bytes() for path in here.iterdir()}, before)
        rows = here / "rows.npy"
        for _ in range(2):
            self.assertEqual(run("logits", here, "--ids", "2,3", "--out", rows, "-q")[0], 0)

    def test_shards_are_those_of_the_index(self):
        here = pathlib.Path(self.folder.name, "here")
        self.assertEqual(run("synth", "tiny-e2b", here, "--to", "hf-bf16", "-q")[0], 0)
        weights = here.joinpath("model.safetensors").rename(here / "a.safetensors").read_bytes()
        names = [name for name in json.loads(weights[8:8 + int.from_bytes(weights[:8], "little")]) if name != "__metadata__"]
        here.joinpath("model.safetensors.index.json").write_text(json.dumps({"weight_map": dict.fromkeys(names, "a.safetensors")}))
        request = [{"id": "a", "ids": [2, 50], "max_tokens": 2, "seed": 1}]
        self.batch(request, "--out", self.out, model=here)
        here.joinpath("model.safetensors").write_bytes(b"not read")
        self.batch(request, "--out", self.out, model=here)
        self.batch(request, "--out", here / "a.safetensors", model=here, code=2)
        at = len(weights) // 3 | 1
        here.joinpath("a.safetensors").write_bytes(weights[:at] + bytes([weights[at] ^ 0x80]) + weights[at + 1:])
        self.assertIn("is answered in", self.batch(request, "--out", self.out, model=here, code=2)[1])

    def test_another_version_may_answer_otherwise(self):
        request = [{"id": "a", "ids": [2, 50], "max_tokens": 2, "seed": 1}]
        self.batch(request, "--out", self.out)
        version = re.match(r"markbase (\S+) ", run("--version")[1]).group(1).encode()
        program = pathlib.Path(self.folder.name, "other")
        code = pathlib.Path(BINARY).read_bytes()
        program.write_bytes(code.replace(b"\0" + version + b"\0", b"\0" + b"9" * len(version) + b"\0"))
        program.chmod(0o755)
        done = subprocess.run([program, "batch", self.model, *self.small, "--out", self.out], input=json.dumps(request[0]).encode(),
                              capture_output=True)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(b"is answered in", done.stderr)

    def test_answers_of_other_lines_are_told(self):
        first, other = [[{"id": f"{name}{i}", "ids": [2, 40 + i], "max_tokens": 2, "seed": 1} for i in range(3)] for name in "ab"]
        def told(requests, *options):
            text = "".join(json.dumps(r) + "\n" for r in requests)
            code, _, err = run("batch", self.model, "--ctx", 512, "--out", self.out, *options, stdin=text)
            self.assertEqual(code, 0, err)
            return re.findall(r"\d+ answers? in .* of no line of this input", err)
        self.assertEqual(told(first), [])
        self.assertEqual(told(first), [])
        self.assertEqual(told(first[:2] + other), [f"1 answer in {self.out} is of no line of this input"])
        self.assertEqual(told(other), [f"3 answers in {self.out} are of no line of this input"])
        self.assertEqual(told(other, "-q"), [])
        self.assertEqual(told(first + other), [])
        self.assertEqual(len(lines_of(self.out.read_text())), 6)

    def test_other_files_stay_as_they_are(self):
        whole = self.whole()
        for content in [b"notes", b"notes\n", b"{}\n", b'{"id": 1, "text": "a"}\n', whole + b"{}\n", b"\n", b"\0" * 100,
                        whole[:-1] + b"x\n", whole + b"notes", b'{"id":1,"line":1,"request":"zz","finish_reason":"stop"}\n',
                        b'{"id": "chatcmpl-1", "precious": true}', b'{"id":"chatcmpl-1","object":"chat', b'{"id": "a', whole + b'{"id":"x","prompt":"a"}',
                        b'{"id":1,"line":1,"request":"00","text":"', b'{"id":1,"line":1,"request":"0123456789abcdef","text":"a"}x',
                        b'{"id":1,"line":1,"request":"0123456789abcdef","text":a', b'{"id":nul,"line":1', b'{"id":[1],"li', b'{"id":1,"line":-',
                        b'{"id":1,"line":1,"request":"0123456789abcdef","texts"', b'{"id":1,"line":1,"request":"0123456789ABCDEF"',
                        b'{"id":1,"line":1,"request":"0123456789abcdef0"', whole[:-1] + b"\0" * 40,
                        whole[:-1] + b"\0\n"]:
            self.out.write_bytes(content)
            _, err = self.batch(self.REQUESTS, "--out", self.out, code=3)
            self.assertIn("stays as it is", err)
            self.assertEqual(self.out.read_bytes(), content)

    def test_every_beginning_of_a_line_is_cut_off(self):
        requests = [{"id": 'q"\\u00e9\\\\ü', "ids": [2, 41], "seed": 1, "max_tokens": 2, "ignore_eos": True}, '{"id": ']
        for chosen, code in [(requests[:1], 0), (requests[1:], 1)]:
            self.out.unlink(missing_ok=True)
            self.batch(chosen, "--out", self.out, code=code)
            line = self.out.read_bytes()
            # No request: nothing is appended, what was begun goes.
            for cut in range(1, len(line), 1 if len(line) < 150 else 11):
                self.out.write_bytes(line[:cut])
                code, _, err = run("batch", self.model, "--ctx", "64", "-q", "--out", self.out)
                self.assertEqual((code, self.out.read_bytes()), (0, b""), (line[:cut], err))

    def test_the_input_is_no_output(self):
        path = pathlib.Path(self.folder.name, "in.jsonl")
        for content in [b'{"id": 1, "ids": [2], "max_tokens": 1}', b'{"id": 1, "ids": [2], "max_tokens": 1}\n', b""]:
            path.write_bytes(content)
            os.link(path, self.out)
            for out in [path, self.out]:
                with open(path, "rb") as file:
                    done = subprocess.run([BINARY, "batch", self.model, *self.small, "--out", out], stdin=file, capture_output=True)
                self.assertEqual((done.returncode, path.read_bytes()), (2, content), done.stderr)
                self.assertIn(b"--out", done.stderr)
            self.out.unlink()

    def test_a_file_has_one_writer(self):
        with open(self.out, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            _, err = self.batch(self.REQUESTS, "--out", self.out, code=1)
        self.assertIn("another batch", err)
        self.assertEqual(self.out.read_bytes(), b"")

    def test_interrupted(self):
        requests = [{"id": i, "ids": [2, 40 + i % 50], "seed": i, "max_tokens": 150, "ignore_eos": True} for i in range(120)]
        path = pathlib.Path(self.folder.name, "in.jsonl")
        path.write_text("".join(json.dumps(r) + "\n" for r in requests))
        args = ["batch", self.model, "--ctx", "512", "-f", path, "--out", self.out]
        interruptions = 0
        for wanted, number in [(3, signal.SIGINT), (20, signal.SIGTERM), (40, signal.SIGKILL)]:
            process = subprocess.Popen([BINARY, *map(str, args)], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
            while process.poll() is None and not (self.out.exists() and self.out.read_bytes().count(b"\n") >= wanted):
                pass
            process.send_signal(number)
            _, err = process.communicate()
            if process.returncode == 0:
                continue  # it was quicker than we
            interruptions += 1
            text = self.out.read_bytes()
            if number != signal.SIGKILL:
                self.assertEqual(process.returncode, 130, err)
                self.assertTrue(text.endswith(b"\n"))
                self.assertNotIn("cancelled", {a["finish_reason"] for a in lines_of(text.decode())})
        self.assertGreater(interruptions, 0)
        code, _, err = run(*args)
        self.assertEqual(code, 0, err)
        answers = lines_of(self.out.read_text())
        self.assertEqual(sorted(a["id"] for a in answers), list(range(120)))
        for answer in answers[::17]:
            request = requests[answer["id"]]
            _, out, err = run("run", self.model, *self.small, "--ids", ",".join(map(str, request["ids"])), "--seed", request["seed"],
                              "-n", 150, "--ignore-eos", "--json")
            self.assertEqual(json.loads(out)["ids"], answer["ids"], err)


class BatchChat(unittest.TestCase):
    def test_a_chat_with_tools(self):
        with tempfile.TemporaryDirectory() as folder:
            model = scripted_model.write(folder, {scripted_model.NEWLINE: ["<|tool_call>", "call:f{n:2.0}", "<tool_call|>", "<turn|>"]}, TEMPLATE)
            tools = pathlib.Path(folder, "tools.json")
            tools.write_text(json.dumps(TOOLS))
            requests = [{"id": "prompt", "prompt": "hi", "tools": TOOLS, "system": "be"},
                        {"id": "messages", "messages": [{"role": "system", "content": "be"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}],
                         "tools": TOOLS},
                        {"id": "no tools", "prompt": "hi", "tools": []}]
            text = "".join(json.dumps(r) + "\n" for r in requests)
            code, out, err = run("batch", model, "-q", "--temperature", 0, stdin=text)
            self.assertEqual(code, 0, err)
            answers = {a["id"]: a for a in lines_of(out)}
            _, alone, err = run("run", model, "-q", "--temperature", 0, "-p", "hi", "--system", "be", "--tools", tools, "--json")
            alone = json.loads(alone)
            self.assertEqual(alone["tool_calls"][0]["name"], "f", err)
            for key in ["text", "ids", "finish_reason", "reasoning", "tool_calls"]:
                self.assertEqual(answers["prompt"][key], alone[key])
                self.assertEqual(answers["messages"][key], alone[key])
            self.assertEqual(answers["prompt"]["timings"]["prompt_tokens"], answers["messages"]["timings"]["prompt_tokens"])
            self.assertIn('"n":2.0', out)
            self.assertNotIn("faults", answers["no tools"]["tool_calls"][0])
            code, out, err = run("batch", model, "-q", "--temperature", 0, "--tools", tools, "--system", "be",
                                 stdin='{"id": "prompt", "prompt": "hi"}\n{"ids": [2, 40], "max_tokens": 1}\n')
            self.assertEqual(code, 0, err)
            self.assertEqual({a["id"]: a for a in lines_of(out)}["prompt"]["ids"], alone["ids"])
            self.assertEqual({a["id"]: a for a in lines_of(out)}["prompt"]["request"], answers["prompt"]["request"])

    def write(self, folder, *said, template=TEMPLATE):
        return scripted_model.write(folder, {scripted_model.NEWLINE: [*said, "<turn|>"]}, template)

    def batch(self, model, lines, *options, code=0):
        text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        got, out, err = run("batch", model, "-q", "--temperature", 0, *options, stdin=text)
        if code is not None:
            self.assertEqual(got, code, err)
        return out, err

    def test_an_answer_is_taken_up_where_it_would_be_the_same(self):
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as elsewhere:
            model, out = self.write(folder, "one", "two", "three"), pathlib.Path(elsewhere, "out.jsonl")
            for n in [1, 2]:
                for stop, said in [([], "onetwothree"), (["three"], "onetwo")]:
                    def made(context, code=0, fresh=False):
                        if fresh:
                            out.unlink(missing_ok=True)
                        _, err = self.batch(model, [{"id": "a", "prompt": "hi", "seed": 1, "n": n, "stop": stop}], "--ctx", context, "--out", out, code=code)
                        (line,) = lines_of(out.read_text())
                        answer = line["answers"][0] if n > 1 else line
                        self.assertIn("is answered in" if code else "", err)
                        return answer["text"], answer["finish_reason"], line.get("context"), answer["timings"]
                    text, reason, context, timings = made(512, fresh=True)
                    self.assertEqual((text, reason, context), (said, "stop", None))
                    room = timings["prompt_tokens"] + timings["generated_tokens"]
                    self.assertEqual(timings["generated_tokens"], 3)
                    made(room)
                    made(room - 1, code=2)
                    self.assertEqual(made(room, fresh=True)[:3], (said, "stop", None))
                    made(512)
                    # Here the end of the turn has no room, and the stop string just has.
                    self.assertEqual(made(room - 1, fresh=True)[:3], (said, "stop" if stop else "length", room - 1))
                    made(room - 1)
                    made(room, code=2)

    def test_what_is_there_twice_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            model, tools = self.write(folder, "one"), pathlib.Path(folder, "tools.json")
            tools.write_text(json.dumps(TOOLS)[:-3] + ', "name": "g"}}]')
            _, err = self.batch(model, [], "--tools", tools, code=3)
            self.assertIn('--tools', err)
            self.assertIn('"name": expected once', err)
            call = {"id": "c", "function": {"name": "f", "arguments": '{"n": 1, "n": 2}'}}
            talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "1"}]
            out, _ = self.batch(model, [{"id": "a", "messages": talk}], code=1)
            self.assertIn("arguments of 'f': \"n\": expected once", lines_of(out)[0]["error"]["message"])

    def test_results_belong_to_calls(self):
        with tempfile.TemporaryDirectory() as folder:
            model = self.write(folder, "one", template=(SOURCE / "tests/golden/chat/gemma4-chat-template.jinja").read_text())
            calls = [{"id": name, "function": {"name": "f", "arguments": {}}} for name in "cd"]
            def answer(*ids):
                results = [{"role": "tool", "content": "1", "tool_call_id": i} for i in ids]
                out, _ = self.batch(model, [{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": calls}, *results],
                                             "max_tokens": 1}], code=None)
                return lines_of(out)[0].get("error", {}).get("message", "")
            for ids, word in [("cd", ""), ("dc", ""), ("c", ""), ("cz", 'result of the call "z"'), ("cc", 'second result of the call "c"')]:
                self.assertIn(word, answer(*ids))
                self.assertEqual(answer(*ids) == "", word == "", (ids, answer(*ids)))

    def test_a_system_message_without_a_template(self):
        code, _, err = run("batch", TINY, "-q", "--system", "x")
        self.assertEqual((code, err), (2, "markbase: --system: this model has no chat format\n"))
        with tempfile.TemporaryDirectory() as folder:
            model = self.write(folder, "one", template=None)
            user = {"role": "user", "content": "hi"}
            lines = [{"id": "prompt", "prompt": "hi", "max_tokens": 1}, {"id": "messages", "messages": [user], "max_tokens": 1},
                     {"id": "said", "messages": [{"role": "system", "content": "be"}, user], "max_tokens": 1}]
            tokens = [{a["id"]: a["timings"]["prompt_tokens"] for a in lines_of(self.batch(model, lines, *options)[0])}
                      for options in [[], ["--system", "be"]]]
            self.assertEqual(tokens[1], {**tokens[0], "messages": tokens[0]["said"]})
            self.assertNotEqual(tokens[0]["messages"], tokens[0]["said"])
