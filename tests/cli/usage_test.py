"""What every command refuses, says and lists."""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import unittest

import mini_tokenizer
import scripted_model
from driver import BINARY, SOURCE, TINY, run, read_npy


class Synth(unittest.TestCase):
    def test_a_synthetic_model_answers(self):
        with tempfile.TemporaryDirectory() as folder:
            for size, kind in [("tiny-e2b", "mlx-4bit-g64"), ("tiny-26b-a4b", "gguf-q4_k_m"), ("tiny-12b", "hf-bf16")]:
                out = f"{folder}/{kind}" + (".gguf" if "gguf" in kind else "")
                code, text, err = run("synth", size, out, "--to", kind, "--json")
                self.assertEqual(code, 0, err)
                report = json.loads(text)
                self.assertEqual((report["path"], report["layers"]), (out, 6))
                code, _, err = run("verify", out)
                self.assertEqual(code, 0, err)
                code, text, err = run("run", out, "-p", "once upon a time", "-n", 4, "--temperature", 0, "--raw",
                                      "--ignore-eos", "--json")
                self.assertEqual(code, 0, err)
                self.assertEqual(len(json.loads(text)["ids"]), 4)

    def test_what_cannot_be_written_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            for args, word in [(["e9b", f"{folder}/a", "--to", "hf-bf16"], "e9b"),
                               (["tiny-e2b", f"{folder}/a", "--to", "gguf-q9"], "gguf-q9"),
                               (["tiny-e2b", f"{folder}/a"], "--to"),
                               (["tiny-e2b", f"{folder}/a", "--to", "hf-bf16", "--layers", "0"], "--layers"),
                               (["tiny-e2b", f"{folder}/a", "--to", "hf-bf16", "--layers", "7"], "6 layers"),
                               (["tiny-e2b", "-", "--to", "hf-bf16"], "OUT")]:
                code, out, err = run("synth", *args)
                self.assertEqual((code, out), (2, ""), err)
                self.assertIn(word, err)
            self.assertEqual(os.listdir(folder), [])

    def test_help_lists_the_formats_that_there_are(self):
        _, _, err = run("synth", "tiny-e2b", "a", "--to", "gguf-q9")
        words = run("help", "synth")[1].split()
        formats = err[err.index("there are ") + len("there are "):].split()
        self.assertEqual(words[words.index("hf-bf16,"):][:len(formats)], formats)

    def test_a_place_that_takes_no_files_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            code, out, err = run("synth", "tiny-e2b", folder, "--to", "hf-bf16")
            self.assertEqual((code, out), (1, ""), err)
            self.assertIn("exists", err)
            code, out, err = run("synth", "tiny-e2b", f"{folder}/no/a", "--to", "hf-bf16")
            self.assertEqual((code, out), (1, ""), err)
            self.assertIn("expected a folder", err)
        code, out, err = run("synth", "tiny-e2b", "/proc/markbase-synth", "--to", "hf-bf16")
        self.assertEqual((code, out), (1, ""), err)
        self.assertIn("/proc", err)

    def test_a_disk_that_fills_up_is_said_and_nothing_stays(self):
        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

        with tempfile.TemporaryDirectory() as folder:
            for kind in ["gguf-q8_0", "hf-bf16"]:
                done = subprocess.run([BINARY, "synth", "tiny-e2b", f"{folder}/out", "--to", kind], capture_output=True,
                                      preexec_fn=small_files)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(b"cannot be written: File too large", done.stderr)
                self.assertEqual(os.listdir(folder), [])


