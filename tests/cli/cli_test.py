#!/usr/bin/env python3
"""Drives the real binary as a user does: exit codes, messages, JSON documents, files.

  cli_test.py MARKBASE_BINARY SOURCE_DIR [TEST...]

The parts that need a model take it from MARKBASE_TEST_MODEL (scripts/test.sh sets it) and are skipped without.
"""
import array
import ctypes
import fcntl
import hashlib
import json
import os
import pathlib
import pty
import re
import resource
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

import mini_tokenizer
import scripted_model

BINARY = sys.argv[1]
SOURCE = pathlib.Path(sys.argv[2])
MODEL = os.environ.get("MARKBASE_TEST_MODEL", "")
SMALL = ["--ctx", "2048"]
TINY = SOURCE / "tests/golden/tiny_gemma3_gguf/tiny.gguf"
# 600 tokens and some.
LONG_TEXT = (SOURCE / "tests/golden/texts/emma.txt").read_text()[:2800]


def run(*args, stdin="", env=None, timeout=600):
    environment = dict(os.environ, **(env or {}))
    data = stdin if isinstance(stdin, bytes) else stdin.encode()
    done = subprocess.run([BINARY, *map(str, args)], input=data, capture_output=True, env=environment, timeout=timeout)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def wait_for_handler(pid, number):
    """Until the process catches the signal: before that it would simply die of it."""
    while True:
        caught = re.search(r"^SigCgt:\s*(\w+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        if int(caught.group(1), 16) >> (number - 1) & 1:
            return
        time.sleep(0.001)


def read_npy(path):
    data = pathlib.Path(path).read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    (length,) = struct.unpack("<H", data[8:10])
    header = eval(data[10:10 + length].decode())  # a dict literal that we wrote
    assert header["descr"] == "<f4" and not header["fortran_order"], header
    values = array.array("f")
    values.frombytes(data[10 + length:])
    return header["shape"], values


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
                               (["tiny-e2b", f"{folder}/no/a", "--to", "hf-bf16"], "folder"),
                               (["tiny-e2b", folder, "--to", "hf-bf16"], "exists")]:
                code, out, err = run("synth", *args)
                self.assertEqual((code, out), (2, ""), err)
                self.assertIn(word, err)
            self.assertEqual(os.listdir(folder), [])

    def test_a_place_that_takes_no_files_is_said(self):
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
        for command in ["quantize", "profile", "batch", "pull", "serve"]:
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
            self.assertEqual(code, 2, err)
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
        bare = {name: value for name, value in os.environ.items() if name not in ("HOME", "HF_HOME", "MARKBASE_MODELS")}
        for added, word in [({}, "neither MARKBASE_MODELS nor HF_HOME nor HOME is set"), ({"HF_HOME": "/nope"}, "in /nope\n")]:
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

    def test_unknown_model_names_the_line_that_fetches_it(self):
        with tempfile.TemporaryDirectory() as folder:
            places = {"MARKBASE_MODELS": folder, "HF_HOME": folder}
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

    def test_list_and_doctor(self):
        with tempfile.TemporaryDirectory() as folder:
            code, out, _ = run("list", "--json", env={"MARKBASE_MODELS": folder, "HF_HOME": folder})
            self.assertEqual((code, json.loads(out)), (0, []))
        code, out, _ = run("doctor", "--json")
        self.assertEqual(code, 0)
        document = json.loads(out)
        self.assertGreater(document["bandwidth_gb_per_s"], 0)
        self.assertIn("level", document["cpu"])


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
            self.assertEqual((code, len(out.splitlines())), (3 if line == "{" else 2, 1), f"{line}: {err}")
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
            for bad, code in [('{"text":', 3), ("[]", 2), ("{}", 2), (json.dumps({**object_, "bso": False}), 2),
                              (json.dumps({key: {} for key in object_}), 2)]:
                got, out, err = run(*args, stdin=bad + "\n")
                self.assertEqual((got, out), (code, ""), f"{name} {bad}: {err}")
                self.assertIn("line 1: ", err)
            if name != "template":  # needs a template, which this model has not
                self.assertEqual(run(*args, stdin=line)[0], 0)

    def test_special_counts_for_lines_that_do_not_say(self):
        turn = mini_tokenizer.SPECIAL.index("<|turn>")
        lines = '{"text": "<|turn>"}\n{"text": "<|turn>", "special": false}\n{"text": "<|turn>", "special": true}\n'
        for option, wanted in [([], [False, False, True]), (["--special"], [True, False, True])]:
            _, out, err = run("tokenize", self.model, "--jsonl", *option, stdin=lines)
            self.assertEqual([json.loads(line)["ids"] == [turn] for line in out.splitlines()], wanted, err)
        code, _, err = run("tokenize", self.model, "--decode", "--special", stdin='{"ids": [40]}')
        self.assertEqual(code, 2, err)
        self.assertIn("--special", err)


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
            for text in ["{}", "[", '[{"name": 1}]']:
                path.write_text(text)
                self.check(["--tools", path], "--tools", str(path))
            code, _, err = run("run", TINY, "--ids", "2,3", "--tools", folder + "/none.json")
            self.assertEqual(code, 3, err)

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


