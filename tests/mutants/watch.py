"""A pytest plugin: writes down which test begins, what fails, and how long each takes, for a process that may end this one."""

from __future__ import annotations

import json
import os
import time


def _tell(what: str, test: str, seconds: float = 0.0, text: str = "") -> None:
    with open(os.environ["MUTANT_WATCH"], "a") as out:
        row = {"what": what, "test": test, "seconds": seconds, "text": text, "at": time.time()}
        out.write(json.dumps(row) + "\n")


def pytest_runtest_logstart(nodeid, location):
    _tell("begins", nodeid)


def pytest_runtest_logreport(report):
    if report.failed:
        _tell("fails", report.nodeid, text=str(report.longrepr)[-600:])
    if report.when == "call":
        _tell("took", report.nodeid, report.duration)


def pytest_collectreport(report):
    if report.failed:
        _tell("fails", report.nodeid, text=str(report.longrepr)[-600:])
