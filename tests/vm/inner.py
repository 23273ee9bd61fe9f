"""The results of a pytest that ran inside a virtual machine, test by test."""

from __future__ import annotations

import ast
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

import pytest
from machine import PROJECT, Outcome

TESTS = PROJECT / "tests"
FILES = ("links/test_link_*.py", "links/test_netem_kernel.py", "lab/test_lab_links.py")
"""Files whose tests run inside: those that another kernel makes a difference to. It makes none to the wire."""
OUTSIDE = {"test_command"}
"""Of these, what is about the command line, and the same under any kernel; starting programs takes long inside."""
ENVIRONMENT = {"LINK_ENGINES": "netem", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


@dataclass(frozen=True)
class Result:
    """How one test ended inside."""

    name: str
    ending: str
    """passed, failure, error or skipped"""
    text: str


@dataclass(frozen=True)
class Report:
    """How all that ran inside ended, by ``folder/file::function``."""

    machine: str
    outcome: Outcome
    tests: dict[str, list[Result]]

    def judge(self, function: str) -> None:
        """Pass, fail or skip as ``function`` did inside, in all its variants; that it did not run is a failure."""
        results = self.tests.get(function, [])
        failed = [result for result in results if result.ending in ("failure", "error")]
        if failed:
            texts = [f"{result.name}: {result.ending} under {self.machine}\n{result.text}" for result in failed]
            pytest.fail("\n".join(texts), pytrace=False)
        if not results:
            pytest.fail(f"{function} did not run under {self.machine}:\n{self.outcome.output}", pytrace=False)
        if all(result.ending == "skipped" for result in results):
            pytest.skip(results[0].text.splitlines()[0])


def kernel_tests() -> list[str]:
    """``folder/file::function`` of every test that is to run inside, without importing anything."""
    return [
        f"{path.relative_to(TESTS)}::{item.name}"
        for pattern in FILES
        for path in sorted(TESTS.glob(pattern))
        for item in ast.parse(path.read_text()).body
        if isinstance(item, ast.FunctionDef) and item.name.startswith("test_") and "wire" not in item.name
        if item.name not in OUTSIDE
    ]


def selected(request: pytest.FixtureRequest) -> list[str]:
    """The functions that the tests of this module name which are selected in this session."""
    here = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    return [item.callspec.params["function"] for item in here if "function" in item.callspec.params]


def pytest_command(job: Path, names: list[str]) -> list[str]:
    """The command line of a pytest that runs the tests called ``names`` and reports into ``job``."""
    command = ["python", "-m", "pytest", "-p", "no:cacheprovider", "-k", "not wire", f"--junitxml={job}/report.xml"]
    return [*command, *(str(TESTS / name) for name in names)]


def read_report(machine: str, outcome: Outcome, job: Path) -> Report:
    """What that pytest has reported (JUnit XML)."""
    path = job / "report.xml"
    if not path.exists():
        pytest.fail(f"pytest ended with status {outcome.status} and no report:\n{outcome.output}", pytrace=False)
    tests: dict[str, list[Result]] = {}
    for case in ElementTree.parse(path).iter("testcase"):  # noqa: S314 - a file of our own
        problem = next((item for item in case if item.tag in ("failure", "error", "skipped")), None)
        if problem is None:
            result = Result(case.attrib["name"], "passed", "")
        else:
            text = problem.text or problem.get("message") or ""
            result = Result(case.attrib["name"], problem.tag, text)
        file = case.attrib["classname"].removeprefix("tests.").replace(".", "/") + ".py"
        tests.setdefault(f"{file}::{result.name.partition('[')[0]}", []).append(result)
    return Report(machine, outcome, tests)
