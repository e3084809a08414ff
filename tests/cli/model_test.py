"""With the model that MARKBASE_TEST_MODEL names."""
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

from driver import BINARY, SOURCE, MODEL, SMALL, LONG_TEXT, run, wait_for_handler, read_npy, Terminal


@unittest.skipUnless(MODEL, "MARKBASE_TEST_MODEL is not set")
class WithModel(unittest.TestCase):
    def schema(self, name, document):
        import jsonschema
        schema = json.loads((SOURCE / "docs" / "schemas" / f"{name}.schema.json").read_text())
        jsonschema.validate(document, schema)

    def test_run_json(self):
        args = ["run", MODEL, *SMALL, "-p", "The capital of France is", "-n", 8, "--temperature", 0, "--json"]
        code, out, err = run(*args)
        self.assertEqual(code, 0, err)
        first = json.loads(out)
        self.schema("run", first)
        self.assertEqual(first["finish_reason"], "length")
        self.assertEqual(len(first["ids"]), 8)
        self.assertEqual(first["prompt_ids"][0], 2)
        # What the streamed text says is what the document says.
        code, out, _ = run(*args[:-1], "-q")
        self.assertEqual(out, first["text"] + "\n")
        # From its ids instead of its text: the same answer.
        ids = ",".join(map(str, first["prompt_ids"]))
        _, out, _ = run("run", MODEL, *SMALL, "--ids", ids, "-n", 8, "--temperature", 0, "--json")
        self.assertEqual(json.loads(out)["ids"], first["ids"])

    def test_run_is_the_same_for_threads_levels_and_chunks(self):
        text = "It was the best of times, it was the worst of times, it was the age of wisdom, "
        answers = set()
        levels = [l["name"] for l in json.loads(run("doctor", "--json")[1])["cpu"]["levels"] if l["supported"]]
        self.assertIn("generic", levels)
        variants = [["--threads", n] for n in (1, 2, 3, 7)] + [["--prefill-chunk", n] for n in (1, 7, 64, 512)]
        variants += [["--cpu-isa", level] for level in levels]
        for variant in variants:
            code, out, err = run("run", MODEL, *SMALL, "-p", text, "-n", 12, "--temperature", 0, "--json", *variant)
            self.assertEqual(code, 0, err)
            answers.add(tuple(json.loads(out)["ids"]))
        self.assertEqual(len(answers), 1)

    def test_logits_bytes(self):
        text = LONG_TEXT[:320]  # more tokens than one chunk of 64
        levels = [l["name"] for l in json.loads(run("doctor", "--json")[1])["cpu"]["levels"] if l["supported"]]
        variants = [["--threads", n] for n in (1, 2, 3, 7)] + [["--prefill-chunk", n] for n in (1, 7, 64, 512)]
        variants += [["--cpu-isa", level] for level in levels]
        with tempfile.TemporaryDirectory() as folder:
            blobs = set()
            for variant in variants:
                path = pathlib.Path(folder, "l.npy")
                code, _, err = run("logits", MODEL, *SMALL, "-p", text, "--out", path, *variant)
                self.assertEqual(code, 0, err)
                blobs.add(hashlib.sha256(path.read_bytes()).hexdigest())
            self.assertEqual(len(blobs), 1)
            shape, values = read_npy(path)
            self.assertGreater(shape[0], 64)
            last = pathlib.Path(folder, "last.npy")
            run("logits", MODEL, *SMALL, "-p", text, "--last", "--out", last)
            last_shape, last_values = read_npy(last)
            self.assertEqual(last_shape, (1, shape[1]))
            self.assertEqual(last_values, values[-shape[1]:])

    def test_last_logits_beyond_the_window(self):
        # More than the 512 tokens that a sliding layer sees, cut in chunks that end anywhere.
        variants = [["--prefill-chunk", n] for n in (7, 64, 100, 511, 512)] + [["--threads", 7, "--prefill-chunk", 64]]
        with tempfile.TemporaryDirectory() as folder:
            blobs = set()
            for variant in variants:
                path = pathlib.Path(folder, "l.npy")
                code, _, err = run("logits", MODEL, "-q", "--ctx", 1024, "-p", LONG_TEXT, "--last", "--out", path, *variant)
                self.assertEqual(code, 0, err)
                blobs.add(path.read_bytes())
            self.assertEqual(len(blobs), 1)

    def test_interrupt_ends_every_command(self):
        text = SOURCE / "tests/golden/texts/emma.txt"
        for args in (["bench", MODEL, "-r", "50"], ["perplexity", MODEL, "-f", text, "--ctx", "512"], ["verify", MODEL],
                     ["run", MODEL, "-p", "Once", "-n", "2000", "--ignore-eos"]):
            process = subprocess.Popen([BINARY, *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE)
            wait_for_handler(process.pid, signal.SIGINT)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 130, f"{args}: {err}")
            self.assertIn(b"interrupted", err)

    def test_perplexity_keeps_the_file_it_is_compared_with(self):
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder, "t.txt")
            text.write_text("The quick brown fox jumps over the lazy dog.")
            saved = pathlib.Path(folder, "s.npy")
            args = ("perplexity", MODEL, "-f", text, "--ctx", 64)
            self.assertEqual(run(*args, "--save-logits", saved)[0], 0)
            before = saved.read_bytes()
            self.assertEqual(run(*args, "--save-logits", saved, "--against", saved)[0], 2)
            self.assertEqual(saved.read_bytes(), before)
            self.assertEqual(sorted(os.listdir(folder)), ["s.npy", "t.txt"])

    def test_repack_cache(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder, "model.gguf")
            model.symlink_to(MODEL)
            cache = pathlib.Path(folder, "model.gguf.cpu1.repacked")
            args = ("run", model, "--ctx", 128, "-p", "The capital of France is", "-n", 6, "--temperature", 0)
            code, plain, err = run(*args)
            self.assertEqual((code, cache.exists()), (0, False), err)
            code, out, err = run(*args, "--repack-cache", "on")
            self.assertEqual((code, out), (0, plain), err)
            self.assertIn("packed weights kept in", err)
            self.assertTrue(cache.exists())
            code, out, err = run(*args, "--repack-cache", "on")
            self.assertEqual((code, out), (0, plain), err)
            self.assertNotIn("kept in", err)
            with open(cache, "r+b") as file:
                file.seek(-1, 2)
                file.write(b"\xff")
            code, out, err = run(*args, "--repack-cache", "on")
            self.assertEqual((code, out), (0, plain), err)
            self.assertIn("warning: packing again", err)

    def test_trace_ends_with_the_same_logits(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "l.npy")
            run("logits", MODEL, *SMALL, "-p", "One two three", "--out", path)
            code, _, err = run("trace", MODEL, *SMALL, "-p", "One two three", "--out", f"{folder}/t", "--only", "layer.3.attn.*")
            self.assertEqual(code, 0, err)
            self.assertEqual(pathlib.Path(folder, "t", "logits.npy").read_bytes(), path.read_bytes())
            names = sorted(p.stem for p in pathlib.Path(folder, "t").glob("*.npy"))
            self.assertIn("layer.3.attn.q_norm", names)
            self.assertFalse([n for n in names if n.startswith("layer.4")])
        code, out, _ = run("trace", MODEL, *SMALL, "--list")
        self.assertEqual(code, 0)
        self.assertIn("layer.17.attn.q_norm", out)

    def test_tokenize(self):
        code, out, err = run("tokenize", MODEL, stdin="Hello world")
        self.assertEqual(code, 0, err)
        ids = [int(word) for word in out.split()]
        self.assertEqual(ids[0], 2)
        lines = "\n".join(json.dumps(l) for l in [
            {"text": "Hello world"}, {"text": "Hello world", "bos": True},
            {"text": "<start_of_turn>", "special": True}, {"text": "<start_of_turn>", "special": False}])
        code, out, err = run("tokenize", MODEL, "--jsonl", stdin=lines)
        self.assertEqual(code, 0, err)
        answers = [json.loads(line)["ids"] for line in out.splitlines()]
        self.assertEqual(answers[0], ids[1:])
        self.assertEqual(answers[1], ids)
        self.assertEqual(answers[2], [105])
        self.assertNotIn(105, answers[3])
        code, out, _ = run("tokenize", MODEL, "--decode", stdin=json.dumps({"ids": ids, "skip_special": True}))
        self.assertEqual(json.loads(out)["text"], "Hello world")
        code, _, err = run("tokenize", MODEL, "--decode", stdin='{"ids": [99999999]}')
        self.assertEqual(code, 3)
        self.assertIn("99999999", err)

    def test_template(self):
        lines = json.dumps({"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}],
                            "add_generation_prompt": True})
        code, out, err = run("template", MODEL, stdin=lines)
        self.assertEqual(code, 0, err)
        answer = json.loads(out)
        self.assertEqual(answer["prompt"], "<bos><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n<start_of_turn>model\n")
        self.assertEqual(answer["ids"][:2], [2, 105])
        user = [{"role": "user", "content": "Hi"}]
        code, out, err = run("template", MODEL, stdin=json.dumps(
            {"messages": user + [{"role": "assistant", "content": "Yes, "}], "continue_final_message": True}))
        self.assertEqual(code, 0, err)
        self.assertTrue(json.loads(out)["prompt"].endswith("<start_of_turn>model\nYes,"))
        for request, word in [({"messages": user, "tools": [{"type": "function"}]}, "tools"),
                              ({"messages": user, "enable_thinking": True}, "enable_thinking"),
                              ({"messages": user, "temperature": 1}, "temperature"),
                              ({"messages": [{"role": "user", "content": "Hi", "refusal": "x"}]}, "refusal"),
                              ({"messages": [{"role": "assistant", "content": "Hi"}]}, "alternate")]:
            code, out, err = run("template", MODEL, stdin=json.dumps(request))
            self.assertEqual(code, 3, err)
            self.assertIn(word, err)
            self.assertEqual(out, "")

    def test_inspect_verify_bench(self):
        code, out, err = run("inspect", MODEL, "--json")
        self.assertEqual(code, 0, err)
        self.schema("inspect", json.loads(out))
        code, out, err = run("verify", MODEL, "--json")
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)["faults"], [])
        code, out, err = run("bench", MODEL, *SMALL, "-p", 16, "-n", 4, "-d", "0,32", "-b", "1,2", "-r", 1, "--json")
        self.assertEqual(code, 0, err)
        document = json.loads(out)
        self.schema("bench", document)
        kinds = {(t["kind"], t["depth"], t["batch"]) for t in document["tests"]}
        for wanted in [("prefill", 0, 1), ("decode", 0, 1), ("decode", 32, 2)]:
            self.assertIn(wanted, kinds)

    def test_stop_string_is_removed(self):
        base = ["run", MODEL, *SMALL, "-p", "1, 2, 3, 4, 5,", "-n", 24, "--temperature", 0, "--json"]
        whole = json.loads(run(*base)[1])["text"]
        stop = whole[6:10]
        answer = json.loads(run(*base, "--stop", stop)[1])
        self.assertEqual(answer["finish_reason"], "stop")
        self.assertEqual(answer["text"], whole[:whole.index(stop)])

    def test_a_seed_that_was_not_given_is_said(self):
        args = ("run", MODEL, *SMALL, "-p", "Once", "-n", 12)
        code, out, err = run(*args)
        self.assertEqual(code, 0, err)
        seed = re.search(r"drawn with --seed (\d+)", err).group(1)
        self.assertEqual(run(*args, "--seed", seed)[1], out)
        self.assertEqual(json.loads(run(*args, "--seed", seed, "--json")[1])["seed"], int(seed))

    def test_chat_says_the_seed_of_each_message(self):
        args = ("chat", MODEL, *SMALL, "-n", 12)
        code, _, err = run(*args, stdin="Once\nTwice\n")
        self.assertEqual((code, len(set(re.findall(r"drawn with --seed (\d+)\n", err)))), (0, 2), err)
        code, out, err = run(*args, stdin="Once\n")
        seed = re.search(r"drawn with --seed (\d+)", err).group(1)
        for options in [["--seed", seed], ["--temperature", 0]]:
            code, again, err = run(*args, *options, stdin="Once\n")
            self.assertEqual((code, "drawn with" in err), (0, False), err)
            if options[0] == "--seed":
                self.assertEqual(again, out)

    def test_every_command_makes_the_same_plan(self):
        plan = json.loads(run("inspect", MODEL, "--json")[1])["plan"]
        _, _, err = run("run", MODEL, "-p", "Once", "-n", 1)
        self.assertIn(f"= {plan['total_bytes'] / 2**20:.1f} MiB of", err)

    def test_seed_gives_the_same_answer(self):
        args = ["run", MODEL, *SMALL, "-p", "My favourite", "-n", 12, "--temperature", 1, "--top-k", 50, "--json"]
        texts = [json.loads(run(*args, "--seed", seed)[1])["text"] for seed in (7, 7, 8, 9)]
        self.assertEqual(texts[0], texts[1])
        self.assertGreater(len(set(texts)), 1)

    def test_prompt_too_long_and_memory_too_small(self):
        code, _, err = run("run", MODEL, "--ctx", 16, "-p", "word " * 100)
        self.assertEqual(code, 2, err)
        self.assertIn("16", err)
        code, _, err = run("run", MODEL, "-p", "a", "--memory", "20MiB")
        self.assertEqual(code, 4, err)
        self.assertIn("weights", err)

    def test_truncated_model_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "cut.gguf")
            with open(MODEL, "rb") as source:
                path.write_bytes(source.read(20_000_000))
            code, out, err = run("run", path, "-p", "a")
            self.assertEqual((code, out), (3, ""))
            for word in [str(path), "expected", "got"]:
                self.assertIn(word, err)

    def test_bad_token_ids(self):
        code, _, err = run("run", MODEL, *SMALL, "--ids", "2,999999999", "-n", 1)
        self.assertEqual(code, 2, err)
        self.assertIn("999999999", err)

    def test_overrides_are_said(self):
        _, _, err = run("run", MODEL, *SMALL, "-p", "a", "-n", 1, "--temperature", 0, "--top-k", 5)
        self.assertRegex(err, r"sampling: --temperature 0 \(the model's own: [\d.]+\), --top-k 5")
        self.assertNotIn("sampling:", run("run", MODEL, *SMALL, "-p", "a", "-n", 1)[2])

    def test_ctrl_c_stops_the_answer_and_keeps_the_session(self):
        terminal = Terminal(["chat", MODEL, *SMALL, "--ignore-eos", "--temperature", 0])
        terminal.expect("> ")
        terminal.send("Hi\r")
        terminal.expect("\x1b[?2004l")
        terminal.expect_something()  # of the answer
        terminal.send("\x03")
        terminal.expect("tokens/s | first token")
        terminal.expect("> ")
        terminal.send("/reset\r")
        terminal.expect("forgotten")
        terminal.expect("\x1b[?2004h")
        terminal.send("\x04")
        self.assertEqual(terminal.wait(), 0)

    def test_chat_from_a_pipe(self):
        code, out, err = run("chat", MODEL, *SMALL, "-n", 5, "--temperature", 0, stdin="Hi\n/reset\n/nonsense\nHi\n")
        self.assertEqual(code, 1, err)
        answers = out.splitlines()
        self.assertGreaterEqual(len(answers), 2)
        self.assertIn("/nonsense", err)
        for lines, wanted in [("Hi\n", 0), ("Hi\n" + "word " * 100 + "\n", 1)]:
            code, out, err = run("chat", MODEL, "--ctx", 64, "-n", 5, "--temperature", 0, stdin=lines)
            self.assertEqual((code, "/reset starts anew" in err), (wanted, wanted == 1), err)

    def test_closed_pipe(self):
        process = subprocess.Popen([BINARY, "run", MODEL, *SMALL, "-p", "1, 2, 3,", "-n", "400", "--ignore-eos"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.read(1)
        process.stdout.close()
        err = process.stderr.read().decode()
        self.assertEqual(process.wait(timeout=300), 1, err)
        self.assertIn("stdout", err)

    def test_interrupt(self):
        process = subprocess.Popen([BINARY, "run", MODEL, *SMALL, "-p", "1, 2, 3,", "-n", "100000", "--ignore-eos"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 130, err)

    def test_peak_anonymous_memory(self):
        # Weights are repacked while the file's own pages are given back: what the process owns stays close to
        # the packed weights. Sampled, so the true peak may be missed, never exceeded.
        plan = json.loads(run("inspect", MODEL, "--json")[1])["plan"]
        peak = self.peak_anonymous_bytes(MODEL)
        self.assertGreater(peak, plan["weight_bytes"] // 2, "the sampling saw the load")
        print(f"peak RssAnon {peak / 1e6:.1f} MB, packed weights {plan['weight_bytes'] / 1e6:.1f} MB, "
              f"ratio {peak / plan['weight_bytes']:.3f}")
        self.assertLess(peak, 1.15 * plan["weight_bytes"])

    def test_weights_of_a_cache_are_no_anonymous_memory(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder, "model.gguf")
            model.symlink_to(MODEL)
            bench = ("bench", model, "--json", "-p", "0", "-n", "0", "--repack-cache", "on")
            plans = []
            for _ in range(2):
                code, out, err = run(*bench)
                self.assertEqual(code, 0, err)
                plans.append(json.loads(out)["model"]["plan"])
            packed, mapped = plans
            self.assertEqual(packed["mapped_weight_bytes"], 0)
            self.assertGreater(mapped["mapped_weight_bytes"], 0.9 * packed["weight_bytes"])
            self.assertEqual(mapped["weight_bytes"] + mapped["mapped_weight_bytes"], packed["weight_bytes"])
            self.assertIn(" mapped of ", err)
            peak = self.peak_anonymous_bytes(model, "--repack-cache", "on")
            print(f"peak RssAnon {peak / 1e6:.1f} MB, {mapped['mapped_weight_bytes'] / 1e6:.1f} MB mapped")
            self.assertLess(peak, mapped["mapped_weight_bytes"] // 2)

    def peak_anonymous_bytes(self, model, *options):
        process = subprocess.Popen([BINARY, "run", model, *SMALL, *options, "-p", "One", "-n", "8", "--temperature", "0", "-q"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        peak = 0
        while process.poll() is None:
            try:
                status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            except OSError:
                break
            for line in status.splitlines():
                if line.startswith("RssAnon:"):
                    peak = max(peak, int(line.split()[1]) * 1024)
            time.sleep(0.002)
        self.assertEqual(process.wait(), 0)
        return peak

    def test_perplexity(self):
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder, "t.txt")
            text.write_text("It is a truth universally acknowledged, that a single man in possession of a good "
                            "fortune, must be in want of a wife. " * 8)
            saved = pathlib.Path(folder, "saved")
            code, out, err = run("perplexity", MODEL, "-f", text, "--ctx", 64, "--json", "--save-logits", saved)
            self.assertEqual(code, 0, err)
            first = json.loads(out)
            self.assertGreater(first["perplexity"], 1)
            code, out, err = run("perplexity", MODEL, "-f", text, "--ctx", 64, "--json", "--against", saved)
            self.assertEqual(code, 0, err)
            again = json.loads(out)
            self.assertEqual(again["perplexity"], first["perplexity"])
            self.assertLessEqual(again["kl"]["max"], 1e-9)
            self.assertEqual(again["top1_agreement"], 1)
