"""Runs one of CPython's own test modules in this process, with or without forced capture, and writes what became of each test.

    python -m tests.cpython.child MODULE OUT [--forced] [--skip ID]... [--only ID]

OUT gets one JSON line when a test starts and one when it ends, so that a crash is traced to its test; the last line holds the counts.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import sys
import unittest
from contextlib import nullcontext


class Recorder(unittest.TestResult):
    """One line per event; the worst outcome of a test and its subtests counts."""

    def __init__(self, out) -> None:
        super().__init__()
        self.out = out
        self.outcome = "ok"
        self.detail = ""

    def write(self, **line) -> None:
        print(json.dumps(line), file=self.out, flush=True)

    def startTest(self, test) -> None:
        self.outcome, self.detail = "ok", ""
        self.write(start=test.id())

    def stopTest(self, test) -> None:
        self.write(test=test.id(), outcome=self.outcome, detail=self.detail[-2000:])

    def _set(self, outcome, detail="") -> None:
        self.outcome, self.detail = outcome, detail

    def addError(self, test, err) -> None:
        self._set("error", self._exc_info_to_string(err, test))
        if type(test).__name__ == "_ErrorHolder":  # setUpClass, setUpModule
            self.write(test=test.id(), outcome="error", detail=self.detail[-2000:])

    def addFailure(self, test, err) -> None:
        self._set("failure", self._exc_info_to_string(err, test))

    def addSkip(self, test, reason) -> None:
        self._set("skip", reason)

    def addExpectedFailure(self, test, err) -> None:
        self._set("expected failure")

    def addUnexpectedSuccess(self, test) -> None:
        self._set("unexpected success")

    def addSubTest(self, test, subtest, err) -> None:
        if err is not None:
            outcome = "failure" if issubclass(err[0], test.failureException) else "error"
            self._set(outcome, self._exc_info_to_string(err, test))


def flat(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        else:
            yield test


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("out")
    parser.add_argument("--forced", action="store_true")
    parser.add_argument("--skip", action="append", default=[])
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--trace", action="store_true")
    options = parser.parse_args()
    faulthandler.enable()
    import frameloom  # noqa: F401  (both kinds of runs have the same modules imported)
    from tests.cpython.forced import forced_capture

    name = options.module if "." in options.module else f"test.{options.module}"
    suite = unittest.defaultTestLoader.loadTestsFromName(name)
    wanted = [
        test
        for test in flat(suite)
        if test.id() not in options.skip
        and (not options.only or any(word in test.id() for word in options.only))
    ]
    trace = (
        (lambda f: print("capture", f.__module__, f.__qualname__, file=sys.stderr, flush=True))
        if options.trace
        else None
    )
    mode = forced_capture(trace=trace) if options.forced else nullcontext()
    with open(options.out, "a") as out:
        recorder = Recorder(out)
        with mode as forced:
            unittest.TestSuite(wanted).run(recorder)
        recorder.write(end=True, counts=forced.report() if forced else {})


if __name__ == "__main__":
    main()
