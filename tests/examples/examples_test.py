"""The examples on a tiny model of random weights: examples_test.py MARKBASE FOLDER_OF_EXAMPLES."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

MARKBASE, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
TEXTS = ["Once upon a time", "The sea is", "Two and two make", "A cat", "In the morning", "The moon",
         "Nobody knew that", "Rain"]  # of many_requests


def run(program, *args):
    done = subprocess.run([program, *map(str, args)], capture_output=True, timeout=600)
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = pathlib.Path(cls.folder.name, "tiny.gguf")
        code, _, err = run(MARKBASE, "synth", "tiny-e2b", cls.model, "--to", "gguf-q4_0")
        assert code == 0, err

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def example(self, name, *args):
        code, out, err = run(FOLDER / name, self.model, *args)
        self.assertEqual(code, 0, f"{name}: {err}")
        return out, err

    def asked(self, text, num_tokens, *options):
        """What the command line answers."""
        code, out, err = run(MARKBASE, "run", self.model, "--raw", "-p", text, "-n", num_tokens, "--json", *options)
        self.assertEqual(code, 0, err)
        return json.loads(out)

    def test_one_request_says_what_the_command_line_says(self):
        expected = self.asked("Hello", 20, "--temperature", 0)["text"]
        self.assertTrue(expected)
        for name in ("one_request", "c_api"):
            out, err = self.example(name, "Hello")
            self.assertEqual(out, expected.encode() + b"\n", name)
            self.assertRegex(err, r"gemma4.* on cpu", name)
            self.assertRegex(err, r"\d+ tokens, [\d.]+ a second; it ended with \"(length|stop)\"", name)

    def test_many_requests(self):
        out, _ = self.example("many_requests")
        found = re.findall(r"^\[(\d)\] (\d+) tokens \((stop|length)\): (.*?)(?=\n\[\d\] \d+ tokens \(|\n\Z)",
                           out.decode(), re.MULTILINE | re.DOTALL)
        self.assertEqual(sorted(int(row[0]) for row in found), list(range(8)), out)
        for idx, num_tokens, reason, text in found:
            expected = self.asked(TEXTS[int(idx)], 8 * (8 - int(idx)), "--temperature", 0)
            self.assertEqual((int(num_tokens), reason), (len(expected["ids"]), expected["finish_reason"]))
            self.assertEqual(text, TEXTS[int(idx)] + expected["text"])

    def test_streaming(self):
        out, err = self.example("streaming", "Hello")
        self.assertGreater(len(out), 1)
        self.assertEqual(self.example("streaming", "Hello")[0], out)  # the seed is fixed
        self.assertRegex(err, r"first token after [\d.]+ ms")

    def test_cancel(self):
        # The whole answer would be as long as the context, 512 tokens less the prompt.
        out, _ = self.example("cancel")
        rows = re.findall(r"^(.+): (\w+) after (\d+) tokens$", out.decode(), re.MULTILINE)
        self.assertEqual([row[0] for row in rows], ["cancel()", "callback", "timeout"])
        self.assertEqual([row[1] for row in rows], ["cancelled", "cancelled", "timeout"])
        self.assertEqual(int(rows[1][2]), 5)
        for row in rows:
            self.assertLess(int(row[2]), 490)

    def test_embed(self):
        question = "Where is it?"
        out, _ = self.example("embed", question, "Here it is.", question, "Bread")
        lines = out.decode().splitlines()
        rows = [re.fullmatch(r" *(-?\d\.\d{3})  (.*)", line) for line in lines[1:]]
        self.assertEqual((lines[0], len(rows)), (question, 3))
        cosines = [float(row[1]) for row in rows]
        self.assertEqual((rows[0][2], cosines[0]), (question, 1.0))  # nothing is nearer to a text than itself
        self.assertEqual(cosines, sorted(cosines, reverse=True))
        self.assertTrue(all(-1 <= cosine < 1 for cosine in cosines[1:]), out)

    def test_a_model_that_is_not_there(self):
        for name in ("one_request", "many_requests", "streaming", "cancel", "embed", "c_api"):
            code, out, err = run(FOLDER / name, "no-such-model.gguf")
            self.assertEqual((code, out), (1, b""), name)
            self.assertIn("no-such-model.gguf", err)
            self.assertEqual(run(FOLDER / name)[0], 2, name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