class Usage(unittest.TestCase):
    def check(self, code, args, *words, **kwargs):
        got, out, err = run(*args, **kwargs)
        self.assertEqual(got, code, f"{args}: {err}")
        self.assertEqual(out, "", "stdout carries results alone")
        for word in words:
            self.assertIn(word, err, f"{args}")

    def test_unknown_option_is_named(self):
        self.check(2, ["run", "x.gguf", "--no-such-option"], "--no-such-option")

    def test_numbers_are_read_as_written(self):
        for option, value in [("-n", "010"), ("-n", "99999999999999999999"), ("--seed", "-1"), ("--threads", "01"),
                              ("--seed", "99999999999999999999999"), ("--top-k", "1e3"), ("--repetition-penalty", "1e-45"),
                              ("--memory", "1e-10GiB")]:
            got, out, err = run("run", TINY, "-p", "a", option, value)
            self.assertEqual((got, out), (2, ""), f"{option} {value}: {err}")

    def test_empty_values_are_refused(self):
        for option in ["--memory", "--mmproj", "--draft", "--json-schema", "--ids", "-f", "--kv"]:
            self.check(2, ["run", TINY, option, ""], option.strip("-"))
        self.check(2, ["tokenize", TINY, "-f", ""], "file")

    def test_reference_keeps_no_packed_weights(self):
        self.check(2, ["run", TINY, "-p", "a", "--backend", "ref", "--repack-cache", "on"], "--repack-cache")
        self.check(2, ["run", TINY, "-p", "a", "--backend", "ref", "--cpu-isa", "generic"], "--cpu-isa")

    def test_a_pipe_in_the_place_of_a_file(self):
        for name in ["config.json", "model.safetensors", "tokenizer.json"]:
            with tempfile.TemporaryDirectory() as folder:
                copy = pathlib.Path(folder, "m")
                shutil.copytree(SOURCE / "tests/golden/tiny_gemma3_f32", copy)
                (copy / name).unlink(missing_ok=True)
                os.mkfifo(copy / name)
                for command in [["run", copy, "--ids", "2,3", "-n", "1"], ["verify", copy]]:
                    self.assertEqual(run(*command, timeout=20)[0], 3, name)

    def test_rows_that_cannot_be_written(self):
        for ids in ["2,3", ",".join(["2"] * 200)]:
            self.check(1, ["logits", TINY, "--ids", ids, "--out", "/dev/full"], "/dev/full")
        done = subprocess.run([BINARY, "logits", TINY, "--ids", "2,3", "--out", "/dev/stdout"], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (1, b""), done.stderr)

    def test_an_output_that_is_read_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(shutil.copy(TINY, folder))
            text = pathlib.Path(folder, "text.txt")
            text.write_text("a b c")
            weights = model.read_bytes()
            other = f"{folder}/./{model.name}"
            self.check(2, ["logits", model, "--ids", "2,3", "--out", other], "a file of the model")
            self.check(2, ["logits", model, "--raw", "-f", text, "--out", text], "a file of the input")
            self.check(2, ["perplexity", model, "-f", text, "--save-logits", text], "a file of the input")
            self.assertEqual((model.read_bytes(), text.read_text()), (weights, "a b c"))

    def test_trace_of_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            self.check(2, ["trace", TINY, "--ids", "2,3", "--out", f"{folder}/t", "--only", "zzz*"], "zzz*")
            self.assertEqual(os.listdir(folder), [])
            # What was there stays.
            self.check(2, ["trace", TINY, "--ids", "2,3", "--out", folder, "--only", "zzz*"], "zzz*")
            self.assertTrue(os.path.isdir(folder))

    def test_trace_as_a_document(self):
        with tempfile.TemporaryDirectory() as folder:
            out = f"{folder}/t"
            code, text, err = run("trace", TINY, "--ids", "2,3,4", "--out", out, "--only", "layer.3.*", "--json")
            self.assertEqual(code, 0, err)
            answer = json.loads(text)
            self.assertEqual((answer["ids"], answer["out"]), ([2, 3, 4], out))
            self.assertEqual(answer["shape"], list(read_npy(f"{out}/logits.npy")[0]))
            shapes = {i["name"]: i["shape"] for i in answer["intermediates"]}
            self.assertEqual({name: list(read_npy(f"{out}/{name}.npy")[0]) for name in shapes}, shapes)
            self.assertEqual({f"{name}.npy" for name in shapes} | {"logits.npy"}, set(os.listdir(out)))
            code, text, err = run("trace", TINY, "--list", "--only", "layer.3.*", "--json")
            self.assertEqual(code, 0, err)
            listed = {i["name"]: i["shape"] for i in json.loads(text)}
            self.assertEqual(listed, {name: ["num_tokens", *shape[1:]] for name, shape in shapes.items()})

    def test_a_file_size_limit_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            model = shutil.copy(TINY, folder)
            limited = ["bash", "-c", 'ulimit -f 20; exec "$0" "$@"', BINARY]
            done = subprocess.run([*limited, "run", model, "--ids", "2,3", "-n", "1", "--repack-cache", "on"],
                                  stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(b"cannot be written", done.stderr)
            self.assertEqual(os.listdir(folder), [pathlib.Path(model).name])

    def test_v_explains(self):
        with tempfile.TemporaryDirectory() as folder:
            model = scripted_model.write(pathlib.Path(folder), {scripted_model.NEWLINE: ["yes", "<turn|>"]}, "{{ bos_token }}\n")
            args = ["run", model, "-p", "a", "--threads", 2, "--cpu-isa", "generic", "--kv", "q8", "--ctx", 64,
                    "--prefill-chunk", 5, "--temperature", 0.5, "--seed", 9, "-n", 1]
            facts = ["backend: cpu (generic, 2 threads)", "KV cache: q8, 64 tokens; prefill in chunks of 5",
                     f"chat format: template {folder}/chat_template.jinja", "1 <eos>",
                     "sampling of the model: temperature 1, top-k 64, top-p 0.95",
                     "sampling in effect: temperature 0.5, top-k 64, top-p 0.95, min-p 0, repetition penalty 1, seed 9"]
            for option in [["-v"], ["--log-level", "debug"]]:
                code, _, err = run(*args, *option)
                self.assertEqual(code, 0, err)
                for fact in facts:
                    self.assertIn(fact, err)
            code, out, err = run(*args)
            self.assertFalse([fact for fact in facts if fact in err])
            self.assertIn("plan:", err)
            self.assertIn("plan:", run(*args, "--log-level", "info")[2])
            pathlib.Path(folder, "chat_template.jinja").unlink()
            self.assertIn("chat format: the one of its family", run(*args, "-v")[2])

    def test_levels_of_talk(self):
        model = SOURCE / "tests/golden/tiny_gemma3_f32"  # weights without a tokenizer, which is warned of
        args = ["run", model, "--ids", "2,3", "-n", 1]
        for options in [["-q"], ["-q", "-v"], ["--log-level", "error"], ["--log-level", "off"]]:
            code, _, err = run(*args, *options)
            self.assertEqual((code, err), (0, ""), options)
        code, _, err = run(*args, "--log-level", "warning")
        self.assertEqual((code, len(err.splitlines())), (0, 1), err)
        self.assertIn("warning: ", err)
        code, _, err = run("bench", TINY, "-p", 4, "-n", 0, "-r", 1, "--log-level", "error")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("backend:", run("bench", TINY, "-p", 4, "-n", 0, "-r", 1, "-v")[2])

    def test_a_text_without_an_end_is_refused(self):
        for args in [["run", TINY, "-f", "/dev/zero"], ["parse", TINY, "-f", "/dev/zero"]]:
            self.check(3, args, "/dev/zero", "at most 256 MiB")

    def test_people_are_told_sizes_in_units(self):
        size = os.path.getsize(TINY)
        code, out, _ = run("verify", TINY)
        self.assertEqual(code, 0)
        self.assertIn("faults: no fault found\n", out)
        bytes_of_tensors = json.loads(run("verify", TINY, "--json")[1])["bytes"]
        self.assertLess(bytes_of_tensors, size)
        self.assertIn(f"bytes: {bytes_of_tensors} ({bytes_of_tensors / 1024:.1f} KiB)\n", out)
        self.assertRegex(run("inspect", TINY)[1], r"weight_bytes: \d+ \([\d.]+ KiB\)\n")
        self.assertRegex(run("doctor")[1], r"total_bytes: \d+ \([\d.]+ GiB\)\n")

    def test_what_is_no_number_is_called_so(self):
        for option, value, kind in [("--temperature", "abc", "a number"), ("--top-p", "0.5x", "a number"), ("--min-p", "1,5", "a number"),
                                    ("--top-k", "3.5", "a whole number"), ("-n", "1e3", "a whole number"),
                                    ("--threads", "two", "a whole number")]:
            self.check(2, ["run", TINY, "--ids", "2", option, value], f"markbase: {option}: expected {kind}, got '{value}'. ")
        self.check(2, ["run", TINY, "--ids", "2", "--threads", "0"], "--threads: ", "range")

    def test_options_cut_short(self):
        for given, meant in [("--temp", "--temperature"), ("--temp=0", "--temperature"), ("--promt", "--prompt")]:
            self.check(2, ["run", TINY, given, "0"], f"{given.split('=')[0]}: no such option (did you mean {meant}")

    def test_words_that_nobody_reads(self):
        for args, word in [(["--frob"], "'--frob': expected a command first"), (["-q", "run"], "'-q'"),
                           (["help", "run", "extra"], "'extra'"), (["--version", "extra"], "'extra'"),
                           (["help", "--frob"], "'--frob'")]:
            self.check(2, args, word)
        self.assertEqual(run("help", "--help")[0], 0)
        # Names need no prompt and have no file.
        for option in [["--out", "x"], ["--system", "s"], ["-p", "a"], ["-f", "x"], ["--ids", "2"], ["--raw"], ["--special"], ["--think"]]:
            self.check(2, ["trace", TINY, "--list", *option], "--list", option[0] if option[0].startswith("--") else "--")
        self.assertEqual(run("trace", TINY, "--list", "--only", "layer.0.*")[0], 0)
        for script, usage in [("fetch_model.sh", "Google's Gemma 3 270M"), ("quickstart.sh", '["a prompt"]')]:
            for args, code in [(["--help"], 0), (["-h"], 0), (["--frob"], 2), (["a", "b"], 2)]:
                done = subprocess.run([SOURCE / "scripts" / script, *args], capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(usage if code == 0 else args[-1] if script == "quickstart.sh" else args[0],
                              done.stdout if code == 0 else done.stderr)

    def test_a_dash_is_no_file_to_write(self):
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder, "t.txt")
            text.write_text("a text")
            for args in [["logits", TINY, "--ids", "2", "--out", "-"], ["trace", TINY, "--ids", "2", "--out", "-"],
                         ["perplexity", TINY, "-f", text, "--save-logits", "-"], ["batch", TINY, "-f", text, "--out", "-"]]:
                done = subprocess.run([pathlib.Path(BINARY).resolve(), *map(str, args)], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertIn(f"{args[-2]}: expected a name, got -", done.stderr)
            self.assertEqual(os.listdir(folder), ["t.txt"])

    def test_unknown_command(self):
        self.check(2, ["runn"], "runn")

    def test_no_command(self):
        self.check(2, [])

    def test_values_out_of_range(self):
        self.check(2, ["run", "x.gguf", "-n", "-5"], "-n")
        self.check(2, ["run", "x.gguf", "-n", "abc"], "abc")
        self.check(2, ["run", "x.gguf", "--temperature", "abc"], "--temperature", "abc")
        self.check(2, ["run", "x.gguf", "--threads", "0"], "--threads")
        self.check(2, ["run", "x.gguf", "--backend", "abacus"], "--backend", "abacus")
        self.check(2, ["run", "x.gguf", "--kv", "f8"], "--kv")
        self.check(2, ["bench", "x.gguf", "-r", "0"], "-r")
        self.check(2, ["bench", "x.gguf", "-p", "12,x"], "-p", "x")

    def test_memory_sizes(self):
        self.check(2, ["run", "x.gguf", "-p", "a", "--memory", "lots"], "--memory", "lots")
        self.check(2, ["run", "x.gguf", "-p", "a", "--memory", "-3GiB"], "--memory")

    def test_what_is_not_there_yet_is_refused(self):
        for command in ["quantize", "profile", "pull", "serve"]:
            self.check(2, [command], command)
        for option in ["--mmproj", "--draft"]:
            self.check(2, ["run", "x.gguf", "-p", "a", option, "f"], option)
            for command in ["tokenize", "template", "verify", "inspect"]:
                self.check(2, [command, "x.gguf", option, "f"], option)
        self.check(2, ["run", "x.gguf", "-p", "a", "--json-schema", "f"], "--json-schema")

    def test_messages_say_what_is_expected(self):
        self.check(2, ["perplexity", TINY, "-f", "/dev/null", "--ctx", 1], "expected 2 or more", "got 1")
        self.check(2, ["run", TINY, "--promt", "x"], "--promt: no such option (did you mean --prompt?)")
        self.check(2, ["run", TINY, "--promt=x", "y"], "--promt: no such option (did you mean --prompt?)")
        self.check(2, ["run", TINY, "surplus", "words"], "not expected: 'surplus'")
        with tempfile.TemporaryDirectory() as folder:
            tools = pathlib.Path(folder, "tools.json")
            tools.write_text("[{]")
            code, _, err = run("run", TINY, "--ids", "2", "--tools", tools)
            self.assertEqual(code, 3, err)
            self.assertIn("not valid JSON at byte 3: syntax error while", err)
            self.assertNotIn("json.exception", err)
        for words in [["tokenize", TINY, "--jsonl"], ["parse", TINY], ["template", TINY]]:
            code, _, err = run(*words, stdin='{"text":}\n')
            self.assertEqual(code, 3, err)
            self.assertRegex(err, r"line 1: .*not valid JSON at byte 9: syntax error while")
            self.assertNotIn("json.exception", err)

    def test_arguments_are_checked_before_the_model_is_opened(self):
        # A model that is not there would be refused with 3: who is told of an argument first waits for nothing.
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder, "t.txt")
            text.write_text("a")
            for code, args, words in [
                    (2, ["run", "--temperature", "-1"], ["--temperature"]), (2, ["run", "--top-p", 2], ["--top-p"]),
                    (2, ["run", "--min-p", 2], ["--min-p"]), (2, ["run", "--stop", ""], ["--stop"]),
                    (2, ["chat", "--temperature", "-1"], ["--temperature"]),
                    (2, ["run", "-p", "a", "-f", text], ["-p", "-f"]), (2, ["run", "-p", "a", "--ids", "2"], ["--ids"]),
                    (3, ["run", "-f", "/nope"], ["/nope"]), (2, ["run", "-p", "a", "--image", "x"], ["--image"]),
                    (2, ["run", "--ids", "abc"], ["abc"]), (2, ["run", "--ids", "2", "--special"], ["--special"]),
                    (2, ["run", "--ids", "2", "--system", "s"], ["--system"]),
                    (2, ["run", "-p", "a", "--raw", "--system", "s"], ["--system"]),
                    (2, ["run", "-p", "a", "--raw", "--think"], ["--think"]),
                    (2, ["logits", "-p", "a"], ["--out"]), (2, ["trace", "-p", "a"], ["--out"]),
                    (1, ["logits", "-p", "a", "--out", "/nope/x.npy"], ["/nope/x.npy"]),
                    (1, ["logits", "-p", "a", "--out", folder], [folder]),
                    (1, ["trace", "-p", "a", "--out", "/nope/x/"], ["/nope/x"]),
                    (1, ["trace", "-p", "a", "--out", text], [str(text)]),
                    (2, ["perplexity", "-f", "/dev/null"], ["/dev/null"]),
                    (3, ["perplexity", "-f", text, "--against", text], [str(text), ".npy"]),
                    (3, ["perplexity", "-f", text, "--against", "/nope.npy"], ["/nope.npy"]),
                    (1, ["perplexity", "-f", text, "--save-logits", "/nope/s.npy"], ["/nope/s.npy"])]:
                got, out, err = run(args[0], "no-such-model.gguf", *args[1:], stdin="a")
                self.assertEqual((got, out), (code, ""), f"{args}: {err}")
                self.assertNotIn("no-such-model", err)
                for word in words:
                    self.assertIn(word, err)
            self.assertEqual(os.listdir(folder), ["t.txt"])
            # What can be made passes: only the model is missing.
            for args in [["logits", "-p", "a", "--out", f"{folder}/x.npy"], ["logits", "-p", "a", "--out", "/dev/null"],
                         ["trace", "-p", "a", "--out", f"{folder}/d/"], ["trace", "-p", "a", "--out", folder]]:
                self.check(3, [args[0], "no-such-model.gguf", *args[1:]], "no-such-model.gguf")

    def test_nothing_is_timed_where_nothing_ran(self):
        code, out, err = run("run", TINY, "--ids", "2,3", "-n", 0, "--json")
        self.assertEqual(code, 0, err)
        timings = json.loads(out)["timings"]
        self.assertEqual((timings["prompt_ms"], timings["ttft_ms"], timings["generated_tokens"]), (0, 0, 0))
        self.assertIn("prompt 2 tokens | 0 tokens\n", err)

    def test_without_a_home(self):
        bare = {name: value for name, value in os.environ.items() if name not in ("HOME", "HF_HOME", "HF_HUB_CACHE", "MARKBASE_MODELS")}
        for added, word in [({}, "none of MARKBASE_MODELS, HF_HUB_CACHE, HF_HOME and HOME is set"),
                            ({"HF_HOME": "/nope"}, "in /nope/hub\n"), ({"HF_HOME": "/nope", "HF_HUB_CACHE": "/no/cache"}, "in /no/cache\n"),
                            ({"HOME": "/nope"}, "in /nope/.local/share/markbase/models or /nope/.cache/huggingface/hub\n")]:
            done = subprocess.run([BINARY, "list"], env={**bare, **added}, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
            self.assertIn(word, done.stderr)
        done = subprocess.run([SOURCE / "scripts/fetch_model.sh"], env=bare, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertIn("neither MARKBASE_MODELS nor HOME is set", done.stderr)

    def test_commands_without_an_engine_check_its_options(self):
        commands = [["tokenize", TINY, "-p", "a"], ["template", TINY], ["parse", TINY], ["verify", TINY], ["list"]]
        engine = ["--backend", "cpu", "--threads", 1, "--cpu-isa", "generic", "--ctx", 5, "--kv", "q8",
                  "--prefill-chunk", 4, "--memory", "1GiB", "--activations", "16"]
        bad = [("--backend", "cuda"), ("--threads", 0), ("--cpu-isa", "sse9"), ("--ctx", -1), ("--kv", "f8"),
               ("--prefill-chunk", 0), ("--memory", "much"), ("--mmproj", "f"), ("--draft", "m"), ("--repack-cache", "on")]
        levels = json.loads(run("doctor", "--json")[1])["cpu"]["levels"]
        bad += [("--cpu-isa", level["name"]) for level in levels if not level["supported"]]
        for args in commands:
            code, out, err = run(*args, *engine)
            self.assertEqual(code, 0 if args[0] != "tokenize" else run(*args)[0], err)
            for option, value in bad:
                self.check(2, [*args, option, value], value if value == "cuda" else option)
        for command in ["inspect", "doctor"]:
            self.check(2, [command, TINY, "--repack-cache", "on"], "--repack-cache")
        for option, value in [("--ctx", 5), ("--kv", "q8"), ("--prefill-chunk", 4), ("--memory", "1GiB")]:
            self.check(2, ["doctor", option, value], option, "MODEL")

    def test_what_plans_an_engine_refuses_what_cannot_run(self):
        with tempfile.TemporaryDirectory() as folder:
            words = mini_tokenizer.write(folder)
            for args in [["doctor"], ["doctor", TINY], ["inspect", TINY], ["inspect", words]]:
                self.check(2, [*args, "--backend", "cuda"], "cuda")
        for command in [["inspect", TINY], ["doctor", TINY], ["run", TINY, "--ids", "2"], ["bench", TINY, "-p", "4"]]:
            self.check(2, [*command, "--ctx", 10**7], "--ctx", str(10**7))
        self.check(2, ["bench", TINY, "--ctx", 8, "-p", 16], "16", "8")
        levels = json.loads(run("doctor", "--json")[1])["cpu"]["levels"]
        for level in levels:
            code, out, err = run("doctor", "--cpu-isa", level["name"], "--json")
            self.assertEqual(code, 0 if level["supported"] else 2, err)
            if code == 0:
                self.assertIn(level["name"], json.loads(out)["backend"])

    def test_unknown_model_names_the_nearest(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "gemma-3-270m-q4_k_m.gguf").write_bytes(b"")
            self.check(3, ["run", "gemma-3-270m-q4_k_n", "-p", "a"], "gemma-3-270m-q4_k_n", "gemma-3-270m-q4_k_m",
                       folder, env={"MARKBASE_MODELS": folder})

    def test_the_cache_is_where_its_own_variables_say(self):
        with tempfile.TemporaryDirectory() as folder:
            snapshot = pathlib.Path(folder, "cache/models--org--words/snapshots/abc")
            snapshot.mkdir(parents=True)
            mini_tokenizer.write(snapshot).joinpath("config.json").write_text("{}")
            places = {"MARKBASE_MODELS": folder, "HF_HOME": "/nope", "HF_HUB_CACHE": f"{folder}/cache"}
            self.assertEqual([m["name"] for m in json.loads(run("list", "--json", env=places)[1]) if "/" in m["name"]], ["org/words"])
            code, out, err = run("tokenize", "org/words", "-p", "a", env=places)
            self.assertEqual(code, 0, err)
            self.check(3, ["inspect", "org/none"], f"{folder}/cache; ", env=places)

    def test_unknown_model_names_the_line_that_fetches_it(self):
        with tempfile.TemporaryDirectory() as folder:
            places = {"MARKBASE_MODELS": folder, "HF_HUB_CACHE": folder}
            self.check(3, ["run", "google/gemma-3-270m-it", "-p", "a"], "fetches it: hf download google/gemma-3-270m-it\n",
                       env=places)
            script = "scripts/fetch_model.sh"
            self.assertTrue((SOURCE / script).exists())
            for name in ["gemma-3-270m-q4_k_m", "gemma-3-270m-q4_k_m.gguf", f"{folder}/gemma-3-270m-q4_k_m.gguf"]:
                self.check(3, ["inspect", name], f"fetches it: {script}\n", env=places)
            for name in ["no-such-model", "./google/gemma", "a/b/c", "/google/gemma", "google/", "-/a;b", "a/$(b)", "a/b.gguf"]:
                got, _, err = run("tokenize", "-p", "a", "--", name, env=places)
                self.assertEqual(got, 3, err)
                self.assertNotIn("fetches", err)
            self.check(2, ["pull", "google/gemma-3-270m-it"], "hf download")

    def test_directory_without_config(self):
        with tempfile.TemporaryDirectory() as folder:
            self.check(3, ["run", folder, "-p", "a"], folder, "config.json")

    def test_verify_looks_at_every_file_of_a_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder, "m")
            shutil.copytree(SOURCE / "tests/golden/tiny_gemma3_f32", copy)
            for broken in ["config.json", "model.safetensors"]:
                whole = (copy / broken).read_bytes()
                (copy / broken).write_bytes(whole[:10])
                for tokenizer, word in [(None, "no tokenizer"), ("{", "tokenizer.json")]:
                    (copy / "tokenizer.json").write_text(tokenizer) if tokenizer else (copy / "tokenizer.json").unlink(missing_ok=True)
                    code, out, err = run("verify", copy, "--json")
                    faults = json.loads(out)["faults"]
                    self.assertEqual((code, len(faults)), (3, 2), err)
                    self.assertIn(broken, faults[0]["what"])
                    self.assertIn(word, faults[1]["what"])
                (copy / broken).write_bytes(whole)

    def test_empty_and_broken_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "m.gguf")
            path.write_bytes(b"")
            self.check(3, ["run", path, "-p", "a"], str(path), "expected", "got")
            path.write_bytes(b"GGUF" + b"\xff" * 100)
            self.check(3, ["run", path, "-p", "a"], str(path))
            path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n")
            self.check(3, ["run", path, "-p", "a"], str(path), "LFS")

    def test_version_and_help(self):
        code, out, err = run("--version")
        self.assertEqual((code, err), (0, ""))
        for word in ["markbase", "backends", "CPU level"]:
            self.assertIn(word, out)
        code, out, _ = run("help", "run")
        self.assertEqual(code, 0)
        for option in ["--temperature", "--top-k", "--stop", "--cpu-isa", "--prefill-chunk"]:
            self.assertIn(option, out)
        code, out, _ = run("help")
        self.assertEqual(code, 0)
        self.assertIn("perplexity", out)

    def test_help_says_what_is_read(self):
        request = json.loads((SOURCE / "docs/schemas/batch_request.schema.json").read_text())
        message = request["properties"]["messages"]["items"]["properties"]
        template = ["tools", "add_generation_prompt", "enable_thinking", "preserve_thinking", "continue_final_message"]
        keys = {"run": [], "logits": [], "trace": [], "chat": ["/reset", "/save FILE", "/exit"], "batch": [*request["properties"], *message],
                "template": ["messages", *template, *message], "parse": ["text", "ids", "prompt_tail", "finish", "tools"],
                "tokenize": ["text", "special", "bos", "ids", "skip_special"]}
        for command, words in keys.items():
            code, out, _ = run("help", command)
            self.assertEqual(code, 0)
            footer = out[out.index("\nstdin"):]
            for word in words:
                self.assertRegex(footer, rf"(?<!\w){re.escape(word)}\b", command)
            for line in footer.splitlines():
                self.assertLessEqual(len(line), 110, command)
        # What does not work is not listed, or said not to.
        self.assertNotIn("--json", run("help", "chat")[1])

    def test_list_and_doctor(self):
        with tempfile.TemporaryDirectory() as folder:
            code, out, _ = run("list", "--json", env={"MARKBASE_MODELS": folder, "HF_HUB_CACHE": folder})
            self.assertEqual((code, json.loads(out)), (0, []))
        code, out, _ = run("doctor", "--json")
        self.assertEqual(code, 0)
        document = json.loads(out)
        self.assertGreater(document["bandwidth_gb_per_s"], 0)
        self.assertIn("level", document["cpu"])


class Defaults(unittest.TestCase):
    def generation(self, config):
        with tempfile.TemporaryDirectory() as folder:
            code, out, err = run("inspect", mini_tokenizer.write(folder, config), "--json")
            return code, json.loads(out)["generation"] if code == 0 else None, err

    def test_stops_are_a_list_or_a_number(self):
        response = mini_tokenizer.SPECIAL.index("<|tool_response>")
        for config, stops in [({"eos_token_id": [1, 16]}, {1, 16, response}), ({"eos_token_id": 1}, {1, response}),
                              ({}, {1, 16, response}), (None, {1, 16, response})]:
            code, generation, err = self.generation(config)
            self.assertEqual(code, 0, err)
            self.assertEqual(set(generation["stop_ids"]), stops, config)

    def test_sampling_and_suppressed_ids(self):
        _, generation, _ = self.generation({"temperature": 0.7, "top_k": 20, "top_p": 0.9, "suppress_tokens": [21, 22]})
        self.assertEqual([generation[k] for k in ("temperature", "top_k", "top_p", "suppress_ids")], [0.7, 20, 0.9, [21, 22]])
        _, generation, _ = self.generation(None)
        self.assertEqual([generation[k] for k in ("temperature", "top_k", "top_p", "suppress_ids")], [1, 64, 0.95, []])
        self.assertEqual(self.generation({"do_sample": False})[1]["temperature"], 0)

    def test_what_is_broken_is_named(self):
        for config, word in [({"eos_token_id": "1"}, "eos_token_id"), ({"eos_token_id": [1, 10**6]}, "eos_token_id"),
                             ({"suppress_tokens": [1.5]}, "suppress_tokens"), ([], "object")]:
            code, _, err = self.generation(config)
            self.assertEqual(code, 3, config)
            self.assertIn("generation_config.json", err)
            self.assertIn(word, err)


class Tools(unittest.TestCase):
    def check(self, args, *words):
        code, out, err = run("run", TINY, "--ids", "2,3", "-n", 1, *args)
        self.assertEqual((code, out), (2, ""), err)
        for word in words:
            self.assertIn(word, err)

    def test_what_cannot_be_offered_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "tools.json")
            path.write_text('[{"name": "f"}]')
            self.check(["--tool-exec", "cat"], "--tool-exec", "--tools")
            self.check(["--tools", path], "--tools")  # this model has no tools
            self.check(["--tools", path, "--tool-exec", "sh -c 'open"], "--tool-exec")
            self.check(["--tools", path, "--tool-exec", " "], "--tool-exec")

    def test_a_broken_file_is_an_input_file_that_is_broken(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "tools.json")
            for text in ["{}", "[", '[{"name": 1}]', None]:
                path.write_text(text) if text is not None else path.unlink()
                for command in [["run", TINY, "--ids", "2,3"], ["chat", TINY], ["batch", TINY]]:
                    code, out, err = run(*command, "--tools", path)
                    self.assertEqual((code, out), (3, ""), err)
                    self.assertIn(str(path), err)

    def test_plain_prompts_say_why_they_have_no_tools(self):
        with tempfile.TemporaryDirectory() as folder:
            tools = pathlib.Path(folder, "tools.json")
            tools.write_text('[{"name": "f"}]')
            template = (SOURCE / "tests/golden/chat/gemma4-chat-template.jinja").read_text()
            model = scripted_model.write(folder, {}, template)
            for args, word in [(["--ids", "2"], "ids are taken as they are"), (["-p", "a", "--raw"], "--raw offers no tools")]:
                code, out, err = run("run", model, *args, "-n", 1, "--tools", tools)
                self.assertEqual((code, out), (2, ""), err)
                self.assertIn("--tools: " + word, err)

    def test_thinking_is_refused_where_there_is_none(self):
        self.check(["--think"], "--think")
        with tempfile.TemporaryDirectory() as folder:
            model = scripted_model.write(folder, {})  # a Gemma 4 vocabulary, no template
            for command in [["run", "-n", 1], ["logits", "--out", f"{folder}/l.npy"], ["trace", "--out", f"{folder}/t"]]:
                code, out, err = run(command[0], model, "-p", "a", "--think", *command[1:])
                self.assertEqual((code, out), (2, ""), err)
                self.assertIn("--think: this model has no chat template", err)
