"""`nnhal demo`: its output, its accuracy, and its service."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.tools.cli.command import PROGRAM, assert_fails, invoke


def test_service_that_does_not_start_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNHAL_BACKENDS", '["Abacus"]')
    assert_fails(invoke("demo"), 1, "did not start", "Abacus")


@pytest.fixture(scope="module")
def demo_process() -> subprocess.CompletedProcess[str]:
    """Run the demo as a user does, without a terminal."""
    return subprocess.run([*PROGRAM, "demo"], capture_output=True, text=True, timeout=120, check=False)


def test_accuracy_is_printed(demo_process: subprocess.CompletedProcess[str]) -> None:
    assert demo_process.returncode == 0, demo_process.stderr
    line = re.search(r"accuracy ([\d.]+)% \((\d+) of (\d+) held-back digits\)", demo_process.stdout)
    assert line and float(line[1]) > 95 and int(line[2]) / int(line[3]) > 0.95
    assert re.search(r"service start [\d.]+ s, prepare [\d.]+ ms, execute [\d.]+ ms \(median\)", demo_process.stdout)
    assert demo_process.stderr == "" and "\x1b" not in demo_process.stdout


def test_digits_are_drawn_with_answers(demo_process: subprocess.CompletedProcess[str]) -> None:
    lines = demo_process.stdout.splitlines()
    assert lines[0].startswith("A service")
    assert all(len(line) < 80 for line in lines if not line.startswith("A service"))
    answers = next(re.findall(r"answer (\d)", line) for line in lines if "answer" in line)
    labels = next(re.findall(r"label (\d)", line) for line in lines if "label" in line)
    assert len(answers) == len(labels) == 8
    differ = sum(a != b for a, b in zip(answers, labels, strict=True))
    assert demo_process.stdout.count("WRONG") == differ == 1
    assert sum("█" in line for line in lines) == 8


def test_service_has_exited(demo_process: subprocess.CompletedProcess[str]) -> None:
    printed = re.search(r"process (\d+) and listened on unix:(\S+)\.", demo_process.stdout)
    assert printed
    with pytest.raises(ProcessLookupError):
        os.kill(int(printed[1]), 0)
    assert not Path(printed[2]).parent.exists()


def test_insufficient_accuracy_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnhal_tools.demo.digits.REQUIRED_ACCURACY", 0.999)
    result = invoke("demo")
    assert result.exit_code == 1 and "accuracy 9" in result.stdout
