#!/usr/bin/env python3
"""Drives the real binary as a user does: exit codes, messages, JSON documents, files.

  cli_test.py MARKBASE_BINARY SOURCE_DIR [TEST...]

The parts that need a model take it from MARKBASE_TEST_MODEL (scripts/test.sh sets it) and are skipped without.
"""
import sys
import unittest

# unittest finds the tests among the names of this file.
from batch_test import Batch, BatchChat, BatchResumed
from bench_test import BenchArrivals
from json_lines_test import Parse, JsonLines
from model_test import WithModel
from template_test import Template
from terminal_test import ChatOnATerminal, ControlCharactersOnATerminal, ProgressOnATerminal
from tool_loop_test import ToolLoop
from usage_test import Synth, Usage, Defaults, Tools


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