class ToolLoop(unittest.TestCase):
    """A model that says what it is told to calls a tool of ours."""
    CALL = "call:add{a:1,b:2}"

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(prefix="tool loop ")
        self.folder = pathlib.Path(self.directory.name)
        self.tools = self.folder / "tools.json"
        number = {"type": "integer"}
        self.tools.write_text(json.dumps([{"type": "function", "function": {
            "name": "add", "description": "Adds", "parameters": {
                "type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]}}}]))
        self.program = self.folder / "add up.py"
        self.program.write_text("import json, pathlib, sys\n"
                                "line = sys.stdin.read()\n"
                                "pathlib.Path(__file__).with_name('seen').write_text(line)\n"
                                "arguments = json.loads(line)['arguments']\n"
                                "print(arguments['a'] + arguments['b'], end='')\n")
        self.exec = f"{sys.executable} '{self.program}'"

    def tearDown(self):
        self.directory.cleanup()

    def model(self, call=CALL, say=(), after=("It is 3.", "<turn|>")):
        template = (SOURCE / "tests/golden/chat/gemma4-chat-template.jinja").read_text()
        script = {scripted_model.NEWLINE: ["<|channel>", "thought\nNeed it.\n", "<channel|>", *say, "<|tool_call>", call,
                                           "<tool_call|>", "<|tool_response>"],
                  "<tool_response|>": after}
        folder = self.folder / "model"
        folder.mkdir(exist_ok=True)
        return scripted_model.write(folder, script, template)

    def run_tools(self, *options, model=None, code=0):
        got, out, err = run("run", model or self.model(), "-p", "1+2?", "--temperature", 0, "--tools", self.tools, *options)
        self.assertEqual(got, code, err)
        return out, err

    def test_a_call_is_shown_where_nothing_runs_it(self):
        model = self.model(say=["Let me see."])
        out, _ = self.run_tools(model=model)
        self.assertEqual(out, 'Let me see.\n{"name":"add","arguments":{"a":1,"b":2}}\n')
        answer = json.loads(self.run_tools("--json", model=model)[0])
        self.assertEqual((answer["text"], answer["finish_reason"]), ("Let me see.", "tool_calls"))
        self.assertEqual(answer["tool_calls"], [{"name": "add", "arguments": {"a": 1, "b": 2}, "faults": []}])
        self.assertNotIn("tool_results", answer)

    def test_the_command_gets_the_call_and_the_model_its_result(self):
        out, err = self.run_tools("--tool-exec", self.exec)
        self.assertEqual(out, "It is 3.\n")
        self.assertIn('tool {"name":"add"', err)
        self.assertEqual(json.loads((self.folder / "seen").read_text()), {"name": "add", "arguments": {"a": 1, "b": 2}, "id": "call_1"})
        answer = json.loads(self.run_tools("--tool-exec", self.exec, "--json")[0])
        self.assertEqual((answer["text"], answer["finish_reason"], answer["tool_calls"]), ("It is 3.", "stop", []))
        self.assertEqual(answer["tool_results"], [{"call": {"name": "add", "arguments": {"a": 1, "b": 2}}, "result": "3", "failed": False}])
        import jsonschema
        jsonschema.validate(answer, json.loads((SOURCE / "docs/schemas/run.schema.json").read_text()))

    def test_failures_are_shown_and_told(self):
        for command, word in [("false", "status 1"), ("/no/such/program", "/no/such/program"), ("sh -c 'kill -9 $$'", "signal 9"),
                              ("yes", "1048576"), ("sh -c 'echo half; exit 3'", "half")]:
            out, err = self.run_tools("--tool-exec", command, "--json")
            result = json.loads(out)["tool_results"][0]
            self.assertTrue(result["failed"], command)
            self.assertIn("error", json.loads(result["result"]))
            self.assertIn(word, result["result"])
            self.assertIn("tool add failed", err)

    def test_what_a_command_leaves_running_is_not_waited_for(self):
        fifo = self.folder / "never"
        os.mkfifo(fifo)
        program = self.folder / "leave.sh"
        program.write_text(f"cat '{fifo}' 2>&- & echo 3")  # cat keeps the stdout
        code, out, err = run("run", self.model(), "-p", "1+2?", "--temperature", 0, "--tools", self.tools, "--json",
                             "--tool-exec", f"sh '{program}'", timeout=60)
        # Opened once cat is there, and closed: cat ends.
        open(fifo, "w").close()
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)["tool_results"][0]["result"], "3\n")

    def test_an_interrupt_ends_a_command_whichever_thread_gets_it(self):
        program = self.folder / "wait.sh"
        for ending in ["", "exec 1>&-; "]:
            started = self.folder / "started"
            program.write_text(f"{ending}: > '{started}'; exec sleep 600")
            process = subprocess.Popen([BINARY, "run", self.model(), "-p", "1+2?", "--temperature", "0", "--tools", self.tools, "--json",
                                        "--tool-exec", f"sh '{program}'"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            while not started.exists():
                time.sleep(0.01)
            started.unlink()
            # Not the one that waits for the command.
            other = max(int(t) for t in os.listdir(f"/proc/{process.pid}/task"))
            self.assertNotEqual(other, process.pid)
            self.assertEqual(ctypes.CDLL(None).tgkill(process.pid, other, signal.SIGINT), 0)
            try:
                out, err = process.communicate(timeout=60)
            finally:
                process.kill()
            self.assertEqual(process.returncode, 130, err)
            self.assertIn("interrupted", json.loads(out)["tool_results"][0]["result"])

    def test_a_call_that_does_not_fit_is_not_run(self):
        for call, word in [("call:sub{a:1}", "sub"), ("call:add{a:1}", "'b' is required"), ("call:add{a:1,b:x}", "integer")]:
            out, _ = self.run_tools("--tool-exec", self.exec, "--json", model=self.model(call))
            result = json.loads(out)["tool_results"][0]
            self.assertIn(word, result["result"])
            self.assertFalse((self.folder / "seen").exists())

    def test_no_shell_sees_what_the_model_wrote(self):
        self.tools.write_text('[{"name": "add", "parameters": {"type": "object", "additionalProperties": true}}]')
        evil = f"$(touch {self.folder}/pwned) `touch {self.folder}/pwned`; touch {self.folder}/pwned '"
        out, _ = self.run_tools("--tool-exec", "cat", "--json", model=self.model(f'call:add{{a:"{evil}"}}'))
        self.assertEqual(json.loads(json.loads(out)["tool_results"][0]["result"])["arguments"], {"a": evil})
        self.assertFalse((self.folder / "pwned").exists())

    def test_a_model_that_goes_in_circles_is_stopped(self):
        _, err = self.run_tools("--tool-exec", self.exec, model=self.model(after=["<|tool_call>"]), code=1)
        self.assertIn("32 times", err)

    def test_thoughts_are_reasoning_and_not_printed(self):
        model = self.model(say=["Let me see."])
        answer = json.loads(self.run_tools("--think", "--json", model=model)[0])
        self.assertEqual((answer["reasoning"], answer["text"]), ("Need it.", "Let me see."))
        self.assertNotIn("Need it.", self.run_tools("--think", model=model)[0])

    def test_thoughts_are_dimmed_on_a_terminal(self):
        terminal = Terminal(["run", self.model(say=["Let me see."]), "-p", "1+2?", "--temperature", 0, "--think", "-q"])
        terminal.expect("\x1b[2mNeed it.\x1b[22m\r\nLet me see.")
        self.assertEqual(terminal.wait(), 0)

    def chat(self, *lines, options=(), model=None):
        model = model or self.model()
        code, out, err = run("chat", model, "--temperature", 0, *options, stdin="".join(line + "\n" for line in lines))
        self.assertEqual(code, 0, err)
        return out, err

    def test_chat_commands_mean_what_they_say(self):
        model = self.model(say=["Let me see."])
        for leave in ["/exit", "/quit", "/exit "]:
            out, _ = self.chat(leave, "not reached", model=model)
            self.assertEqual(out, "", leave)
        saved = self.folder / "two words.json"
        _, err = self.chat("hello", "/reset now", "/exit now", f"/save '{saved}'", model=model)
        self.assertIn("/reset: expected nothing after it, got now", err)
        self.assertIn("/exit: expected nothing after it, got now", err)
        self.assertEqual(json.loads(saved.read_text())[0]["content"], "hello")  # nothing was forgotten
        _, err = self.chat(f"/nosuch {saved}", model=model)
        self.assertIn("sent as //nosuch", err)

    def test_save_keeps_what_another_wrote(self):
        model, saved = self.model(say=["Let me see."]), self.folder / "kept.json"
        saved.write_text("mine")
        _, err = self.chat("hello", f"/save {saved}", model=model)
        self.assertEqual(saved.read_text(), "mine")
        self.assertIn("/save! FILE writes over it", err)
        saved_once = self.folder / "once.json"
        _, err = self.chat("hello", f"/save! {saved}", f"/save {saved_once}", "again", f"/save  \"{saved_once}\" ", model=model)
        self.assertEqual(err.count("saved to"), 3)
        self.assertEqual(len(json.loads(saved.read_text())), 2)
        self.assertEqual(len(json.loads(saved_once.read_text())), 4)
        _, err = self.chat("hello", f"/save {self.folder}/quiet.json", "/reset", options=["-q"], model=model)
        self.assertEqual(err, "")

    def test_a_message_may_begin_with_a_slash(self):
        saved = self.folder / "s.json"
        _, err = self.chat("//reset is what I typed", f"/save {saved}", model=self.model(say=["Let me see."]))
        self.assertEqual(json.loads(saved.read_text())[0]["content"], "/reset is what I typed", err)

    def test_chat_refuses_options_of_run_by_name(self):
        for option in [["--image", "x"], ["--audio", "x"], ["--video", "x"], ["--json-schema", "x"], ["--raw"], ["--special"],
                       ["-p", "x"], ["-f", "x"], ["--ids", "2"]]:
            code, out, err = run("chat", self.folder / "no such model", *option)
            self.assertEqual((code, out), (2, ""), err)
            self.assertTrue(err.startswith(f"markbase: {option[0]}: "), err)
            self.assertNotIn("expected:", err)

    def test_a_conversation_keeps_calls_and_results(self):
        saved = self.folder / "saved.json"
        code, out, err = run("chat", self.model(), "--temperature", 0, "--tools", self.tools, "--tool-exec", self.exec,
                             stdin=f"1+2?\nand again?\n/save {saved}\n")
        self.assertEqual((code, out), (0, "It is 3.\n" * 2), err)
        messages = json.loads(saved.read_text())
        self.assertEqual([m["role"] for m in messages], ["user", "assistant", "tool", "assistant"] * 2)
        self.assertEqual(messages[1]["tool_calls"][0]["function"], {"name": "add", "arguments": '{"a":1,"b":2}'})
        self.assertEqual([m["tool_call_id"] for m in messages if m["role"] == "tool"], ["call_1", "call_2"])
        self.assertEqual([m["tool_calls"][0]["id"] for m in messages if "tool_calls" in m], ["call_1", "call_2"])


class Terminal:
    """The program on a terminal of its own."""

    def __init__(self, args, columns=80):
        try:
            self.pid, self.fd = pty.fork()
        except OSError as error:
            raise unittest.SkipTest(f"no pseudo-terminals on this system: {error}")
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            os.execv(BINARY, [BINARY, *map(str, args)])
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.shown = ""

    def expect(self, text, timeout=120):
        end = time.monotonic() + timeout
        while text not in self.shown:
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise AssertionError(f"{text!r} did not come: {self.shown!r}")
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                data = b""
            if not data:
                raise AssertionError(f"{text!r} did not come before the end: {self.shown!r}")
            self.shown += data.decode(errors="replace")
        before, self.shown = self.shown.split(text, 1)
        return before

    def expect_something(self):
        while not self.shown:
            self.shown = os.read(self.fd, 65536).decode(errors="replace")

    def send(self, text):
        os.write(self.fd, text.encode())

    def wait(self):
        try:
            while os.read(self.fd, 65536):
                pass
        except OSError:
            pass
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


class ProgressOnATerminal(unittest.TestCase):
    def check(self, args, *words):
        terminal = Terminal(args, columns=200)
        for word in words:
            terminal.expect(word)
        self.assertEqual(terminal.wait(), 0)

    def test_each_chunk_of_a_prompt(self):
        chunks = [f"\rreading the prompt {done} / 7 tokens ({done * 100 // 7} %)\x1b[K" for done in (0, 3, 6)] + ["\r\x1b[K"]
        prompt = [TINY, "--ids", "2,3,4,5,6,7,8", "--prefill-chunk", 3]
        with tempfile.TemporaryDirectory() as folder:
            self.check(["run", *prompt, "-n", 1], *chunks, "tokens/s | first token")
            self.check(["logits", *prompt, "--last", "--out", f"{folder}/l.npy"], *chunks, "[1, ")
            self.check(["trace", *prompt, "--out", f"{folder}/t"], *chunks, "intermediates")

    def test_amounts_have_their_unit(self):
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder, "t.txt")
            text.write_text("the whale and the sea")
            self.check(["perplexity", TINY, "-f", text, "--ctx", 4], "\rscoring 0 / 12 tokens (0 %)",
                       "\rscoring 6 / 12 tokens (50 %)", "\r\x1b[K", "perplexity:")
        self.check(["bench", TINY, "-p", "4,8", "-n", 2, "-d", "0,4", "-r", 1], "\rmeasuring 0 / 8 runs (0 %)",
                   "\rmeasuring 7 / 8 runs (87 %)", "\r\x1b[K", "tests:")
        self.check(["verify", TINY], " MB (", "\r\x1b[K", "tensors")

    def test_nothing_off_a_terminal_and_with_q(self):
        self.assertNotIn("reading", run("run", TINY, "--ids", "2,3,4", "-n", 1)[2])
        terminal = Terminal(["run", TINY, "--ids", "2,3,4", "-n", 1, "-q"])
        self.assertNotIn("\x1b[K", terminal.expect("\n"))
        self.assertEqual(terminal.wait(), 0)


@unittest.skipUnless(MODEL, "MARKBASE_TEST_MODEL is not set")
class ChatOnATerminal(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.saved = pathlib.Path(self.folder.name, "c.json")
        self.terminal = Terminal(["chat", MODEL, *SMALL, "-n", 3, "--temperature", 0])
        self.terminal.expect("\x1b[?2004h")

    def tearDown(self):
        self.folder.cleanup()

    def messages(self):
        """What the user has said, by /save, and the end of the program."""
        self.terminal.send(f"/save {self.saved}\r")
        self.terminal.expect("saved to")
        self.terminal.expect("\x1b[?2004h")
        self.terminal.send("\x04")
        self.assertEqual(self.terminal.wait(), 0)
        return [m["content"] for m in json.loads(self.saved.read_text()) if m["role"] == "user"]

    def say(self, keys):
        self.terminal.send(keys)
        self.terminal.expect("tokens/s | first token")
        self.terminal.expect("\x1b[?2004h")

    def test_editing(self):
        self.say("Hxy\x7f\x7fello\x01>\x05 wor\x1b[D\x1b[D\x1b[3~\x1b[C日本\x7f!\x17end\r")
        self.assertEqual(self.messages(), [">Hello end"])

    def test_the_cursor_does_not_depend_on_how_wide_an_emoji_is(self):
        self.terminal.send("\U0001F44D\U0001F3FDab")
        self.terminal.expect("> \U0001F44D\U0001F3FDab")
        self.terminal.send("\x1b[D")
        self.terminal.expect("> \U0001F44D\U0001F3FDab\r> \U0001F44D\U0001F3FDa")
        self.say("\x7f\r")
        self.assertEqual(self.messages(), ["\U0001F44D\U0001F3FDb"])

    def test_notes_are_wrapped_between_words(self):
        terminal = Terminal(["chat", MODEL, *SMALL], columns=40)
        notes = terminal.expect("> ")
        terminal.send("\x04")
        self.assertEqual(terminal.wait(), 0)
        lines = re.sub("\x1b\\[[0-9?;]*[A-Za-z]", "", notes).replace("\r\n", "\n").split("\n")
        self.assertIn("/reset forgets the conversation, /save", lines)
        self.assertTrue(all(len(line.split("\r")[-1]) <= 40 for line in lines), lines)

    def test_history(self):
        self.say("first\r")
        self.say("second\r")
        self.say("draft\x1b[A\x1b[A\x1b[B\x1b[A!\r")
        self.say("\x1b[A\x1b[A\x1b[A\x1b[A\x1b[B\x1b[B\x1b[B\x1b[Bx\r")
        self.assertEqual(self.messages(), ["first", "second", "first!", "x"])

    def test_a_paste_of_many_lines_is_one_message(self):
        self.say("see:\x1b[200~one\rtwo\n/reset\tthree\x1b[201~ end\r")
        self.assertEqual(self.messages(), ["see:one\ntwo\n/reset\tthree end"])

    def test_ctrl_c_gives_a_fresh_line(self):
        self.terminal.send("nonsense\x03")
        self.terminal.expect("\x1b[?2004h")
        self.say("sense\r")
        self.assertEqual(self.messages(), ["sense"])


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
        self.assertEqual(code, 2)
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
            self.assertEqual(code, 2, err)
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
        self.assertEqual(code, 0, err)
        answers = out.splitlines()
        self.assertGreaterEqual(len(answers), 2)
        self.assertIn("/nonsense", err)

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
        process = subprocess.Popen([BINARY, "run", MODEL, *SMALL, "-p", "One", "-n", "8", "--temperature", "0", "-q"],
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
        self.assertGreater(peak, plan["weight_bytes"] // 2, "the sampling saw the load")
        print(f"peak RssAnon {peak / 1e6:.1f} MB, packed weights {plan['weight_bytes'] / 1e6:.1f} MB, "
              f"ratio {peak / plan['weight_bytes']:.3f}")
        self.assertLess(peak, 1.15 * plan["weight_bytes"])

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


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
