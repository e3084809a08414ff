"""On a terminal: progress, chat."""
import json
import pathlib
import re
import tempfile
import unittest

import scripted_model
from driver import MODEL, SMALL, SOURCE, TINY, run, Terminal


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

    def test_the_text_begins_behind_the_last_progress(self):
        prompt = ["run", TINY, "--ids", "2,3,4,5,6,7,8", "--prefill-chunk", 3, "-n", 5, "--temperature", 0]
        code, piped, err = run(*prompt)
        self.assertEqual(code, 0, err)
        terminal = Terminal(prompt, columns=200)
        shown = terminal.expect("prompt 7 tokens")
        self.assertEqual(terminal.wait(), 0)
        self.assertIn("reading the prompt", shown)
        self.assertEqual(shown.split("\r\x1b[K")[-1].replace("\r\n", "\n"), piped)

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


class ControlCharactersOnATerminal(unittest.TestCase):
    TEXT = "\x1b]0;mine\x07\x00a\x7f\u009b1mb\u0085\rc\u00a0é\tend"
    SHOWN = "\ufffd]0;mine\ufffd\ufffda\ufffd\ufffd1mb\ufffd\ufffdc\u00a0é\tend"

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.template = (SOURCE / "tests/golden/chat/gemma4-chat-template.jinja").read_text()

    def tearDown(self):
        self.folder.cleanup()

    def model(self, *texts, after="<channel|>"):
        return scripted_model.write(self.folder.name, {after: [*texts, "<turn|>"]}, self.template)

    def terminal(self, command, *options):
        return Terminal([command, pathlib.Path(self.folder.name), "--temperature", 0, *options], columns=200)

    def test_an_answer_cannot_drive_it(self):
        model = self.model(self.TEXT, "x\r", "\ny\r", "z\r\nlast\r")
        terminal = self.terminal("run", "-p", "a", "-q")
        terminal.expect(self.SHOWN + "x\r\ny\ufffdz\r\nlast\r\n")
        self.assertEqual(terminal.wait(), 0)
        terminal = self.terminal("chat", "-q")
        terminal.expect("> ")
        terminal.send("a\r")
        terminal.expect(self.SHOWN)
        terminal.expect("> ")
        terminal.send("\x04")
        self.assertEqual(terminal.wait(), 0)
        # Whoever reads a pipe gets what the model said.
        _, out, err = run("run", model, "-p", "a", "--temperature", 0, "-q")
        self.assertEqual(out, self.TEXT + "x\r\ny\rz\r\nlast\r\n", err)

    def test_nor_a_thought_or_a_call(self):
        tools = pathlib.Path(self.folder.name, "tools.json")
        tools.write_text('[{"name": "f"}]')
        self.model("<|channel>", f"thought\n{self.TEXT}\n", "<channel|>", "<|tool_call>",
                   'call:f{a:"\x1b[2J\u009b2J\x7f"}', "<tool_call|>", "<|tool_response>", after=scripted_model.NEWLINE)
        for options, before in [([], ""), (["--tool-exec", "false"], "tool ")]:
            terminal = self.terminal("run", "-p", "a", "--think", "--tools", tools, *options)
            terminal.expect(f"\x1b[2m{self.SHOWN}\x1b[22m\r\n")
            terminal.expect(before + '{"name":"f","arguments":{"a":"\\u001b[2J\ufffd2J\ufffd"}}')
            terminal.wait()

    def test_nor_what_a_file_says(self):
        model = self.model("yes")
        config = json.loads(model.joinpath("config.json").read_text())
        config["key\x7f\u009b2J"] = 1
        model.joinpath("config.json").write_text(json.dumps(config))
        terminal = Terminal(["verify", model], columns=200)
        terminal.expect("key\ufffd\ufffd2J")
        terminal.wait()
        terminal = Terminal(["verify", pathlib.Path(self.folder.name, "no\x1b[2J")], columns=200)
        terminal.expect("no\ufffd[2J")
        self.assertEqual(terminal.wait(), 3)


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
