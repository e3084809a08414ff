"""The program under test and how to run it: cli_test.py BINARY SOURCE_DIR."""
import array
import fcntl
import os
import pathlib
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
import unittest

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
