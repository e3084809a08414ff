"""bench: requests that arrive over time."""
import json
import tempfile
import unittest

from driver import SOURCE, TINY, run


class BenchArrivals(unittest.TestCase):
    def short(self):
        """A model with a context of 512 tokens."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        code, _, err = run("synth", "tiny-e2b", f"{folder.name}/m.gguf", "--to", "gguf-q8_0")
        self.assertEqual(code, 0, err)
        return f"{folder.name}/m.gguf"

    def bench(self, *args, code=0, model=TINY):
        got, out, err = run("bench", model, "--threads", 2, *args, "--json")
        self.assertEqual(got, code, err)
        return json.loads(out) if code == 0 else err

    def test_open_and_closed(self):
        import jsonschema
        schema = json.loads((SOURCE / "docs/schemas/bench.schema.json").read_text())
        for rate in ["closed", "500"]:
            document = self.bench("--arrivals", 12, "--rate", rate, "--seed", 3, "-p", "5,40", "-n", 6, "-b", "1,4", "-r", 2)
            jsonschema.validate(document, schema)
            self.assertEqual([t["kind"] for t in document["tests"]], ["load", "arrivals", "arrivals"])
            for test, places in zip(document["tests"][1:], [1, 4]):
                self.assertEqual((test["batch"], test["tokens"], test["requests"], test["repetitions"]), (places, 6, 12, 2))
                self.assertEqual(test["rate"], rate if rate == "closed" else 500)
                self.assertEqual(test["generated_tokens"], 12 * 6 * 2)
                # Of 24 prompts, each of 5 or 40 tokens.
                self.assertEqual((test["prompt_tokens"] - 24 * 5) % 35, 0)
                self.assertTrue(24 * 5 < test["prompt_tokens"] < 24 * 40)
                for quantiles in [test["ttft_ms"], test["inter_token_ms"]]:
                    ordered = [quantiles[k] for k in ["p50", "p95", "p99", "max"]]
                    self.assertEqual(ordered, sorted(ordered))
                self.assertGreaterEqual(test["steps"], 12 * 6 * 2 // places)
            # The seed decides what is asked, not the engine.
            self.assertEqual(document["tests"][1]["prompt_tokens"], document["tests"][2]["prompt_tokens"])

    def test_one_token_has_nothing_between(self):
        test = self.bench("--arrivals", 3, "-p", 4, "-n", 1, "-r", 1)["tests"][1]
        self.assertIsNone(test["inter_token_ms"])
        self.assertIsNone(test["per_request"]["tokens_per_s"])

    def test_default_lengths_fit_the_context(self):
        for args, limit, tokens in [([], 512, 128), (["-n", "500"], 512, 500), (["--ctx", "200"], 200, 128)]:
            test = self.bench("--arrivals", 3, *args, "-r", 1, model=self.short())["tests"][1]
            self.assertEqual((test["tokens"], test["prompt_lengths"]), (tokens, [limit - tokens]))
        self.assertIn("-n: ", self.bench("--arrivals", 3, "-n", 512, model=self.short(), code=2))
        self.assertIn("512", self.bench("--arrivals", 3, "-p", 512, model=self.short(), code=2))

    def test_what_goes_together(self):
        for args, word in [(["--rate", "3"], "--arrivals"), (["--seed", "3"], "--arrivals"), (["--arrivals", "0"], "--arrivals"),
                           (["--arrivals", "2", "--rate", "0"], "--rate"), (["--arrivals", "2", "--rate", "often"], "--rate"),
                           (["--arrivals", "2", "--rate", "nan"], "--rate"), (["--arrivals", "2", "-d", "0"], "-d"),
                           (["--arrivals", "2", "-n", "0"], "-n"), (["--arrivals", "2", "-p", "0"], "-p"),
                           (["--arrivals", "2", "-p", "30", "-n", "10", "--ctx", "39"], "39")]:
            self.assertIn(word, self.bench(*args, code=2), args)
