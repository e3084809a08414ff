"""A conversation whose model calls tools."""
import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import scripted_model
from driver import BINARY, SOURCE, run, Terminal


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

    def test_thoughts_and_ids_of_every_turn_are_kept(self):
        model = self.model()
        alone = json.loads(self.run_tools("--think", "--json", model=model)[0])
        answer = json.loads(self.run_tools("--think", "--tool-exec", self.exec, "--json", model=model)[0])
        self.assertEqual((answer["text"], answer["reasoning"]), ("It is 3.", "Need it."))
        (before,) = answer["earlier_turns"]
        for key in ["text", "ids", "prompt_ids", "finish_reason", "reasoning", "tool_calls"]:
            self.assertEqual(before[key], alone[key], key)
        self.assertEqual(before["timings"]["generated_tokens"], len(before["ids"]))
        self.assertEqual(answer["timings"]["generated_tokens"], len(answer["ids"]))
        self.assertEqual(answer["prompt_ids"][:len(before["prompt_ids"])], before["prompt_ids"])
        self.assertNotIn("earlier_turns", alone)
        import jsonschema
        jsonschema.validate(answer, json.loads((SOURCE / "docs/schemas/run.schema.json").read_text()))

    def test_thoughts_of_several_turns_are_joined(self):
        # The model thinks and calls again after each result; the tool interrupts us at the second call.
        self.program.write_text("import os, pathlib, signal, time\n"
                                "first = pathlib.Path(__file__).with_name('first')\n"
                                "if first.exists():\n"
                                "    os.kill(os.getppid(), signal.SIGINT)\n"
                                "    time.sleep(600)\n"
                                "first.touch()\n")
        model = self.model(say=["Let me see."], after=["<|channel>"])
        out, _ = self.run_tools("--think", "--tool-exec", self.exec, "--json", model=model, code=130)
        answer = json.loads(out)
        self.assertEqual((answer["finish_reason"], answer["reasoning"]), ("cancelled", "Need it.\n\nNeed it."))
        self.assertEqual([turn["reasoning"] for turn in answer["earlier_turns"]], ["Need it."])
        self.assertEqual([step["result"] == "" for step in answer["tool_results"]], [True, False])

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

    def chat(self, *lines, options=(), model=None, code=0):
        model = model or self.model()
        got, out, err = run("chat", model, "--temperature", 0, *options, stdin="".join(line + "\n" for line in lines))
        self.assertEqual(got, code, err)
        return out, err

    def test_chat_commands_mean_what_they_say(self):
        model = self.model(say=["Let me see."])
        for leave in ["/exit", "/quit", "/exit "]:
            out, _ = self.chat(leave, "not reached", model=model)
            self.assertEqual(out, "", leave)
        saved = self.folder / "two words.json"
        _, err = self.chat("hello", "/reset now", "/exit now", f"/save '{saved}'", model=model, code=1)
        self.assertIn("/reset: expected nothing after it, got now", err)
        self.assertIn("/exit: expected nothing after it, got now", err)
        self.assertEqual(json.loads(saved.read_text())[0]["content"], "hello")  # nothing was forgotten
        _, err = self.chat(f"/nosuch {saved}", model=model, code=1)
        self.assertIn("sent as //nosuch", err)

    def test_save_keeps_what_another_wrote(self):
        model, saved = self.model(say=["Let me see."]), self.folder / "kept.json"
        saved.write_text("mine")
        _, err = self.chat("hello", f"/save {saved}", model=model, code=1)
        self.assertEqual(saved.read_text(), "mine")
        self.assertIn("/save! FILE writes over it", err)
        saved_once = self.folder / "once.json"
        _, err = self.chat("hello", f"/save! {saved}", f"/save {saved_once}", "again", f"/save  \"{saved_once}\" ", model=model)
        self.assertEqual(err.count("saved to"), 3)
        self.assertEqual(len(json.loads(saved.read_text())), 2)
        self.assertEqual(len(json.loads(saved_once.read_text())), 4)
        _, err = self.chat("hello", f"/save {self.folder}/quiet.json", "/reset", options=["-q"], model=model)
        self.assertEqual(err, "")

    def test_what_was_not_done_is_in_the_exit_code(self):
        model = self.model(say=["Let me see."])
        for line, word in [("/save", "which file?"), ("/save -", "expected a file, got -"), ("/image x", "picture"),
                           (f"/save {self.folder}/no/such", "cannot be written")]:
            out, err = self.chat(line, "hello", model=model, code=1)
            self.assertTrue(out.startswith("Let me see.\n"), out)  # what follows is done
            self.assertIn(word, err)
        terminal = Terminal(["chat", model, "--temperature", 0])
        terminal.expect("> ")
        terminal.send("/save\r")
        terminal.expect("which file?")
        terminal.expect("> ")
        terminal.send("\x04")
        self.assertEqual(terminal.wait(), 0)

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
